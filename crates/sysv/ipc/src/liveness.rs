//! Process slots: taking one, cleaning up after dead processes, and leaving a pool.

use crate::{
    directory as dir, end_waits, msg, pid_word_in, reclaim, sem, shm, Budget, Ctx, Errno, Kernel, Pool,
    ProcId,
};
use vshmem_pool::atomic::{AtomicU32, Ordering::Relaxed};
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::{SLOT_LOOKS, SLOT_NAP};

/// Dead slots that a new process cleans up on its way in, at the most.
const REAPED_PER_CLAIM: u32 = 4;
/// Slots that it looks at for that: on either side of its own, and on a round through all.
const LOOKED_AT_NEARBY: usize = 8;
const LOOKED_AT_IN_TURN: u32 = 4;

/// A newcomer naps before it looks again whether a full pool has room.
pub fn nap(kernel: &dyn Kernel) {
    kernel.wait(&AtomicU32::new(0), 0, Some(SLOT_NAP));
}

/// Takes a process slot. Each new process also looks after a few others, so that the dead don't pile up.
/// `None`: no slot is free, or the caller must not wait here and has to look again.
pub fn claim(
    pool: &Pool,
    kernel: &dyn Kernel,
    member: u16,
    pid: u32,
    started: u64,
    claim: &mut dyn FnMut(u32) -> bool,
) -> Option<ProcId> {
    let budget = Budget::default();
    let as_me =
        |me| Ctx { pool, kernel, me, pid, namespace: (started >> 32) as u32, member, budget: budget.half() };
    for _ in 0..SLOT_LOOKS {
        if let Some(me) = pool.claim_process(kernel, &budget, member, pid, started, claim) {
            reap_some(&as_me(me), me.slot);
            return Some(me);
        }
        // Full: room is made from the spare slot, by one at a time.
        if let Some(spare) = pool.claim_spare(kernel, &budget, member, pid, started, claim) {
            reap_slots(&as_me(spare));
            let me = pool.claim_process(kernel, &budget, member, pid, started, claim);
            pool.free_process(spare);
            return me;
        }
        if budget.is_spent() || kernel.is_inside() {
            return None;
        }
        nap(kernel);
    }
    None
}

/// Cleans up after some of the dead. In the slots that are taken next, so that they are free by then; in
/// those that were taken last, for most children end before their parent forks again, and what they leave
/// makes each fork longer (lists of attachment records are walked); and in some for all others. Not in the
/// same ones each time: to look at a process that lives takes system calls. As newcomers' slots follow each
/// other, these go round, too; and they lie together, since memory that the process has not touched yet takes
/// as long as a system call.
fn reap_some(c: &Ctx, from: u32) {
    let high = c.pool.root().proc_high.load(Relaxed).clamp(1, c.pool.proc_slots());
    let mut reaped = 0;
    // Nobody's fork, nor anybody's first call, may wait for a process that is stopped somewhere else.
    let signals = SignalsBlocked::hurried(c.kernel);
    let next = (from.saturating_add(1)..high).take(LOOKED_AT_NEARBY);
    let last = (0..from.min(high)).rev().take(LOOKED_AT_NEARBY);
    let in_turn = (0..LOOKED_AT_IN_TURN).map(|i| from.wrapping_mul(LOOKED_AT_IN_TURN).wrapping_add(i) % high);
    for slot in next.chain(last).chain(in_turn) {
        if signals.has_failed() || reaped == REAPED_PER_CLAIM {
            return;
        }
        if reap_slot(c, &signals, slot) {
            reaped += 1;
        }
    }
}

/// A `*get` call: `try_get` and, if it found no memory or no entry free, once more after room was made.
pub fn with_room(c: &Ctx, try_get: impl Fn(&SignalsBlocked) -> Result<i32, Errno>) -> Result<i32, Errno> {
    let signals = SignalsBlocked::attentive(c.kernel);
    match try_get(&signals) {
        Err(Errno::ENOMEM | Errno::ENOSPC) if free_up(c, &signals) => {
            signals.nothing_changed();
            try_get(&signals)
        }
        result => result,
    }
}

/// Makes room: cleans up after every dead process, finishes what could not be removed before, and gives the
/// memory of free pages back to the host. Returns whether to try again.
pub fn free_up(c: &Ctx, signals: &SignalsBlocked) -> bool {
    let reaped =
        c.aside(|c| reap_all(c, signals) | sem::finish_removals(c) | msg::finish_removals(c, signals));
    reaped | c.apart(|c| reclaim::empty_all(c, signals))
}

/// Cleans up after every dead process. Returns whether there was one.
fn reap_all(c: &Ctx, signals: &SignalsBlocked) -> bool {
    shm::reap_pending_pages(c, signals) | shm::reap_removed(c, signals) | reap_slots(c)
}

fn reap_slots(c: &Ctx) -> bool {
    let high = c.pool.root().proc_high.load(Relaxed).min(c.pool.proc_slots());
    let mut any = false;
    for slot in 0..high {
        any |= reap_slot(c, &SignalsBlocked::hurried(c.kernel), slot);
    }
    any
}

