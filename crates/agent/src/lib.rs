//! What serves pools beside the programs that use them: a host's back ends, and the front end in a machine. Both clean up
//! after processes of their own kernel that died, and back ends after machines.
//!
//! | module | subject |
//! | --- | --- |
//! | [`ivshmem`], [`xen`] | the brokers of transports: who gives pools to machines, and knows which machines live |
//! | [`guest`] | the front end: a machine's pools, which come and go |
//! | `worker`, `quarantine` | a thread for each pool; and when it rests |
//! | `reaper`, `reclaimer` | what it does there as one of the pool's processes: cleaning up after the dead, giving memory back |
//! | [`Below`], `mapped`, `lost` | what a pool needs of the kernel when we work on it; its memory, and what if that is truncated |
//! | `metrics`, `http` | what a back end knows, for Prometheus |
//! | `signals` | being asked to end |
//! | `text` | what others say, before it goes to a terminal |

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
