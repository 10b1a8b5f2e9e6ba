//! The process in a pool: it takes a process slot, or the one that its parent has claimed for it, and leaves.

use crate::pools::claim::Claim;
use crate::pools::table::{OpenPool, CONFIGURED, POOLS};
use crate::pools::{heirs, lists, open, revoked, sharers};
use crate::process::attachments::TABLE;
use crate::process::config::config;
use crate::process::gate::{self, Inside};
use crate::process::page::{self, pack, unpack, Page};
use crate::thread::last_error::explain;
use crate::thread::{errno, interrupted};
use core::sync::atomic::Ordering;
use vshmem_ipc::{liveness, shm, Errno};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::SLOT_LOOKS;
use vshmem_pool::{Ctx, ProcId};
use vshmem_transport::{process, Handle, Liveness};

/// Takes a slot for the process in a pool, and opens it first if need be. Returns the process's page and its
/// slot, as packed there.
#[cold]
#[inline(never)]
pub fn become_known(index: usize) -> Result<(&'static Page, u64), Errno> {
    let _errno = errno::ErrnoGuard::now();
    let mut looks = SLOT_LOOKS;
    let (page, known, has_inherited) = loop {
        match enter_pool(index) {
            Err(Errno::INSIDE) if looks > 0 && !gate::is_inside() => {
                looks -= 1;
                liveness::nap(&POOLS[index]);
            }
            Err(Errno::INSIDE) => {
                explain(format_args!("the pool has no room for another process; make a larger pool"));
                return Err(Errno::ENOSPC);
            }
            result => break result?,
        }
    };
    if let Some(me) = unpack(known).filter(|_| has_inherited) {
        inherit(index, me);
    }
    Ok((page, known))
}

/// Becomes known to a pool, inside the gate. Returns the process's page, its slot, as packed there, and
/// whether it has its parent's attachments, which are to be counted for it, too.
///
/// # Errors
/// INSIDE: the pool has no slot free yet.
fn enter_pool(index: usize) -> Result<(&'static Page, u64, bool), Errno> {
    if let (CONFIGURED, Some(mistake)) = (index, config().mistake()) {
        explain(format_args!("{mistake}"));
        return Err(Errno::EINVAL);
    }
    let gate = gate::enter()?;
    let pool = &POOLS[index];
    if !pool.is_open() {
        if index != CONFIGURED {
            explain(format_args!("the pool is not open; open it with vshm_pool_open"));
            return Err(Errno::EINVAL);
        }
        errno::silence_panics();
        open::at(&gate, index, &config().pool)?;
    } else if revoked::is_revoked(index) {
        return Err(revoked::refusal());
    }
    let page = gate.page();
    let known = || page.memberships[index].me.load(Ordering::Acquire);
    if known() != 0 {
        return Ok((page, known(), false));
    }
    // It may have left already, as it ends.
    // SAFETY: it is open.
    unsafe { pool.opened() }.handle.expect_access();
    let has_inherited = register(&gate, index)?;
    Ok((page, known(), has_inherited))
}

/// The process's slot in a pool, if it is known there, or its parent has seen to that.
pub fn me(gate: &Inside, index: usize) -> Option<ProcId> {
    let me = &gate.page().memberships[index].me;
    if me.load(Ordering::Acquire) == 0 {
        adopt(gate, index);
    }
    unpack(me.load(Ordering::Acquire))
}

/// Takes over the place that the parent made before the fork. False: there is none, or it is another
/// process's: where one that was given a place has forked by a raw call, its child finds it, too.
fn adopt(gate: &Inside, index: usize) -> bool {
    let (place, page) = (&POOLS[index], gate.page());
    let place_for_me = place.claimed.get();
    // SAFETY: inside the gate.
    let Some(claimed) = (unsafe { *place_for_me }) else { return false };
    // SAFETY: as above.
    unsafe { *place_for_me = None };
    let started = claimed.fork.started_in_child(place.started.load(Ordering::Relaxed));
    // SAFETY: the parent was known to the pool, so it is open.
    let pool = unsafe { &place.opened().pool };
    if !pool.adopt_process(claimed.me, page.pid(), started) {
        // SAFETY: inherited, like what has said where it is.
        unsafe { claimed.liveness.end() };
        return false;
    }
    // SAFETY: the parent claimed it for this child.
    unsafe { claimed.liveness.keep_in_child() };
    become_member(page, index, claimed.me, Some(claimed.liveness), started);
    TABLE.forget_kept(gate, index);
    true
}

