//! The shared memory of Vshmem: what a pool looks like and how it is changed without harm.
//!
//! A pool is a range of memory that several processes, and several kernels, map at once. Nothing in it is
//! trusted: every offset, index and length is copied once, checked and then used. This crate makes no system
//! call and uses no heap; what it needs of the kernel below it comes through [`Kernel`].
//!
//! | module | subject |
//! | --- | --- |
//! | [`atomic`] | words and bytes that others may change |
//! | [`mem`] | checked access to mapped memory |
//! | [`pair`] | the 16-byte compare-and-swap |
//! | [`layout`] | where things are, as structures and constants |
//! | [`format`](mod@format) | making a pool, opening one |
//! | [`Pool`], [`Geometry`] | a pool that was opened, and where things are in it |
//! | [`Uuid`] | what tells a pool from all others |
//! | [`lock`] | locks that survive their owner |
//! | [`log`] | the redo log by which slow paths change words |
//! | [`heap`] | the allocator |
//! | [`process`], [`member`] | who uses the pool |
//! | [`doorbell`] | which member rings whose doorbell |
//! | [`memory_requests`] | requests of machines for memory of the host |
//! | [`budget`] | what a call may spend on looking at a pool |
//! | [`tuning`] | how long threads spin, nap and sleep |
#![deny(unsafe_op_in_unsafe_fn)]
#![no_std]

#[cfg(any(test, feature = "model"))]
extern crate std;

pub mod atomic;
pub mod budget;
mod ctx;
pub mod doorbell;
pub mod format;
pub mod heap;
pub mod ids;
pub mod kernel;
pub mod layout;
pub mod lock;
pub mod log;
pub mod mem;
pub mod member;
pub mod memory_requests;
#[cfg(feature = "model")]
pub mod model;
pub mod pair;
mod pool;
pub mod process;
pub mod tuning;
mod uuid;

#[cfg(test)]
mod tests;

pub use budget::Budget;
pub use ctx::Ctx;
pub use doorbell::Sleeper;
pub use format::{FormatError, OpenError, Params, DEFAULT_POOL, MIN_POOL};
pub use ids::Ids;
pub use kernel::{Cred, Kernel, Waited};
pub use mem::{Mem, Sparse};
pub use member::JoinError;
pub use pool::{Geometry, Limits, Pool};
pub use process::ProcId;
pub use uuid::Uuid;
