//! Around `fork`: where segments are attached, a child's slot, liveness lock and attachments are there before
//! the child is, so that no count drops in between. A child that inherits none makes itself known at its
//! first call: most end, or execute something else, without one.
//!
//! After a fork each page that is written to for the first time is copied, so nothing is written that need
//! not be.

use crate::attach::TABLE;
use crate::claim::Claim;
use crate::errno::ErrnoGuard;
use crate::page::{self, unpack};
use crate::pools::Claimed;
use crate::state::{self, POOLS};
use crate::{gate, interrupted, revoked};
use core::sync::atomic::Ordering;
use vshmem_pool::{Ctx, ProcId};
use vshmem_transport::process::Fork;
use vshmem_transport::{Handle, Liveness};

/// Before the fork.
pub extern "C" fn prepare() {
    if !gate::close_for_fork() || TABLE.count() == 0 {
        return;
    }
    let _errno = ErrnoGuard::now();
    let Some(page) = page::existing() else { return };
    for (index, membership) in page.memberships.iter().enumerate() {
        let me = unpack(membership.me.load(Ordering::Acquire)).filter(|_| !revoked::is_revoked(index));
        if let Some((me, liveness)) = me.and_then(|me| claim_for_child(index, me, page.pid())) {
            let claimed = Claimed { me, liveness, fork: Fork::now(page.pid()) };
            // SAFETY: we hold the gate.
            unsafe { *POOLS[index].claimed.get() = Some(claimed) };
        }
    }
}

/// If this fails, the child makes itself known later, at its first call.
fn claim_for_child(index: usize, me: ProcId, pid: u32) -> Option<(ProcId, Liveness)> {
    let place = &POOLS[index];
    let ctx = place.ctx(me, pid);
    // SAFETY: the process is known to the pool, so it is open.
    let handle = unsafe { &place.opened().handle };
    let mut claim = Claim::new(handle, Handle::claim_liveness_for_child);
    let take = &mut |slot| claim.take(slot);
    let started = state::started_of(index);
    // Nobody knows the child's pid yet.
    let child = vshmem_ipc::liveness::claim(ctx.pool, place, ctx.member, 0, started, take);
    let claimed = child.zip(claim.taken());
    match claimed {
        Some((child, _)) if vshmem_ipc::shm::fork(&ctx, child) => return claimed,
        Some((child, _)) => give_up(&ctx, child),
        None => {}
    }
    claim.give_back();
    None
}

/// Takes back what was counted for a child that there won't be.
fn give_up(ctx: &Ctx, child: ProcId) {
    vshmem_ipc::leave(&Ctx { me: child, ..ctx.clone() });
    ctx.pool.free_process(child);
}

/// After the fork, in the parent, also if it failed: then the child's slot has no living owner and is cleaned
/// up as any dead process's is.
pub extern "C" fn parent() {
    // SAFETY: claimed for the child by this process, and let go of once.
    take_claimed(|_, claimed| unsafe { claimed.liveness.end() });
    gate::open_in_parent();
}

/// After the fork, in the child.
pub extern "C" fn child() {
    let Some(page) = page::existing() else { return };
    page::wipe_in_child();
    interrupted::forget();
    take_claimed(|index, Claimed { me, liveness, fork }| {
        let _errno = ErrnoGuard::now();
        // SAFETY: the parent claimed it for this child.
        unsafe { liveness.keep_in_child() };
        let started = fork.started_in_child(state::started_of(index));
        // SAFETY: the parent was known to the pool, so it is open.
        unsafe { POOLS[index].opened() }.pool.adopt_process(me, page.pid(), started);
        state::become_member(page, index, me, Some(liveness), started);
    });
    gate::open_in_child();
}

fn take_claimed(mut each: impl FnMut(usize, Claimed)) {
    if !gate::is_closed_for_fork() {
        return;
    }
    for (index, place) in POOLS.iter().enumerate() {
        let claimed = place.claimed.get();
        // SAFETY: the thread that forks holds the gate; the child has one thread.
        if let Some(taken) = unsafe { *claimed } {
            // SAFETY: as above.
            unsafe { *claimed = None };
            each(index, taken);
        }
    }
}
