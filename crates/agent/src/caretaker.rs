//! What the back end does in a pool as one of its processes: it gives memory back to the host that machines can't, and cleans up after
//! machines that died, down to their entries among the members.
//!
//! All of it is done in steps, between which the loop looks after everybody else, and under locks for which it waits some milliseconds
//! at the most; what can't be done now is tried again in the next second.

use crate::kernel::Below;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use vshmem_ipc::census::Census;
use vshmem_ipc::{life, reclaim, Ctx};
use vshmem_pool::layout::Proc;
use vshmem_pool::{Pool, ProcId};
use vshmem_port::{Handle, Life};

/// What is emptied under the pool's lock at once: a fraction of a millisecond.
const AT_ONCE: u64 = 2 << 20;
/// What is emptied in a second, lest a pool that is used and emptied by turns keeps the back end busy.
const A_SECOND: u64 = 1 << 30;
/// What a step counts for, that found everything empty already.
const LEAST: u64 = 64 << 10;
/// How long cleaning up may take.
const SHORT: Duration = Duration::from_millis(20);
/// Process slots that are looked at in a second.
const SLOTS_AT_ONCE: u32 = 1024;
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
    me: Option<(ProcId, Life)>,
    left: u64,
    impossible: bool,
    slot: u32,
    slots_backed: u32,
    spare_backed: bool,
    census: Census,
    /// Bytes that were given back to the host since this back end began.
    pub given_back: u64,
}

impl Caretaker {
    /// A new second.
    pub fn tick(&mut self, place: &Place) {
        self.left = if self.impossible { 0 } else { A_SECOND };
        let below = Below::new(place.handle, place.pool, place.host);
        let Some(me) = self.take_part(place, &below) else {
            self.left = 0;
            return;
        };
        if place.handle.statfs_room().is_none_or(|room| room > ROOM) {
            let c = context(place, &below, me);
            self.clean_up(&c);
            self.count(&c);
        }
    }

    /// Is there something to do in this second?
    pub fn is_busy(&self) -> bool {
        self.left > 0
    }

    /// Gives some memory back.
    pub fn step(&mut self, place: &Place) {
        let Some((me, _)) = self.me else {
            self.left = 0;
            return;
        };
        let below = Below::new(place.handle, place.pool, place.host);
        let data = |at, len| data(place.file, at, len);
        match reclaim::step(&context(place, &below, me), AT_ONCE, data) {
            Ok(reclaim::Step::Emptied(bytes)) => {
                self.given_back += bytes;
                // What was empty already costs a step, too.
                self.left = self.left.saturating_sub(bytes.max(LEAST));
            }
            Ok(reclaim::Step::Impossible) => (self.impossible, self.left) = (true, 0),
            Ok(reclaim::Step::Nothing) | Err(_) => self.left = 0,
        }
    }

    /// Takes a process slot of the pool, if there is one.
    fn take_part(&mut self, place: &Place, below: &Below) -> Option<ProcId> {
        if let Some((me, _)) = self.me {
            // A machine that scribbles may have taken it away.
            if place
                .pool
                .process(me.slot)
                .is_some_and(|(now, _, _)| now == me)
            {
                return Some(me);
            }
            self.leave(place.pool);
        }
        let mut life = None;
        let mut claim = |slot| {
            end(life.take());
            life = place.handle.claim_life(slot);
            life.is_some()
        };
        let pid = std::process::id();
        let me = place
            .pool
            .claim_process(below, place.host, pid, 0, &mut claim);
        match (me, life) {
            (Some(me), Some(life)) => {
                self.me = Some((me, life));
                Some(me)
            }
            (_, life) => {
                end(life);
                None
            }
        }
    }

    /// Takes from the pool what processes of dead machines have there: some slots at a time, of those that were ever used and the spare
    /// one.
    fn clean_up(&mut self, c: &Ctx) {
        let slots = c.pool.proc_slots();
        let high = c.pool.root().proc_high.load(Relaxed).min(slots);
        if !self.back_slots(c, high) {
            return;
        }
        let begun = Instant::now();
        for _ in 0..=SLOTS_AT_ONCE.min(high) {
            self.slot = if self.slot > high { 0 } else { self.slot };
            let spare = self.slot == high;
            life::bury(
                c,
                if spare {
                    c.pool.spare_slot()
                } else {
                    self.slot
                },
            );
            self.slot += 1;
            if begun.elapsed() > SHORT {
                return;
            }
        }
    }

    /// Sees to it that the slots that are looked at have memory.
    fn back_slots(&mut self, c: &Ctx, high: u32) -> bool {
        const EACH: u64 = size_of::<Proc>() as u64;
        let table = c.pool.geometry().procs.0;
        let back = |from: u32, to: u32| {
            let len = u64::from(to - from) * EACH;
            c.kernel.reserve(table + u64::from(from) * EACH, len)
        };
        let spare = c.pool.spare_slot();
        self.spare_backed = self.spare_backed || back(spare, spare + 1);
        if high > self.slots_backed && back(self.slots_backed, high) {
            self.slots_backed = high;
        }
        self.spare_backed && self.slots_backed >= high
    }

    /// Gives back the entries of dead members that nothing names any more; counting goes on where it stopped in the last second.
    fn count(&mut self, c: &Ctx) {
        let begun = Instant::now();
        while c.pool.dead_members() != 0 && begun.elapsed() < SHORT / 4 {
            if self.census.step(c, RECORDS_AT_ONCE).is_some() {
                return;
            }
        }
    }

    /// Gives the slot back.
    pub fn leave(&mut self, pool: &Pool) {
        if let Some((me, life)) = self.me.take() {
            pool.free_process(me);
            end(Some(life));
        }
    }
}

fn context<'a>(place: &'a Place, below: &'a Below, me: ProcId) -> Ctx<'a> {
    Ctx {
        pool: place.pool,
        kernel: below,
        me,
        pid: std::process::id(),
        member: place.host,
    }
}

fn end(life: Option<Life>) {
    if let Some(life) = life {
        // SAFETY: claimed by this process, for a slot that it does not have, or has no more.
        unsafe { life.end() };
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
