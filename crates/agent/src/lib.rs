//! What serves pools beside the programs that use them: a host's back ends, and the front end in a machine. Both clean up
//! after processes of their own kernel that died, and back ends after machines.
//!
//! | module | subject |
//! | --- | --- |
//! | [`ivshmem`], [`xen`] | the brokers of transports: who gives pools to machines, and knows which machines live |
//! | [`dax`] | the devices of a transport that has no broker |
//! | [`guest`] | the front end: a machine's pools, which come and go |
//! | `worker`, `quarantine` | a thread for each pool; and when it rests |
//! | `reaper`, `reclaimer` | what it does there as one of the pool's processes: cleaning up after the dead, giving memory back |
//! | [`Below`], `mapped`, `lost` | what a pool needs of the kernel when we work on it; its memory, and what if that is truncated |
//! | `metrics`, `http` | what a back end knows, for Prometheus |
//! | `signals` | being asked to end |
//! | `text` | what others say, before it goes to a terminal |

#[path = "../../transport/dax/guest.rs"]
pub mod dax;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod guest;
mod http;
#[path = "../../transport/ivshmem/broker/mod.rs"]
pub mod ivshmem;
mod kernel;
mod lost;
mod mapped;
mod metrics;
mod quarantine;
mod reaper;
mod reclaimer;
mod signals;
mod text;
mod worker;
#[path = "../../transport/xen/broker/mod.rs"]
pub mod xen;

pub use error::{Error, Result};
pub use kernel::{now, Below};
pub use text::{plain, printable};

/// The kinds of devices by which a machine is given pools while it runs, or when it starts.
pub const DEVICES: [&dyn guest::Devices; 2] = [&ivshmem::Devices, &dax::Devices];
