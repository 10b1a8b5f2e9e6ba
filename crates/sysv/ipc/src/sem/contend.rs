//! Contention for one semaphore: a caller waits *unregistered*, as if it had not called yet, before it stands
//! in the queue.
//!
//! # Why not at once
//! A semaphore that somebody waits for in the queue is handed over by each V, as it must be, and the process
//! that it is handed to may have to be woken first. A lock is held for less time than that takes. So if those
//! that want it stood in the queue at once, or as soon as one of them does, nobody would get it without being
//! woken any more: the one that lets it go comes back and stands behind all others (a lock convoy). To begin
//! with, a holder that was preempted is enough, or one of many processors that was unlucky for long.
//!
//! Those that stand in the queue keep their order. Others wait until the queue is empty:
//! * They *spin* for as long as is worth it ([`Kernel::spin_rounds`](vshmem_pool::Kernel::spin_rounds)).
//! * If the semaphore has changed hands meanwhile, or the caller has just handed it over itself, it will be
//!   free again soon. Then they *give way* for a while: between looks they leave the processor to others.
//!   Where only the latter is known, that is tried less often once it was in vain.
//!
//! A token that goes round is waited for elsewhere than it was given, so nobody gives way for its sake.

use super::set::{Set, SLOW};
use super::waiter::blocks;
use super::{Attempt, Sembuf};
use crate::give_way::give_way;
use crate::{Ctx, Errno};
use core::ops::ControlFlow;
use core::time::Duration;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::atomic::{AtomicU32, AtomicU64};
use vshmem_pool::pair::Pair;
use vshmem_pool::tuning::{MOST_RETURNS_SKIPPED, RETURNS_SKIPPED};

/// A process's knowledge of convoys. Only hints, so they serve all pools and threads.
static KNOWN: Known = Known::new();

struct Known {
    /// The semaphore that was changed last while others waited for it; 0: none.
    joined: AtomicU64,
    /// The number of returns that are not tried after the next time in vain.
    vain: AtomicU32,
    /// The number of further returns that are not tried now.
    skipped: AtomicU32,
}

impl Known {
    const fn new() -> Known {
        Known { joined: AtomicU64::new(0), vain: AtomicU32::new(RETURNS_SKIPPED), skipped: AtomicU32::new(0) }
    }

    /// Is this the semaphore that was handed over, and is it worth it to give way?
    fn is_back(&self, semaphore: u64) -> bool {
        if self.joined.load(Relaxed) != semaphore {
            return false;
        }
        self.joined.store(0, Relaxed);
        let skipped = self.skipped.load(Relaxed);
        self.skipped.store(skipped.saturating_sub(1), Relaxed);
        skipped == 0
    }

    fn was_worth_it(&self) {
        self.vain.store(RETURNS_SKIPPED, Relaxed);
    }

    fn was_in_vain(&self) {
        let vain = self.vain.load(Relaxed);
        self.skipped.store(vain, Relaxed);
        self.vain.store((vain * 2).min(MOST_RETURNS_SKIPPED), Relaxed);
    }
}

fn name(set: &Set, num: u16) -> u64 {
    set.id as u32 as u64 | (num as u64) << 32
}

/// The caller has changed a semaphore of a set that others wait for.
pub fn joined(set: &Set, num: u16) {
    KNOWN.joined.store(name(set, num), Relaxed);
}

/// The outcome of a look at the semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The operations were performed.
    Performed,
    /// The operations are blocked, or others come first.
    Wait,
    /// The operations are possible, or not, for reasons that are looked for under the lock.
    NotHere,
}

/// A semaphore that is waited for.
struct Wanted<'a, A> {
    c: &'a Ctx<'a>,
    set: &'a Set,
    cell: &'a Pair,
    /// The first operation of those that name it.
    sop: Sembuf,
    /// Performs all of them, if that is possible now.
    attempt: A,
}

