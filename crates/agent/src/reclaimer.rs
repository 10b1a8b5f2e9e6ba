//! What the back end does in a pool besides cleaning up after processes: it gives back the entries of machines that died, and memory to
//! the host that machines can't.
//!
//! All of it is done in steps, under locks for which it waits some milliseconds at the most; what can't be done now is tried again in
//! the next second.

use crate::kernel::Below;
use crate::mapped::Mapped;
use crate::reaper::SHORT;
use crate::worker::Duty;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;
use vshmem_ipc::census::Census;
use vshmem_ipc::{reclaim, Ctx};

/// What is emptied under the pool's lock at once: a fraction of a millisecond.
const AT_ONCE: u64 = 2 << 20;
/// What is emptied in a second, lest a pool that is used and emptied by turns keeps the back end busy.
const A_SECOND: u64 = 1 << 30;
/// What a step counts for, that found everything empty already.
const LEAST: u64 = 64 << 10;
/// Records that are looked at between looks at the clock.
const RECORDS_AT_ONCE: u32 = 256;
/// There must be more free than this where the pool lies, lest the back end dies of touching what has no memory.
const ROOM: u64 = 1 << 20;

/// The back end's part in one pool.
pub struct Reclaimer {
    file: OwnedFd,
    left: u64,
    impossible: bool,
    census: Census,
    cursor: reclaim::Cursor,
    given_back: Arc<AtomicU64>,
}

impl Reclaimer {
    /// For a pool that lies in this file. `given_back` counts bytes that were given back to the host.
    pub fn new(file: OwnedFd, given_back: Arc<AtomicU64>) -> Reclaimer {
        Reclaimer {
            file,
            left: A_SECOND,
            impossible: false,
            census: Census::default(),
            cursor: reclaim::Cursor::default(),
            given_back,
        }
    }
}

impl Duty for Reclaimer {
    fn has_room(&self, below: &Below<Mapped>) -> bool {
        let room = below.handle.free_memory();
        below.handle.is_reserved() || room.is_none_or(|room| room > ROOM)
    }

    fn tick(&mut self, c: &Ctx) {
        vacate(&mut self.census, c);
    }

    /// Gives some memory back.
    fn step(&mut self, c: &Ctx) -> bool {
        if self.impossible {
            return false;
        }
        let data = |at, len| data(self.file.as_fd(), at, len);
        match reclaim::step(c, AT_ONCE, &mut self.cursor, data) {
            Ok(reclaim::Step::Emptied(bytes)) => {
                self.given_back.fetch_add(bytes, Relaxed);
                // What was empty already costs a step, too.
                self.left = self.left.saturating_sub(bytes.max(LEAST));
            }
            Ok(reclaim::Step::Impossible) => (self.impossible, self.left) = (true, 0),
            Ok(reclaim::Step::Nothing) | Err(_) => self.left = 0,
        }
        let goes_on = self.left > 0;
        if !goes_on {
            self.left = A_SECOND;
        }
        goes_on
    }
}

/// Only giving back the entries of members that died.
impl Duty for Census {
    fn tick(&mut self, c: &Ctx) {
        vacate(self, c);
    }
}

/// Gives back the entries of dead members that nothing names any more; counting goes on where it stopped in the last second.
fn vacate(census: &mut Census, c: &Ctx) {
    let begun = Instant::now();
    while c.pool.dead_members() != 0 && begun.elapsed() < SHORT / 4 {
        if census.step(c, RECORDS_AT_ONCE).is_some() {
            return;
        }
    }
}

/// The first memory of a range of a file; `None`: there is only a hole.
fn data(file: BorrowedFd<'_>, at: u64, len: u64) -> Option<u64> {
    use rustix::fs::{seek, SeekFrom};
    match seek(file, SeekFrom::Data(at)) {
        Ok(from) => (from < at + len).then_some(from),
        Err(rustix::io::Errno::NXIO) => None,
        // What can't be told may be all of it.
        Err(_) => Some(at),
    }
}
