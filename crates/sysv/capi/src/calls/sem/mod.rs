//! `semget`, `semop`, `semtimedop`, `semctl`.

mod ctl;
mod op;

pub use ctl::{ctl, ds, get, limits, SEM_INFO, SEM_STAT, SEM_STAT_ANY};
pub use op::{op, op_or, timed_op};
