//! What the back end does in a pool as one of its processes: it cleans up after processes of the host and machines that died, down to
//! the machines' entries among the members, and gives memory back to the host that machines can't.
//!
//! All of it is done in steps, between which the loop looks after everybody else, and under locks for which it waits some milliseconds
//! at the most; what can't be done now is tried again in the next second.

use crate::attendant::{Attendant, SHORT};
use crate::kernel::Below;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use vshmem_ipc::census::Census;
use vshmem_ipc::{reclaim, Ctx};
use vshmem_pool::Pool;
use vshmem_port::Handle;

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

/// The pool that is cared for.
pub struct Place<'a> {
    /// Its memory.
    pub pool: &'a Pool,
    /// And what can be done with it.
    pub handle: &'a Handle,
    /// Its file.
    pub file: BorrowedFd<'a>,
    /// The host, in the pool's member table.
    pub host: u16,
}

/// The back end's part in one pool.
#[derive(Default)]
pub struct Caretaker {
    attendant: Attendant,
    left: u64,
    impossible: bool,
    census: Census,
    cursor: reclaim::Cursor,
    /// Bytes that were given back to the host since this back end began.
    pub given_back: u64,
}

impl Caretaker {
    /// A new second.
    pub fn tick(&mut self, place: &Place) {
        self.left = if self.impossible { 0 } else { A_SECOND };
        let below = below(place);
        let Some(me) = self.attendant.take_part(&below) else {
            self.left = 0;
            return;
        };
        let room = place.handle.statfs_room();
        if place.handle.is_reserved() || room.is_none_or(|room| room > ROOM) {
            let c = below.context(me);
            self.attendant.clean_up(&c);
            vacate(&mut self.census, &c);
        }
    }

    /// Is there something to do in this second?
    pub fn is_busy(&self) -> bool {
        self.left > 0
    }

    /// Gives some memory back.
    pub fn step(&mut self, place: &Place) {
        let Some(me) = self.attendant.me() else {
            self.left = 0;
            return;
        };
        let below = below(place);
        let data = |at, len| data(place.file, at, len);
        match reclaim::step(&below.context(me), AT_ONCE, &mut self.cursor, data) {
            Ok(reclaim::Step::Emptied(bytes)) => {
                self.given_back += bytes;
                // What was empty already costs a step, too.
                self.left = self.left.saturating_sub(bytes.max(LEAST));
            }
            Ok(reclaim::Step::Impossible) => (self.impossible, self.left) = (true, 0),
            Ok(reclaim::Step::Nothing) | Err(_) => self.left = 0,
        }
    }

    /// Gives the slot back.
    pub fn leave(&mut self, pool: &Pool) {
        self.attendant.leave(pool);
    }
}

/// Gives back the entries of dead members that nothing names any more; counting goes on where it stopped in the last second.
pub fn vacate(census: &mut Census, c: &Ctx) {
    let begun = Instant::now();
    while c.pool.dead_members() != 0 && begun.elapsed() < SHORT / 4 {
        if census.step(c, RECORDS_AT_ONCE).is_some() {
            return;
        }
    }
}

fn below<'a>(place: &Place<'a>) -> Below<&'a Handle> {
    Below::for_a_loop(place.handle, *place.pool, place.host)
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
