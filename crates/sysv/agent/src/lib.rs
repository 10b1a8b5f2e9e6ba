//! The agents of pools, which serve them beside the programs that use them: a host's back ends, and the front
//! end in a machine. Both reap after dead processes of their own kernel, and back ends after dead machines.
//!
//! | module | subject |
//! | --- | --- |
//! | [`ivshmem`], [`xen`] | the brokers of transports: they give pools to machines, and know which machines live |
//! | [`dax`] | the devices of a transport that has no broker |
//! | [`guest`] | the front end: a machine's pools, which come and go |
//! | `worker`, `quarantine` | a thread for each pool, and how often it makes a pass |
//! | `reaper`, `reclaimer` | its work in a pass: cleaning up after the dead, giving memory back |
//! | `maintained_pool` | a joined pool, with its worker |
//! | [`JoinedPool`], `owned_handle` | a pool as the upper half sees it, and its mapping |
//! | `sigbus` | surviving the truncation of a pool's file |
//! | `metrics`, [`http`] | a back end's metrics, for Prometheus, and the server of pages |
//! | `peer` | the process at the other end of a socket |

mod buffered_socket;
pub mod dax;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod guest;
pub mod http;
pub mod ivshmem;
mod joined_pool;
mod maintained_pool;
mod metrics;
mod owned_handle;
mod peer;
mod quarantine;
mod reaper;
mod reclaimer;
mod sigbus;
mod worker;
pub mod xen;

pub use joined_pool::{now, JoinedPool};
pub use peer::peer_of;

/// The kinds of devices by which a machine is given pools while it runs, or when it starts.
pub const DEVICES: [&dyn guest::Devices; 2] = [&ivshmem::Devices, &dax::Devices];
