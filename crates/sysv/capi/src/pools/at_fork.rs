//! Handlers around `fork`: where segments are attached, a child's slot, liveness lock and attachments are
//! there before the child is, so that no count drops in between. The parent notes the child's pid afterwards,
//! so that `shm_lpid` is right when it has ended; the child takes all over at its first call. A child that
//! inherits no attachment makes itself known then.
//!
//! Most children end, or execute something else, without a call. So a child runs no code of ours but the end
//! of `fork` itself ([`crate::names::fork`]): each page of code, and each page that it writes to, costs it a
//! fault.

use crate::pools::caller::end_wait;
use crate::pools::claim::Claim;
use crate::pools::table::{self, Claimed, POOLS};
use crate::pools::{heirs, member, revoked};
use crate::process::attachments::TABLE;
use crate::process::gate::{self, Inside};
use crate::process::page::{self, pack, unpack, MAX_POOLS};
use crate::process::tls;
use crate::thread::errno::ErrnoGuard;
use core::sync::atomic::Ordering;
use vshmem_ipc::{liveness, Errno};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::{Ctx, ProcId};
use vshmem_transport::process::{self, Fork};
use vshmem_transport::{Handle, Liveness};

/// Times that the parent lets go of the gate to wait for a pool's lock, at the most: the fork must not be
/// held up.
const TRIES: u32 = 20;

/// The handler before the fork.
pub extern "C" fn prepare() {
    let _errno = ErrnoGuard::now();
    end_wait();
    let (mut waited, mut tries) = (0, TRIES);
    loop {
        let Some(gate) = gate::enter_for_fork() else { return };
        heirs::look(&gate);
        // What is attached later the child does not have.
        table::close_sources(&gate);
        heirs::note_fork(&gate);
        let (mut missing, mut is_counted) = (None, true);
        for index in (0..MAX_POOLS).filter(|_| TABLE.count() > 0) {
            if let Err(error) = make_room(&gate, index) {
                is_counted = false;
                let helps = matches!(error, Errno::INSIDE | Errno::ENOSPC);
                missing = helps.then_some((index, error)).or(missing);
            }
        }
        let Some((index, error)) = missing.filter(|_| tries > 0) else {
            if !is_counted {
                // The child is an heir.
                heirs::suspect(&gate);
            }
            return gate::close_for_fork(gate);
        };
        drop(gate);
        let goes_on = if error == Errno::INSIDE {
            await_lock(index, &mut waited)
        } else {
            liveness::nap(&POOLS[index]);
            true
        };
        tries = if goes_on { tries - 1 } else { 0 };
    }
}

/// Waits for a pool's lock, but not for long: the fork must not be held up. `waited`: nanoseconds of waits
/// before.
fn await_lock(index: usize, waited: &mut u64) -> bool {
    let Some(page) = page::existing() else { return false };
    let me = unpack(page.memberships[index].me.load(Ordering::Acquire));
    let Some(me) = me else { return false };
    let ctx = POOLS[index].ctx(me, page.pid());
    ctx.budget.add_wait(*waited);
    let is_free = vshmem_ipc::await_lock(&ctx, &SignalsBlocked::hurried(ctx.kernel)).is_ok();
    *waited = ctx.budget.waited();
    is_free
}

/// Makes a place in a pool for the child, in the stead of one that was made for a child that did not come. A
/// child that has none counts by itself what it inherits, at its first call.
///
/// # Errors
/// INSIDE: the pool's lock is to be waited for first. ENOSPC: a free slot is.
fn make_room(gate: &Inside, index: usize) -> Result<(), Errno> {
    let me = member::me(gate, index).filter(|_| !revoked::is_revoked(index));
    drop_room(index);
    let Some(me) = me else { return Ok(()) };
    let pid = gate.page().pid();
    let (me, liveness) = claim_for_child(gate, index, me, pid)?;
    let claimed = Claimed { me, liveness, fork: Fork::now(pid) };
    // SAFETY: inside the gate.
    unsafe { *POOLS[index].claimed.get() = Some(claimed) };
    Ok(())
}

/// Claims anew for a child, if a handler has changed attachments in the middle of a fork: the child inherits
/// those.
pub fn attachments_changed(gate: &Inside) {
    if gate.is_in_fork() {
        for index in 0..MAX_POOLS {
            // Not waited for: the fork is under way.
            if make_room(gate, index).is_err() {
                heirs::suspect(gate);
            }
        }
    }
}

/// Claims a process slot for a child, and counts its attachments. If this fails, the child makes itself known
/// later, at its first call.
fn claim_for_child(gate: &Inside, index: usize, me: ProcId, pid: u32) -> Result<(ProcId, Liveness), Errno> {
    let place = &POOLS[index];
    let ctx = place.ctx(me, pid);
    // SAFETY: the process is known to the pool, so it is open.
    let handle = unsafe { &place.opened().handle };
    let mut claim = Claim::new(handle, Handle::claim_liveness_for_child);
    let take = &mut |slot| claim.take(slot);
    // Nobody knows the child's pid yet, nor when it begins.
    let started = process::unknown_start(table::started_of(index));
    let child = liveness::claim(ctx.pool, place, ctx.member, 0, started, take);
    let signals = SignalsBlocked::hurried(ctx.kernel);
    // Without any liveness lock for it the child must see to that itself.
    let none = if claim.is_hopeless() { Errno::EPERM } else { Errno::ENOSPC };
    let claimed = child.zip(claim.taken()).ok_or(none);
    let kept = &|id, source| member::kept_from_children(gate, &ctx, index, id, source);
    let counted = claimed.and_then(|(child, liveness)| {
        let counted = vshmem_ipc::shm::fork(&ctx, &signals, child, kept);
        counted.inspect_err(|_| give_up(&ctx, child)).map(|()| (child, liveness))
    });
    counted.inspect_err(|_| claim.give_back())
}

/// Counts off the attachments of a child that there won't be, and frees its process slot.
fn give_up(ctx: &Ctx, child: ProcId) {
    vshmem_ipc::leave(&Ctx { me: child, ..ctx.clone() });
    ctx.pool.free_process(child);
}

/// The handler after the fork, in the parent, also if it failed: then the child's slot has no living owner
/// and is cleaned up as any dead process's is.
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
