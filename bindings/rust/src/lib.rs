//! Pools of Vshmem: segments, barriers and reductions between processes, containers and virtual machines.
//!
//! The library `libvshmem` does the work. Programs that use System V IPC need none of this: they run
//! unchanged under `LD_PRELOAD=libvshmem.so.1`. [`sys`] has the C functions as they are, the twelve calls of
//! System V among them.
//!
//! Calls go to the process's current pool, for all its threads: that of the environment variable
//! `VSHMEM_POOL`, until [`Pool::make_current`] chooses another. Attached segments and barriers know theirs by
//! themselves.
//!
//! # Example
//! The sum of what several processes have, each of which runs this:
//!
//! ```
//! # const PARTIES: u32 = 1;
//! # /*
//! const PARTIES: u32 = 4;
//! # */
//! let mut barrier = vshmem::Barrier::open(0x42, PARTIES)?;
//! let mut values = [1.5, 2.5];
//! barrier.reduce(&mut values, vshmem::Operation::Sum, None)?;
//! # vshmem::Barrier::remove(0x42)?;
//! # Ok::<(), vshmem::Error>(())
//! ```
//!
//! # Forks
//! Attached segments are the child's too. A barrier is not: the child opens its own, and forgets the
//! inherited one or drops it, which leaves the parent's seat alone. In the child of a process with several
//! threads only [`sys`] may be used.
//!

mod barrier;
mod error;
mod pool;
mod segment;
pub mod sys;

pub use barrier::{Barrier, Operation, Value};
pub use error::{Error, ErrorKind, Result};
pub use pool::Pool;
pub use segment::{Attachment, ReadOnly, Segment, Shared, Word};

/// The version of the C library, as in "0.1.0".
pub fn library_version() -> &'static str {
    // SAFETY: a C string that is part of the library, which can't be unloaded.
    let version = unsafe { std::ffi::CStr::from_ptr(sys::vshm_version()) };
    version.to_str().unwrap_or("")
}

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
