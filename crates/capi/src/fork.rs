//! Around `fork`: where segments are attached, a child's slot, liveness lock and attachments are there before
//! the child is, so that no count drops in between. The parent notes the child's pid afterwards, so that
//! `shm_lpid` is right when it has ended; the child takes all over at its first call. A child that inherits
//! no attachment makes itself known then.
//!
//! Most children end, or execute something else, without a call. So a child runs no code of ours but the end
//! of `fork` itself ([`crate::forked`]): each page of code, and each page that it writes to, costs it a
//! fault.

use crate::attach::TABLE;
use crate::claim::Claim;
use crate::errno::ErrnoGuard;
use crate::gate::{self, Inside};
use crate::page::{pack, MAX_POOLS};
use crate::pools::Claimed;
use crate::state::{self, POOLS};
use crate::{heirs, revoked, tls};
use vshmem_pool::{Ctx, ProcId};
use vshmem_transport::process::{self, Fork};
use vshmem_transport::{Handle, Liveness};

/// Before the fork.
pub extern "C" fn prepare() {
    let Some(gate) = gate::enter_for_fork() else { return };
    heirs::look(&gate);
    // What is attached later the child does not have.
    state::close_sources(&gate);
    if TABLE.count() > 0 {
        let _errno = ErrnoGuard::now();
        for index in 0..MAX_POOLS {
            make_room(&gate, index);
        }
    }
    gate::close_for_fork(gate);
}

/// Makes a place in a pool for the child, in the stead of one that was made for a child that did not come.
fn make_room(gate: &Inside, index: usize) {
    let me = state::me(gate, index).filter(|_| !revoked::is_revoked(index));
    drop_room(index);
    let Some(me) = me else { return };
    let pid = gate.page().pid();
    if let Some((me, liveness)) = claim_for_child(gate, index, me, pid) {
        let claimed = Claimed { me, liveness, fork: Fork::now(pid) };
        // SAFETY: inside the gate.
        unsafe { *POOLS[index].claimed.get() = Some(claimed) };
    }
}

/// A handler has changed what is attached in the middle of a fork: the child inherits that.
pub fn attachments_changed(gate: &Inside) {
    if gate.is_in_fork() {
        (0..MAX_POOLS).for_each(|index| make_room(gate, index));
    }
}

/// If this fails, the child makes itself known later, at its first call.
fn claim_for_child(gate: &Inside, index: usize, me: ProcId, pid: u32) -> Option<(ProcId, Liveness)> {
    let place = &POOLS[index];
    let ctx = place.ctx(me, pid);
    // SAFETY: the process is known to the pool, so it is open.
    let handle = unsafe { &place.opened().handle };
    let mut claim = Claim::new(handle, Handle::claim_liveness_for_child);
    let take = &mut |slot| claim.take(slot);
    // Nobody knows the child's pid yet, nor when it begins.
    let started = process::unknown_start(state::started_of(index));
    let child = vshmem_ipc::liveness::claim(ctx.pool, place, ctx.member, 0, started, take);
    let claimed = child.zip(claim.taken());
    let kept = &|id, source| state::kept_from_children(gate, &ctx, index, id, source);
    match claimed {
        Some((child, _)) if vshmem_ipc::shm::fork_but(&ctx, child, kept) => return claimed,
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
    if let Some(_gate) = gate::enter_after_fork() {
        heirs::after_fork();
        for index in 0..MAX_POOLS {
            // None, too, is noted: an earlier child may be there whose pid the thread never learnt, for it
            // was forked inside libc.
            let child = drop_room(index).map_or(0, |child| pack(child, false));
            // SAFETY: the thread's own block.
            unsafe { (*tls::thread()).forked[index] = child };
        }
    }
}

/// Lets go of a place that was made for a child. Inside the gate.
fn drop_room(index: usize) -> Option<ProcId> {
    let claimed = POOLS[index].claimed.get();
    // SAFETY: inside the gate.
    let room = unsafe { *claimed }?;
    // SAFETY: as above; the lock was claimed by this process, for its child, and is let go of once.
    unsafe {
        *claimed = None;
        room.liveness.end();
    }
    Some(room.me)
}
