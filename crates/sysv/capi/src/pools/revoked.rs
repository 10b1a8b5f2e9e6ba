//! Revoked pools: a pool's device was taken away from the machine. From then on its memory reads as zeros, so
//! fast paths fail by themselves, and what any other call has found out is not true. Then the call is told
//! EIDRM: its IPC object is not there any more.
//!
//! Only a device goes away, so only calls on a device's memory ask, and only where they fail or have read
//! something. They look at the machine's own entry among the members: it never reads as zeros while the pool
//! is there. A member that scribbles on it makes calls fail, as it could by other means.
//!
//! A process goes on with the memory that it has mapped; what it has attached stays its own until it detaches
//! it. When the machine is given a pool of the configured name again, the next `*get` opens that beside the
//! old one.

use crate::pools::table::POOLS;
use crate::process::page;
use crate::thread::last_error::explain;
use core::sync::atomic::{fence, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use vshmem_ipc::Errno;

/// Is the pool at a place revoked? Once it is, it stays so for this process, whatever its memory shows later:
/// without the driver another device's may come to lie there, and the process has no slot in that pool.
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
    if opened.pool.is_joined(opened.member) && !place.revoked.load(Relaxed) {
        return false;
    }
    place.revoked.store(true, Relaxed);
    if let Some(page) = page::existing() {
        // Fast paths don't know the process there any more.
        page.memberships[index].me.store(0, Release);
        page.forget_shortcuts();
    }
    true
}

/// The error of all calls on a revoked pool.
#[cold]
pub fn refusal() -> Errno {
    explain(format_args!(
        "the pool was taken away from this machine; ask for the IPC object again when the machine has the pool again"
    ));
    Errno::EIDRM
}
