//! A pool whose device was taken away from the machine. From then on its memory reads as zeros, so fast paths
//! fail by themselves, and what any other call has found out is not true. Then the call is told EIDRM: its
//! IPC object is not there any more.
//!
//! Only a device goes away, so only calls on a device's memory ask, and only where they fail or have read something. They look at the
//! machine's own entry among the members: it never reads as zeros while the pool is there. A member that scribbles on it makes
//! calls fail, as it could by other means.
//!
//! A process goes on with the memory that it has mapped; what it has attached stays its own until it detaches it. When the
//! machine is given a pool of the configured name again, the next `*get` opens that beside the old one.

use crate::config::config;
use crate::page;
use crate::state::{self, Caller, POOLS};
use crate::text::explain;
use crate::{errno, gate};
use core::sync::atomic::{fence, Ordering::Acquire, Ordering::Release};
use vshmem_ipc::Errno;

/// Was the pool at a place taken away? Once it was, it stays so for this process, whatever its memory shows later: without the driver
/// another device's may come to lie there, and the process has no slot in that pool.
#[cold]
#[inline(never)]
pub fn is_revoked(index: usize) -> bool {
    let place = &POOLS[index];
    if !place.is_open() {
        return false;
    }
    // SAFETY: open.
    let opened = unsafe { place.opened() };
    if !opened.handle.may_go() {
        return false;
    }
    // What was read before was read before this.
    fence(Acquire);
    if opened.pool.is_joined(opened.member) && !place.is_lost() {
        return false;
    }
    place.lose();
    if let Some(page) = page::existing() {
        // Fast paths don't know the process there any more.
        page.memberships[index].me.store(0, Release);
    }
    true
}

/// The error of all calls on a pool that was taken away.
#[cold]
pub fn refusal() -> Errno {
    explain(format_args!(
        "the pool was taken away from this machine; ask for the IPC object again when the machine has the pool again"
    ));
    Errno::EIDRM
}

impl Caller {
    /// An error of a call on the caller's pool, or that the pool is gone.
    #[inline(always)]
    pub fn excuse(&self, error: Errno) -> Errno {
        // The driver refuses to map what is going a moment before its memory is gone.
        if self.may_go() && (error == Errno(libc::ENODEV) || is_revoked(self.pool_index())) {
            refusal()
        } else if self.ctx.budget.is_spent() {
            beyond_the_budget()
        } else {
            error
        }
    }

    /// What a call has read from the caller's pool, unless the pool is revoked by now: then it may have read
    /// zeros.
    #[inline(always)]
    pub fn unless_revoked<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        if self.may_go() && is_revoked(self.pool_index()) {
            Err(refusal())
        } else {
            result.map_err(|error| self.excuse(error))
        }
    }
}

/// The error of a call that has looked at more of the pool than any honest one leads to.
#[cold]
fn beyond_the_budget() -> Errno {
    explain(format_args!(
        "the pool leads the call round in circles: somebody who uses it has damaged it; vshmem check says where"
    ));
    Errno::EIDRM
}

/// Makes one of the `*get` calls on the current pool: on a new one of the same name, if the one that was open is gone.
pub fn get(call: impl Fn(&Caller) -> Result<i32, Errno>) -> Result<i32, Errno> {
    let seen = state::current();
    let attempt = || state::caller().and_then(|caller| caller.unless_revoked(call(&caller)));
    match attempt() {
        Err(Errno::EIDRM) if is_revoked(seen) && reopen(seen) => attempt(),
        result => result,
    }
}

/// Opens the pool that the environment names anew, which was open at a place and is gone, if the machine has one of this name again.
#[cold]
#[inline(never)]
fn reopen(gone: usize) -> bool {
    let _errno = errno::ErrnoGuard::now();
    let Ok(gate) = gate::enter() else {
        return false;
    };
    if gone != state::home() {
        // Another thread has done it; or the program has opened this pool itself.
        return state::current() == state::home();
    }
    let Some(index) = state::free_place(&gate) else {
        return false;
    };
    if state::open_device_at(&gate, index, &config().pool).is_err() {
        refusal();
        return false;
    }
    state::move_home(&gate, index);
    true
}
