//! The broker of `ivshmem`, which is the back end: it hands out doorbells between the machines of a pool,
//! knows which machines live, and wakes threads of the host.
//!
//! | module | subject |
//! | --- | --- |
//! | `message` | the protocol of ivshmem-server, version 0, as QEMU implements it |
//! | `fds` | bytes and descriptors over a Unix socket |
//! | `peer_table` | the peers of a pool and what each was told, in memory that outlives this process |
//! | `served_pool` | one pool: its peers, and announcing to each what it was not told yet |
//! | `host_wakeup` | waking threads of the host when its doorbell was rung |
//! | `doorbell_sender` | a thread that rings doorbells for processes of the host |
//! | `server` | the loop over all sockets and eventfds |
//! | `keeper`, `fd_store`, `stored` | the process that restarts the back end and stores its descriptors, their protocol, and what is stored |
//! | `program`, `part` | starting the one from the other, and running it |
//! | `control`, [`client`] | the control socket's protocol, and its client |
//! | `directory` | the back end's directory |
//! | `device` | in a machine: the devices' files and their driver |
//!
//! `docs/protocol.md` specifies the sockets.
//!
//! # Why machines go on when the back end dies
//! The keeper has a copy of every descriptor that matters (listening sockets, connections of peers, eventfds,
//! pools, peer tables). When the back end dies, the keeper starts another, which fetches them. Connections
//! that come in between wait in the backlog of the listening socket. What each peer was told is in the peer
//! table, which is written after each message; the one message that may have been in flight counts as sent
//! ([`served_pool`]). When the keeper dies, the back end starts another.

pub mod client;
mod control;
mod device;
mod directory;
mod doorbell_sender;
mod fd_store;
mod fds;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod host_wakeup;
mod keeper;
mod message;
mod part;
mod peer_table;
mod program;
mod served_pool;
mod server;
mod stored;

pub use control::{MemberStatus, PeerStatus, PoolStatus, Request, Status};
pub use device::{driver_failed, give_device, Devices};
pub use directory::Directory;
pub use fd_store::MAX_VECTORS;
pub use message::receive as receive_message;
pub use part::run_part;
pub use peer_table::MAX_PEERS;
pub use program::{Part, Program};