/// Operations that all name one semaphore, `sop` first, and wait, are blocked; its word was `seen`. Did an
/// `attempt` at them succeed before it was time to stand in the queue?
pub fn wait(
    c: &Ctx,
    set: &Set,
    cell: &Pair,
    sop: Sembuf,
    timeout: Option<Duration>,
    seen: u64,
    attempt: impl FnMut() -> Result<Attempt, Errno>,
) -> Result<bool, Errno> {
    let mut wanted = Wanted { c, set, cell, sop, attempt };
    let (look, moved) = wanted.spin(seen)?;
    if look != Look::Wait {
        return Ok(look == Look::Performed);
    }
    if !moved && !KNOWN.is_back(name(set, sop.num)) {
        return Ok(false);
    }
    let look = wanted.give_way(timeout)?;
    match look {
        Look::Performed => {
            KNOWN.was_worth_it();
            c.kernel.spun(true);
        }
        Look::Wait => KNOWN.was_in_vain(),
        Look::NotHere => {}
    }
    Ok(look == Look::Performed)
}

impl<A: FnMut() -> Result<Attempt, Errno>> Wanted<'_, A> {
    /// Looks at the semaphore, whose word is `lo` now.
    fn look(&mut self, lo: u64) -> Result<Look, Errno> {
        if lo & SLOW == 0 {
            match (self.attempt)()? {
                Attempt::Done => return Ok(Look::Performed),
                Attempt::Blocked(_) => return Ok(Look::Wait),
                Attempt::Slow => {}
            }
        }
        Ok(if self.is_for_others() { Look::Wait } else { Look::NotHere })
    }

    /// Do the others that fast paths are kept off for come first? Not if there is what the caller wants, and
    /// nobody has the lock who might be about to give it to them.
    fn is_for_others(&self) -> bool {
        let lo = self.cell.lo.load(Acquire);
        let is_slow = lo & SLOW != 0;
        blocks(lo, self.sop)
            || is_slow && self.set.entry.lock.load(Acquire) != 0
            || self.cell.lo.load(Relaxed) != lo
    }

    /// Spins as long as that is worth it. How it ends, and whether the semaphore has changed hands.
    fn spin(&mut self, first: u64) -> Result<(Look, bool), Errno> {
        let rounds = self.c.kernel.spin_rounds();
        let mut seen = first;
        for _ in 0..rounds.max(self.c.kernel.glance()) {
            let lo = self.cell.lo.load(Relaxed);
            if lo != seen {
                seen = lo;
                let look = self.look(lo)?;
                if look == Look::Performed {
                    self.c.kernel.spun(true);
                }
                if look != Look::Wait {
                    return Ok((look, true));
                }
            }
            self.c.kernel.spinning();
        }
        if rounds > 0 {
            self.c.kernel.spun(false);
        }
        Ok((Look::Wait, seen != first))
    }

    /// Gives way until the queue is empty and an attempt succeeds, or time is up.
    fn give_way(&mut self, timeout: Option<Duration>) -> Result<Look, Errno> {
        let (c, cell) = (self.c, self.cell);
        let watched = || cell.lo.load(Relaxed);
        let look = || match self.look(watched())? {
            Look::Wait => Ok(ControlFlow::Continue(())),
            look => Ok(ControlFlow::Break(look)),
        };
        Ok(give_way(c, timeout, watched, look)?.unwrap_or(Look::Wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem::{self, fast, op};
    use crate::testing::{until, World};
    use crate::tests::sem::{self as calls, set_of, undone, TAKE};
    use vshmem_pool::tuning::FEWEST_GIVE_WAYS;

    fn is_slow(c: &Ctx, id: i32) -> bool {
        set_at(c, id).cell(c, 0).unwrap().lo.load(Relaxed) & SLOW != 0
    }

    fn set_at(c: &Ctx, id: i32) -> Set {
        Set::at(c, c.pool.ids().index(id)).unwrap()
    }

    /// Tries to take the semaphore, which somebody waits for, while others do `meanwhile` as often as they
    /// are given way. How that ends, and how often that was.
    fn come_back(meanwhile: impl Fn(&Ctx, i32, u32) + Send + Sync + 'static, take: Sembuf) -> (Look, u32) {
        let world = World::new(1 << 20);
        let (back, waiter, other) = (world.process(), world.process(), world.process());
        let c = &back.ctx();
        let id = set_of(c, &[0]);
        let task = waiter.start(move |c| op(c, id, &TAKE, None));
        until("it waits", || is_slow(c, id));
        let times = std::sync::Arc::new(AtomicU32::new(0));
        let counted = times.clone();
        back.when_it_gives_way(move || {
            let ctx = other.ctx();
            meanwhile(&ctx, id, counted.fetch_add(1, Relaxed));
            assert_eq!(sem::getncnt(&ctx, id, 0).unwrap(), i32::from(is_slow(&ctx, id)), "it stands nowhere");
        });
        let set = set_at(c, id);
        let cell = set.cell(c, 0).unwrap();
        let attempt = || fast::attempt(c, &set, cell, &[take]);
        let end = Wanted { c, set: &set, cell, sop: take, attempt }.give_way(None).unwrap();
        waiter.kill();
        drop(task);
        (end, times.load(Relaxed))
    }

    #[test]
    fn who_comes_back_gets_it_after_all_who_wait() {
        let give = [calls::op(0, 1)];
        let twice = move |c: &Ctx, id, time| {
            // The first is for the waiter.
            if time == 1 || time == 3 {
                op(c, id, &give, None).unwrap();
            }
        };
        assert_eq!(come_back(twice, TAKE[0]), (Look::Performed, 4));
        assert_eq!(come_back(twice, undone(0, -1)), (Look::Performed, 4));
    }

    /// A process that serves the queue raises the semaphore first, and lowers it again for the waiter.
    #[test]
    fn what_is_there_while_somebody_serves_is_for_those_who_wait() {
        let world = World::new(1 << 20);
        let (process, waiter) = (world.process(), world.process());
        let c = &process.ctx();
        let id = set_of(c, &[0]);
        let task = waiter.start(move |c| op(c, id, &TAKE, None));
        until("it waits", || is_slow(c, id));
        let set = set_at(c, id);
        let cell = set.cell(c, 0).unwrap();
        let attempt = || fast::attempt(c, &set, cell, &TAKE);
        let mut wanted = Wanted { c, set: &set, cell, sop: TAKE[0], attempt };
        let mut look = || wanted.look(cell.lo.load(Relaxed)).unwrap();
        set.entry.lock.store(1, Relaxed);
        assert_eq!(look(), Look::Wait);
        cell.lo.fetch_add(1, Relaxed);
        assert_eq!(look(), Look::Wait, "somebody is at work");
        set.entry.lock.store(0, Relaxed);
        assert_eq!(look(), Look::NotHere, "nobody wants it");
        waiter.kill();
        drop(task);
    }

    #[test]
    fn giving_way_ends() {
        let (end, times) = come_back(|_, _, _| {}, TAKE[0]);
        assert!(end == Look::Wait && times >= FEWEST_GIVE_WAYS, "nobody gives it");
        // The waiter wants nothing of what is there now.
        let not_enough = calls::op(0, 0);
        assert_eq!(come_back(|_, _, _| {}, not_enough), (Look::NotHere, 1));
    }

    #[test]
    fn what_is_in_vain_is_tried_less_often() {
        let known = Known::new();
        let back = |semaphore| {
            known.joined.store(7, Relaxed);
            known.is_back(semaphore)
        };
        assert!(!back(8), "another semaphore");
        assert!(known.is_back(7) && !known.is_back(7), "once");
        for skipped in [1, 2, 4, 8, 16, 16] {
            assert!(back(7));
            known.was_in_vain();
            assert!((0..skipped).all(|_| !back(7)));
        }
        assert!(back(7));
        known.was_worth_it();
        assert!(back(7));
        known.was_in_vain();
        assert!(!back(7) && back(7), "at once again");
    }
}
