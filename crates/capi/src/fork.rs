//! Around `fork`: a child's slot, life and attachments are there before the child is, so that no count drops in between.

use crate::errno::Kept;
use crate::page::{self, unpack, MAX_POOLS};
use crate::state::{self, POOLS};
use crate::{gate, gone, interrupted};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;
use vshmem_pool::{Budget, Ctx, ProcId};
use vshmem_port::{process, Life};

/// What was claimed for the child, by pool. Under the gate from before the fork until after it.
struct Claimed(UnsafeCell<[Option<(ProcId, Life)>; MAX_POOLS]>);

// SAFETY: only touched by the thread that forks, which holds the gate, and by the child's one thread.
unsafe impl Sync for Claimed {}

static CLAIMED: Claimed = Claimed(UnsafeCell::new([None; MAX_POOLS]));

/// Before the fork.
pub extern "C" fn prepare() {
    let _errno = Kept::now();
    if !gate::close_for_fork() {
        return;
    }
    let Some(page) = page::existing() else { return };
    for (index, membership) in page.memberships.iter().enumerate() {
        let me = unpack(membership.me.load(Ordering::Acquire)).filter(|_| !gone::is_gone(index));
        let claimed = me.and_then(|me| claim_for_child(index, me, page.pid()));
        // SAFETY: we hold the gate.
        unsafe { (*CLAIMED.0.get())[index] = claimed };
    }
}

/// If this fails, the child makes itself known later, at its first call.
fn claim_for_child(index: usize, me: ProcId, pid: u32) -> Option<(ProcId, Life)> {
    let place = &POOLS[index];
    // SAFETY: the process is known to the pool, so it is open.
    let opened = unsafe { place.opened() };
    let mut life: Option<Life> = None;
    let mut failed = false;
    let child = vshmem_ipc::life::claim(
        &opened.pool,
        place,
        opened.member,
        // Nobody knows the child's pid yet.
        0,
        state::started_of(index),
        &mut |slot| {
            if !failed {
                drop_life(life.take());
                life = opened.handle.claim_life_for_child(slot);
                failed = life.is_none() && opened.handle.alive(slot) != Some(true);
            }
            life.is_some() && !failed
        },
    );
    let (Some(child), Some(life)) = (child, life) else {
        drop_life(life);
        return None;
    };
    let ctx = Ctx {
        pool: &opened.pool,
        kernel: place,
        me,
        pid,
        member: opened.member,
        budget: Budget::default(),
    };
    if !vshmem_ipc::shm::fork(&ctx, child) {
        give_up(&ctx, child);
        drop_life(Some(life));
        return None;
    }
    Some((child, life))
}

/// Takes back what was counted for a child that there won't be.
fn give_up(ctx: &Ctx, child: ProcId) {
    vshmem_ipc::leave(&Ctx {
        me: child,
        ..ctx.clone()
    });
    ctx.pool.free_process(child);
}

fn drop_life(life: Option<Life>) {
    if let Some(life) = life {
        // SAFETY: claimed for a child by this process, and dropped once.
        unsafe { life.drop_in_parent() };
    }
}

/// After the fork, in the parent, also if it failed: then the child's slot has no living owner and is cleaned up as any
/// dead process's is.
pub extern "C" fn parent() {
    let _errno = Kept::now();
    take_claimed(|_, _, life| drop_life(Some(life)));
    gate::open_in_parent();
}

/// After the fork, in the child.
pub extern "C" fn child() {
    let _errno = Kept::now();
    page::wipe_in_child();
    interrupted::forget();
    if let Some(page) = page::existing() {
        take_claimed(|index, me, life| {
            // SAFETY: the parent claimed it for this child.
            unsafe { life.keep_in_child() };
            let started = process::started_now(state::started_of(index));
            // SAFETY: the parent was known to the pool, so it is open.
            unsafe { POOLS[index].opened() }
                .pool
                .adopt_process(me, page.pid(), started);
            state::become_member(page, index, me, Some(life), started);
        });
    }
    gate::open_in_child();
}

fn take_claimed(mut each: impl FnMut(usize, ProcId, Life)) {
    if !gate::is_closed_for_fork() {
        return;
    }
    for index in 0..MAX_POOLS {
        // SAFETY: the thread that forks holds the gate; the child has one thread.
        if let Some((me, life)) = unsafe { (*CLAIMED.0.get())[index].take() } {
            each(index, me, life);
        }
    }
}
