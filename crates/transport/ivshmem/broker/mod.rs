//! The back end of `ivshmem`: it hands out doorbells between the machines of a pool, knows which machines live, and wakes
//! the host's sleepers.
//!
//! | module | subject |
//! | --- | --- |
//! | `message` | the protocol of ivshmem-server, version 0, that QEMU speaks |
//! | `peer_table` | who is connected to a pool and what each was told, in memory that outlives this process |
//! | `served` | one pool: its peers, and telling each what it does not know yet |
//! | `ring` | the host was rung: which sleepers are due? |
//! | `doorbell_sender` | the host rings: a thread that does it for its processes |
//! | `server` | the loop over all of that |
//! | `keeper`, `link` | the process that keeps descriptors when the back end dies, and how the two talk |
//! | `program` | starting the one from the other |
//! | `control`, [`client`] | the control socket, from both sides |
//! | `device` | in a machine: the devices' files and their driver |
//!
//! `docs/protocol.md` specifies the sockets.
//!
//! # Why machines go on
//! Every descriptor that matters (listening sockets, peers' sockets, eventfds, pools, peer tables) is also the keeper's.
//! When the back end dies, the keeper starts another and hands all of them over; connections that come in between wait
//! in the listening socket. What each peer was told is in a peer table, which is written after each message; the one
//! message that may have been under way counts as sent ([`served`]). When the keeper dies, the back end starts another.

pub mod client;
mod control;
mod device;
mod directory;
mod doorbell_sender;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod keeper;
mod link;
mod message;
mod peer_table;
mod program;
mod ring;
mod served;
mod server;

pub use control::{MemberStatus, PeerStatus, PoolStatus, Request, Status};
pub use device::{driver_failed, give_device, Devices};
pub use directory::Directory;
pub use link::MOST_VECTORS;
pub use message::receive as receive_message;
pub use peer_table::MOST_PEERS;
pub use program::{run_part, Part, Program};
