//! The back end on the host: it hands out doorbells between the machines of a pool, knows who lives, and wakes the host's sleepers.
//!
//! | module | subject |
//! | --- | --- |
//! | `message` | the protocol of ivshmem-server, version 0, that QEMU speaks |
//! | `ledger` | who is connected to a pool and what each was told, in memory that outlives this process |
//! | `served` | one pool: its peers, and telling each what it does not know yet |
//! | `ring` | the host was rung: which sleepers are due? |
//! | `worker`, `quarantine` | a thread for each pool, of the back end, a front end or an agent for Xen; and when it rests |
//! | `attendant`, `caretaker` | what it does there as one of the pool's processes: cleaning up after the dead, giving memory back |
//! | [`Below`], `mapped` | what a pool needs of the kernel when we work on it; and its memory |
//! | `herald` | the host rings: a thread that does it for its processes |
//! | `server` | the loop over all of that |
//! | `metrics`, `http` | what it knows, for Prometheus |
//! | `keeper`, `link` | the process that keeps descriptors when the back end dies, and how the two talk |
//! | `program` | starting the one from the other |
//! | `text` | what others say, before it goes to a terminal |
//! | [`xen`] | pools between Xen domains, which have no such back end |
//! | `control`, [`client`] | the control socket, from both sides |
//!
//! `docs/protocol.md` specifies the sockets, and what front and back end say to each other.
//!
//! # Why machines go on
//! Every descriptor that matters (listening sockets, peers' sockets, eventfds, pools, ledgers) is also the keeper's. When the back
//! end dies, the keeper starts another and hands all of them over; connections that come in between wait in the
//! listening socket. What each peer was told is in a ledger, which is written after each message; the one message that may
//! have been under way counts as sent ([`served`]). When the keeper dies, the back end starts another.

mod attendant;
mod caretaker;
pub mod client;
mod control;
mod directory;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod guest;
mod herald;
mod http;
mod keeper;
mod kernel;
mod ledger;
mod link;
mod lost;
mod mapped;
mod message;
mod metrics;
mod program;
mod quarantine;
mod ring;
mod served;
mod server;
mod text;
mod worker;
pub mod xen;

pub use control::{MemberStatus, PeerStatus, PoolStatus, Request, Status};
pub use directory::Directory;
pub use error::{Error, Result};
pub use kernel::{now, Below};
pub use ledger::MOST_PEERS;
pub use link::MOST_VECTORS;
pub use message::receive as receive_message;
pub use program::{run_part, Part, Program};
pub use text::{plain, printable};
