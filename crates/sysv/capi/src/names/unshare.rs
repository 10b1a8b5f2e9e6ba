//! `unshare`, which ends the caller's list of `SEM_UNDO` adjustments: they are applied at once.

use crate::pools::caller::known_adjuster;
use crate::pools::{lists, revoked};
use crate::process::gate;
use crate::process::page::MAX_POOLS;
use crate::process::raw::syscall;
use crate::thread::errno::{from_kernel, ErrnoGuard};
use vshmem_ipc::Errno;
use vshmem_transport::stat;

/// Flags that bring a new list of adjustments, as a new name space of IPC objects does, too.
const NEW_LIST: i32 = libc::CLONE_SYSVSEM | libc::CLONE_NEWIPC;

/// unshare(2).
pub fn unshare(flags: i32) -> Result<i32, Errno> {
    // SAFETY: touches no memory.
    let result = from_kernel(unsafe { syscall!(libc::SYS_unshare, flags) })?;
    if flags & NEW_LIST != 0 {
        end_list();
    }
    Ok(result as i32)
}

/// Applies the adjustments, in all pools. Those of several threads are one list, which lives on with the
/// others.
fn end_list() {
    let _errno = ErrnoGuard::now();
    if stat::of(None).is_none_or(|stat| stat.threads > 1) {
        return;
    }
    for index in (0..MAX_POOLS).filter(|index| !revoked::is_revoked(*index)) {
        if let Some(c) = known_adjuster(index) {
            vshmem_ipc::undo(&c);
        } else if let Ok(gate) = gate::enter() {
            // Where it shares one, the others go on with it.
            lists::leave(&gate, index);
        }
    }
}
