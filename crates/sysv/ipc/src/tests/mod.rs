//! Tests of the calls as programs make them, on a pool in plain memory.

mod backing;
mod budget;
pub(crate) mod check;
mod deadlines;
pub mod death;
mod directory;
mod full;
mod gone;
mod heirs;
mod hostile;
mod kept;
mod many;
mod members;
pub(crate) mod msg;
mod reclaim;
mod scribble;
pub(crate) mod sem;
mod shm;
mod stats;