/// Takes a process slot in an open pool. Returns whether the process is a child of a raw fork that has
/// attachments, which are to be counted.
fn register(gate: &Inside, index: usize) -> Result<bool, Errno> {
    if gate.page().pid.load(Ordering::Relaxed) == 0 {
        // A child of a handler's: what the thread was waiting on is its parent's.
        interrupted::forget();
    }
    if adopt(gate, index) {
        return Ok(false);
    }
    let place = &POOLS[index];
    // SAFETY: callers saw that it is open.
    let opened = unsafe { place.opened() };
    let page = gate.page();
    let mut started = process::started();
    if started >> 32 == 0 {
        // Without /proc; a child of a process that had it is in the same namespaces, as a rule.
        started = process::started_now(place.started.load(Ordering::Relaxed));
    }
    let mut claim = Claim::new(&opened.handle, Handle::claim_liveness);
    let slot = |started, take: &mut dyn FnMut(u32) -> bool| {
        liveness::claim(&opened.pool, place, opened.member, page.pid(), started, take)
    };
    let mut me = slot(started, &mut |slot| claim.take(slot));
    if me.is_none() && claim.is_hopeless() {
        // The pool's file is out of reach, as in a child of a process that changed its root. Then others must
        // judge by the pid whether this process lives. Nobody else is likely to claim the very slot at this
        // very moment.
        started |= process::NO_LIVENESS_LOCK;
        me = slot(started, &mut |slot| opened.handle.alive(slot) != Some(true));
    }
    let Some(me) = me else {
        claim.give_back();
        return Err(Errno::INSIDE);
    };
    let is_child = place.last_me.load(Ordering::Relaxed) != 0;
    if is_child {
        // It keeps its parent's source by what it has mapped, and has not all that is in the table.
        place.close_source(gate);
        TABLE.forget_kept(gate, index);
    }
    become_member(page, index, me, claim.taken(), started);
    Ok(is_child && TABLE.count() > 0)
}

/// Publishes the process's slot.
fn become_member(page: &Page, index: usize, me: ProcId, liveness: Option<Liveness>, started: u64) {
    let (place, membership) = (&POOLS[index], &page.memberships[index]);
    // SAFETY: inside the gate; `me` is not yet published.
    unsafe { *membership.liveness.get() = liveness };
    // SAFETY: a process becomes known to pools that are open.
    let word = pack(me, unsafe { place.opened() }.handle.may_go());
    place.last_me.store(word, Ordering::Relaxed);
    place.started.store(started, Ordering::Relaxed);
    membership.me.store(word, Ordering::Release);
}

/// A child of a fork that no handler saw still has its parent's attachments: counts them for the child.
fn inherit(index: usize, me: ProcId) {
    let ctx = POOLS[index].ctx(me, page::existing().map_or(0, Page::pid));
    // No handler forks on the way.
    let signals = SignalsBlocked::brief(ctx.kernel);
    let count = || {
        let Ok(gate) = gate::enter() else { return Ok(()) };
        TABLE.each_segment(&gate, index, &mut |id, source, n| shm::inherit(&ctx, &signals, id, source, n))
    };
    while count() == Err(Errno::INSIDE) && vshmem_ipc::await_lock(&ctx, &signals).is_ok() {}
}

/// The number of the process's attachments of a segment, by a source as records name it, that children don't
/// get.
pub fn kept_from_children(gate: &Inside, ctx: &Ctx, index: usize, id: i32, source: u64) -> u64 {
    let mut kept = 0;
    TABLE.each(gate, &mut |a| {
        let is_it = a.id == id && a.pool as usize == index && ctx.name_of_source(a.source) == source;
        kept += u64::from(a.is_kept && is_it);
    });
    kept
}

/// Leaves one pool: what the process holds there is undone and counted down. `give_up`: its slot is freed,
/// too, which is right only if no other thread is inside a call.
pub fn leave(index: usize, give_up: bool) {
    // No handler forks on the way: its child would leave in the stead of this process.
    let _signals = SignalsBlocked::new(&POOLS[index]);
    let Ok(gate) = gate::enter() else { return };
    let (place, membership) = (&POOLS[index], &gate.page().memberships[index]);
    // Nothing is left to be undone in a pool that was taken away.
    let is_revoked = revoked::is_revoked(index);
    let me = if is_revoked { unpack(membership.me.load(Ordering::Acquire)) } else { me(&gate, index) };
    let pid = gate.page().pid();
    heirs::look(&gate);
    drop(gate);
    let left = me.filter(|_| !is_revoked).map(|me| place.ctx(me, pid));
    let left = left.filter(vshmem_ipc::leave);
    if !give_up || me.is_none() && !is_revoked {
        return;
    }
    let Ok(gate) = gate::enter() else { return };
    membership.me.store(0, Ordering::Release);
    gate.page().forget_shortcuts();
    sharers::forget_slots(gate.page(), index);
    lists::leave(&gate, index);
    if let Some(ctx) = left {
        ctx.pool.free_process(ctx.me);
    }
    place.last_me.store(0, Ordering::Relaxed);
    // SAFETY: inside the gate; the lock was claimed by this process or for it.
    unsafe {
        if let Some(liveness) = (*membership.liveness.get()).take() {
            liveness.end();
        }
    }
}

/// Has the process made no call, so that pools have nothing of it but what its parent counted, and does that
/// parent live? Then it cleans up, as after a child that was killed: to leave by itself, the process would
/// have to touch pages that it has not needed so far, each of which costs a fault.
///
/// # Safety
/// The process has one thread, which is not inside a call.
pub unsafe fn may_leave_all_to_parent(page: &Page) -> bool {
    let is_parents = |place: &OpenPool| {
        // SAFETY: nobody else is there to be inside the gate.
        let claimed = unsafe { *place.claimed.get() };
        claimed.is_none_or(|claimed| claimed.fork.parent_lives())
    };
    page.pid.load(Ordering::Relaxed) == 0 && POOLS.iter().all(is_parents)
}
