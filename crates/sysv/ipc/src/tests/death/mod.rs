//! Deaths: a process is killed at each of its calls to the kernel in turn, in the middle of whatever it does
//! there. What it did must have happened or not, never half, and nobody else may be held up.

mod queues;
mod segments;
mod sets;

use crate::testing::{World, LONGEST_TEST};
use crate::tests::msg::queue;
use crate::tests::sem::set_of;
use crate::{msg, sem, Ctx, Errno, IPC_CREAT};
use core::time::Duration;
use std::time::Instant;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, PAGE};

const KEY: i32 = 4711;

/// Runs `act` in a process that is killed at its n-th call, for every n until it gets through (and is killed
/// then), each time on a fresh pool; `check` gets what `act` returned, if it did.
pub fn at_every_call<S: Copy + Send + 'static, T: Send + 'static>(
    setup: impl Fn(&World) -> S,
    act: impl Fn(&Ctx, S) -> T + Copy + Send + 'static,
    check: impl Fn(&World, S, Option<T>),
) {
    for n in 1..200 {
        let world = World::new(4 << 20);
        let state = setup(&world);
        let victim = world.process();
        victim.kill_at_call(n);
        let result = victim.start(move |c| act(c, state)).result_or_death();
        victim.kill();
        let finished = result.is_some();
        let begin = Instant::now();
        check(&world, state, result);
        // Taking over needs a moment, not the patience that is for owners who live.
        assert!(begin.elapsed() < LONGEST_TEST / 8, "killed at call {n}: took too long");
        if finished {
            assert!(n > 1, "it was never killed in the middle");
            return;
        }
    }
    panic!("it makes too many calls");
}

/// Blocks of the small heap and pages that are free, or would be if it had not grown.
pub fn free(world: &World) -> (u64, u64) {
    let (g, end) = (world.pool().geometry(), world.pool().root().small_end.load(Relaxed));
    let grown = u64::from(g.small.count) - end;
    let free = [g.small, g.pages].map(|heap| heap.free_blocks(world.pool()));
    (free[0] + grown, free[1] - grown * g.small.block() / PAGE)
}

/// Cleans up as a process that finds no room does, and says what is free then.
pub fn free_after_all(world: &World) -> (u64, u64) {
    let last = world.process();
    let signals = vshmem_pool::lock::SignalsBlocked::new(last.ctx().kernel);
    crate::liveness::free_up(&last.ctx(), &signals);
    drop(signals);
    free(world)
}

/// An entry that is free may be another's in the next moment, and what its process notes of it is about that.
#[test]
fn who_removes_has_forgotten_it_when_the_entry_is_free() {
    let is_forgotten = |w: &World, kind: Kind| {
        let pool = w.pool();
        let is_free = |index| pool.head(kind, index).unwrap().id.load(Relaxed) == 0;
        let mut touched = (0..8).flat_map(|slot| &pool.proc(slot).unwrap().touched);
        pool.root().lock.load(Relaxed) != 0
            || touched.all(|t| t.load(Relaxed) != kind.reference(0) || !is_free(0))
    };
    // As if somebody waited, who has to be woken as soon as the lock is free.
    let contend = |w: &World| w.pool().root().lock.store(1 << 31, Relaxed);
    at_every_call(
        |w| (set_of(&w.process().ctx(), &[5]), contend(w)).0,
        sem::remove,
        |w, _, _| assert!(is_forgotten(w, Kind::Sem)),
    );
    at_every_call(
        |w| (queue(&w.process().ctx()), contend(w)).0,
        msg::remove,
        |w, _, _| assert!(is_forgotten(w, Kind::Msg)),
    );
}

/// Somebody holds a lock for a minute.
#[test]
fn a_lock_is_waited_for_while_its_owner_is_stopped() {
    const MINUTE: Duration = Duration::from_secs(60);
    const FASTER: u32 = 500;
    let ends = |stopped: bool, signal: bool| {
        let world = World::new(4 << 20);
        let (owner, other) = (world.process(), world.process());
        let ctx = owner.ctx();
        let signals = vshmem_pool::lock::SignalsBlocked::new(ctx.kernel);
        let guard = crate::directory::lock(&ctx, &signals);
        world.hurry(FASTER);
        owner.seems_stopped(stopped);
        let call = other.start(move |c| msg::get(c, KEY, IPC_CREAT | 0o600).map(drop));
        if signal {
            other.signal();
        }
        if stopped && !signal {
            std::thread::sleep(MINUTE / FASTER);
            drop(guard);
            return call.result();
        }
        // The lock stays held until the call has ended, however late its thread gets to run.
        let result = call.result();
        drop(guard);
        result
    };
    assert_eq!(ends(false, false), Err(Errno::EIDRM), "it would wait for ever for one that hangs");
    assert_eq!(ends(true, false), Ok(()));
    assert_eq!(ends(true, true), Err(Errno::EINTR));
    assert_eq!(ends(false, true), Err(Errno::EINTR));
}