/// Cleans up after the process in a slot if it is dead, be it one of this kernel or of a machine that is
/// dead. For reapers, which do so before somebody is in need.
pub fn reap(c: &Ctx, slot: u32) {
    reap_slot(c, &SignalsBlocked::hurried(c.kernel), slot);
}

/// Frees removed segments that only processes had which made no call, and which are unmapped now.
pub fn reap_inherited(c: &Ctx) {
    c.aside(|c| shm::reap_inherited(c, &SignalsBlocked::hurried(c.kernel)));
}

/// Cleans up after the process in a slot if it is dead. One that runs another program now keeps its slot, for
/// its `SEM_UNDO` adjustments.
pub(crate) fn reap_slot(c: &Ctx, signals: &SignalsBlocked, slot: u32) -> bool {
    let Some((dead, _, _)) = c.process(slot) else {
        return false;
    };
    if dead == c.me || !c.owner_is_dead(dead) {
        return false;
    }
    if !c.dead_is_gone(dead) {
        dir::each_touched(c, dead, Kind::Shm, |index| shm::reap_process(c, signals, index, dead));
        return true;
    }
    clean(c, signals, dead);
    // An object that could not be cleaned, as a stopped process holds its lock, keeps the slot from being
    // used again.
    if !signals.has_failed() && is_clean(c, dead) && !c.budget.is_spent() {
        c.pool.free_process(dead);
    }
    true
}

/// Is no set or queue left that may know the process? Records of other kinds name it with its generation.
fn is_clean(c: &Ctx, dead: ProcId) -> bool {
    let knows = |kind: Kind, index| {
        let head = c.head(kind, index);
        kind != Kind::Shm && head.is_some_and(|head| head.id.load(Relaxed) != 0)
    };
    c.proc(dead.slot).is_none_or(|p| {
        p.touched
            .iter()
            .filter_map(|touched| Kind::of_reference(touched.load(Relaxed)))
            .all(|(kind, index)| !knows(kind, index))
    })
}

/// Takes from every IPC object what a process has there.
fn clean(c: &Ctx, signals: &SignalsBlocked, dead: ProcId) {
    for kind in Kind::ALL {
        dir::each_touched(c, dead, kind, |index| match kind {
            Kind::Shm => shm::reap_process(c, signals, index, dead),
            Kind::Sem => sem::reap_process(c, signals, index, dead),
            Kind::Msg => msg::reap_process(c, signals, index, dead),
        });
    }
    end_waits::reap_process(c, signals, dead);
}

/// Does a process of this pid live, in any kernel and name space? Of other kernels' processes those live that
/// nobody has cleaned up after yet. Yes, if it costs too much to know.
pub fn lives(c: &Ctx, pid: u32) -> bool {
    has_process(c, |_, its| its == pid)
}

/// Does the process live that a pid word names?
pub fn lives_by_word(c: &Ctx, word: u64) -> bool {
    let is_it = |(id, member): (ProcId, u16), pid| {
        c.proc(id.slot).is_some_and(|slot| pid_word_in(slot, member, pid) == word)
    };
    has_process(c, is_it)
}

fn has_process(c: &Ctx, is_it: impl Fn((ProcId, u16), u32) -> bool) -> bool {
    let high = c.pool.root().proc_high.load(Relaxed).min(c.pool.proc_slots());
    let lives = |(id, member, pid)| is_it((id, member), pid) && !c.owner_is_dead(id);
    (0..high).any(|slot| c.process(slot).is_some_and(lives)) || c.budget.is_spent()
}

/// Applies the caller's `SEM_UNDO` adjustments, and forgets them. Those of a set whose lock somebody keeps
/// for long stay until the caller ends.
pub fn undo(c: &Ctx) {
    let signals = SignalsBlocked::brief(c.kernel);
    dir::each_touched(c, c.me, Kind::Sem, |index| sem::undo_own(c, &signals, index));
}

/// Hands the caller's `SEM_UNDO` adjustments over to another slot, which they are of from then on: they are
/// due when that one's liveness lock is free.
pub fn hand_over(c: &Ctx, to: ProcId) {
    let signals = SignalsBlocked::brief(c.kernel);
    dir::each_touched(c, c.me, Kind::Sem, |index| sem::hand_over_at(c, &signals, index, to));
}

/// A clean exit: undoes the caller's `SEM_UNDO` adjustments and drops its attachments, and wakes those that
/// waited for that. The slot stays the caller's; [`Pool::free_process`] gives it up. False if a stopped
/// process was in the way, or it cost too much: then the process that finds the caller dead does the rest,
/// and the slot must stay as it is.
pub fn leave(c: &Ctx) -> bool {
    let signals = SignalsBlocked::hurried(c.kernel);
    clean(c, &signals, c.me);
    shm::leave(c, &signals);
    !signals.has_failed() && !c.budget.is_spent()
}
