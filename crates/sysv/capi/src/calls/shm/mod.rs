//! `shmget`, `shmat`, `shmdt`, `shmctl`.

mod attach;
mod ctl;
mod moved;
mod remains;

pub use attach::{attach, attach_range, detach, double, is_attached};
pub use ctl::{ctl, ds, get, limits, SHM_INFO, SHM_STAT, SHM_STAT_ANY};

use vshmem_pool::layout::PAGE;

/// Bytes in pages, as [`crate::pools::sizes`] counts segments.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}
