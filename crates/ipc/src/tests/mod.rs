//! Tests of the calls as programs make them, on a pool in plain memory.

mod backing;
pub mod death;
mod directory;
mod full;
mod hostile;
pub(crate) mod msg;
mod scribble;
mod sem;
mod shm;
