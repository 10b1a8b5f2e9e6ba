//! The reclaimer: it frees the entries of dead members for others, and gives memory back to the host that
//! machines have freed, since they can't do so themselves.
//!
//! It works in steps, under locks for which it waits some milliseconds at the most. A step that fails is
//! tried again a second later.

use crate::joined_pool::JoinedPool;
use crate::owned_handle::OwnedHandle;
use crate::reaper::MAX_PASS;
use crate::worker::Task;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;
use vshmem_ipc::census::Census;
use vshmem_ipc::{reclaim, Ctx};

/// Bytes that a step gives back under the pool's lock: a fraction of a millisecond.
const STEP: u64 = 2 << 20;
/// Bytes that a pass gives back at the most, so that a pool that is filled and emptied in turn does not keep
/// the back end busy.
const PASS: u64 = 1 << 30;
/// Bytes that a step counts for at the least, even if it has found all pages empty.
const MIN_STEP: u64 = 64 << 10;
/// Records that are looked at before the clock is read again.
const RECORDS_PER_STEP: u32 = 256;
/// Bytes that must be free where the pool lies: otherwise touching a page without memory may end the back
/// end.
const MIN_FREE: u64 = 1 << 20;

/// The reclaimer of one pool.
pub struct Reclaimer {
    file: OwnedFd,
    /// Bytes that this pass may still give back.
    left: u64,
    is_impossible: bool,
    census: Census,
    cursor: reclaim::Cursor,
    given_back: Arc<AtomicU64>,
}

impl Reclaimer {
    /// The reclaimer of the pool in this file. `given_back` counts the bytes that were given back.
    pub fn new(file: OwnedFd, given_back: Arc<AtomicU64>) -> Reclaimer {
        Reclaimer {
            file,
            left: PASS,
            is_impossible: false,
            census: Census::default(),
            cursor: reclaim::Cursor::default(),
            given_back,
        }
    }
}

impl Task for Reclaimer {
    fn has_memory(&self, joined: &JoinedPool<OwnedHandle>) -> bool {
        let free = joined.handle.free_memory();
        joined.handle.is_reserved() || free.is_none_or(|free| free > MIN_FREE)
    }

    fn tick(&mut self, c: &Ctx) {
        vacate(&mut self.census, c);
    }

    /// Gives some memory back.
    fn step(&mut self, c: &Ctx) -> bool {
        if self.is_impossible {
            return false;
        }
        let data = |at, len| data(self.file.as_fd(), at, len);
        match reclaim::step(c, STEP, &mut self.cursor, data) {
            Ok(reclaim::Step::Emptied(bytes)) => {
                self.given_back.fetch_add(bytes, Relaxed);
                self.left = self.left.saturating_sub(bytes.max(MIN_STEP));
            }
            Ok(reclaim::Step::Impossible) => (self.is_impossible, self.left) = (true, 0),
            Ok(reclaim::Step::Nothing) | Err(_) => self.left = 0,
        }
        let goes_on = self.left > 0;
        if !goes_on {
            self.left = PASS;
        }
        goes_on
    }
}

/// The task that only frees the entries of dead members.
impl Task for Census {
    fn tick(&mut self, c: &Ctx) {
        vacate(self, c);
    }
}

/// Frees the entries of dead members that nothing in the pool names any more; goes on where the last pass
/// stopped.
fn vacate(census: &mut Census, c: &Ctx) {
    let begun = Instant::now();
    while c.pool.dead_members() != 0 && begun.elapsed() < MAX_PASS / 4 {
        if census.step(c, RECORDS_PER_STEP).is_some() {
            return;
        }
    }
}

/// The offset of the first data in a range of a file; `None`: all of it is a hole.
fn data(file: BorrowedFd<'_>, at: u64, len: u64) -> Option<u64> {
    use rustix::fs::{seek, SeekFrom};
    match seek(file, SeekFrom::Data(at)) {
        Ok(from) => (from < at + len).then_some(from),
        Err(rustix::io::Errno::NXIO) => None,
        // Unknown: all of it may be data.
        Err(_) => Some(at),
    }
}
