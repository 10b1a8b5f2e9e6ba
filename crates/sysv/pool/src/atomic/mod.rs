//! Words and bytes that others may change at the same time.
//!
//! All of a pool is read and written by what this module has. As a rule these are the atomics of [`core`],
//! and copies of bytes by those who have made sure that they are their own meanwhile, or who stand it if they
//! are not. With the feature `model` a model checker stands in for them, wherever it runs (`crate::model`):
//! the code around them is the one that is shipped.

#[cfg(not(feature = "model"))]
mod plain;
#[cfg(not(feature = "model"))]
pub use plain::*;

#[cfg(feature = "model")]
mod modelled;
#[cfg(feature = "model")]
pub use modelled::*;

pub use core::sync::atomic::{AtomicBool, Ordering};
