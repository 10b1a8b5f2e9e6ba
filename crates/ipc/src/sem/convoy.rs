//! Lock convoys, and how they come to an end.
//!
//! A semaphore that is a lock may find its holder preempted, and everybody else in the queue. From then on
//! each V hands it to the first who waits, as it must, and who has just let it go stands behind all others at
//! its next P. So nobody gets it any more without being woken, though it is held for a moment only.
//!
//! Waiters that stand in the queue keep their order. But who comes back to a semaphore that it has just
//! handed over need not stand behind them at once: it gives way for a while, *unregistered*, as one that has
//! not called yet. If all do so, the queue empties, and the semaphore is free again. A token that goes round
//! is waited for elsewhere than it was given, so nobody gives way for its sake.

use super::set::{Set, SLOW};
use super::waiter::blocks;
use super::{Attempt, Sembuf};
use crate::{Ctx, Errno};
use core::time::Duration;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::atomic::{AtomicU32, AtomicU64};
use vshmem_pool::pair::Pair;

/// How long others are given way,
const LONG: Duration = Duration::from_millis(2);
/// and so often at least: busy processors may be back late.
const OFTEN: u32 = 4;
/// After so many times in vain as many returns are not tried; after each further time twice as many,
const FEWEST: u32 = 1;
/// up to this.
const MOST: u32 = 16;
/// Looks at the semaphore between two times that the processor is left to others.
const LOOKS: u32 = 20;

/// What a process knows of convoys. Only hints, so they serve all pools and threads.
static KNOWN: Known = Known::new();

struct Known {
    /// The semaphore that was changed last while others waited for it; 0: none.
    joined: AtomicU64,
    /// How many returns are not tried after the next time in vain.
    vain: AtomicU32,
    /// How many are not tried now.
    skipped: AtomicU32,
}

impl Known {
    const fn new() -> Known {
        Known { joined: AtomicU64::new(0), vain: AtomicU32::new(FEWEST), skipped: AtomicU32::new(0) }
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
        self.vain.store(FEWEST, Relaxed);
    }

    fn was_in_vain(&self) {
        let vain = self.vain.load(Relaxed);
        self.skipped.store(vain, Relaxed);
        self.vain.store((vain * 2).min(MOST), Relaxed);
    }
}

fn name(set: &Set, num: u16) -> u64 {
    set.id as u32 as u64 | (num as u64) << 32
}

/// The caller has changed a semaphore of a set that others wait for.
pub fn joined(set: &Set, num: u16) {
    KNOWN.joined.store(name(set, num), Relaxed);
}

/// Operations that all name one semaphore, `sop` first, are blocked, or were a moment ago. Does the caller
/// come back with them to the semaphore that it has handed over, and did an `attempt` at them succeed when it
/// had given others way?
pub fn outwaited(
    c: &Ctx,
    set: &Set,
    cell: &Pair,
    sop: Sembuf,
    timeout: Option<Duration>,
    attempt: impl FnMut() -> Result<Attempt, Errno>,
) -> Result<bool, Errno> {
    let waits = blocks(cell.lo.load(Relaxed), sop) && timeout != Some(Duration::ZERO);
    if !waits || !KNOWN.is_back(name(set, sop.num)) {
        return Ok(false);
    }
    Ok(match outwait(c, cell, sop, timeout, attempt)? {
        End::Performed => {
            KNOWN.was_worth_it();
            true
        }
        End::InVain => {
            KNOWN.was_in_vain();
            false
        }
        End::NotHere => false,
    })
}

/// How giving way ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The operations were performed.
    Performed,
    /// Time is up.
    InVain,
    /// They are possible, or not, for reasons that are looked for elsewhere.
    NotHere,
}

/// Gives way until the queue is empty and an attempt succeeds.
fn outwait(
    c: &Ctx,
    cell: &Pair,
    sop: Sembuf,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> Result<Attempt, Errno>,
) -> Result<End, Errno> {
    let (long, often) = timeout.filter(|t| *t < LONG).map_or((LONG, OFTEN), |t| (t, 1));
    let begun = c.kernel.monotonic();
    let mut times = 0;
    while c.kernel.give_way() {
        times += 1;
        if c.kernel.is_child_of(c.pid) {
            return Err(Errno::EINTR);
        }
        for _ in 0..LOOKS {
            let lo = cell.lo.load(Relaxed);
            if lo & SLOW == 0 {
                match attempt()? {
                    Attempt::Done => return Ok(End::Performed),
                    Attempt::Slow if cell.lo.load(Relaxed) & SLOW == 0 => return Ok(End::NotHere),
                    Attempt::Slow | Attempt::Blocked(_) => {}
                }
            } else if !blocks(lo, sop) {
                // Those who wait want something else.
                return Ok(End::NotHere);
            }
            c.kernel.spinning();
        }
        if times >= often && c.kernel.monotonic().saturating_sub(begun) > long.as_nanos() as u64 {
            break;
        }
    }
    Ok(End::InVain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem::{self, fast, op};
    use crate::testing::{until, World};
    use crate::tests::sem::{self as calls, set_of, undone, TAKE};

    fn is_slow(c: &Ctx, id: i32) -> bool {
        set_at(c, id).cell(c, 0).unwrap().lo.load(Relaxed) & SLOW != 0
    }

    fn set_at(c: &Ctx, id: i32) -> Set {
        Set::at(c, c.pool.ids().index(id)).unwrap()
    }

    /// Tries to take the semaphore, which somebody waits for, while others do `meanwhile` as often as they
    /// are given way. How that ends, and how often that was.
    fn come_back(meanwhile: impl Fn(&Ctx, i32, u32) + Send + Sync + 'static, take: Sembuf) -> (End, u32) {
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
        let end = outwait(c, cell, take, None, || fast::attempt(c, &set, cell, &[take])).unwrap();
        waiter.kill();
        drop(task);
        (end, times.load(Relaxed))
    }

    #[test]
    fn who_comes_back_gets_it_after_all_who_wait() {
        let give = [calls::op(0, 1)];
        let twice = move |c: &Ctx, id, time| {
            // The first is for the one who waits.
            if time == 1 || time == 3 {
                op(c, id, &give, None).unwrap();
            }
        };
        assert_eq!(come_back(twice, TAKE[0]), (End::Performed, 4));
        assert_eq!(come_back(twice, undone(0, -1)), (End::Performed, 4));
    }

    #[test]
    fn giving_way_ends() {
        let (end, times) = come_back(|_, _, _| {}, TAKE[0]);
        assert!(end == End::InVain && times >= OFTEN, "nobody gives it");
        // The one who waits wants nothing of what is there now.
        let not_enough = calls::op(0, 0);
        assert_eq!(come_back(|_, _, _| {}, not_enough), (End::NotHere, 1));
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
