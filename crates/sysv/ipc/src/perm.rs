//! Permissions of IPC objects, as `ipc/util.c` in Linux decides on them.

use crate::{Ctx, Errno, Perm};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Head, HEAD_MEMBER_SHIFT};
use vshmem_pool::log::Txn;

/// Read permission for everybody, as a request.
pub const READ: u32 = 0o444;
/// Write permission.
pub const WRITE: u32 = 0o222;

const CAP_IPC_OWNER: u64 = 1 << 15;
/// Capability to lock memory.
pub const CAP_IPC_LOCK: u64 = 1 << 14;
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Capability to exceed a queue's default size.
pub const CAP_SYS_RESOURCE: u64 = 1 << 24;

/// The member in whose kernel the IPC object was made, if that is known.
pub fn maker(head: &Head) -> Option<u16> {
    let link = head.flags.load(Relaxed) >> HEAD_MEMBER_SHIFT & 0x7f;
    (link as u16).checked_sub(1)
}

/// `ipcperms`: may the caller do what `wanted` says (any of its three digits)?
#[inline]
pub fn check(c: &Ctx, head: &Head, wanted: u32) -> Result<(), Errno> {
    let mode = head.mode.load(Relaxed);
    let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
    // All three digits grant it, so the caller's user doesn't matter.
    if wanted & !(mode & mode >> 3 & mode >> 6) == 0 {
        return Ok(());
    }
    check_slowly(c, head, mode, wanted)
}

/// The users that are granted something for as long as an IPC object is the same and has the same mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// Everybody.
    All,
    /// Processes with this effective user.
    User(u32),
}

/// The users, the caller's among them, that are granted what `wanted` says. Not the owner alone: another one
/// can be set.
pub fn stays_granted(c: &Ctx, maker: u32, mode: u32, wanted: u32) -> Option<Granted> {
    let wanted = wanted & 7;
    if wanted & !(mode & mode >> 3 & mode >> 6) == 0 {
        return Some(Granted::All);
    }
    (wanted & !(mode >> 6) == 0 && c.kernel.uid() == maker).then_some(Granted::User(maker))
}

#[inline(never)]
fn check_slowly(c: &Ctx, head: &Head, mode: u32, wanted: u32) -> Result<(), Errno> {
    // Most often it is the owner, for whom the user alone decides.
    let uid = c.kernel.uid();
    if (uid == head.uid.load(Relaxed) || uid == head.cuid.load(Relaxed)) && wanted & !(mode >> 6) == 0 {
        return Ok(());
    }
    let cred = c.kernel.cred();
    let granted = if owns(&cred, head) {
        mode >> 6
    } else if c.kernel.in_group(head.cgid.load(Relaxed)) || c.kernel.in_group(head.gid.load(Relaxed)) {
        mode >> 3
    } else {
        mode
    };
    if wanted & !granted == 0 || caps(c, &cred, head) & CAP_IPC_OWNER != 0 {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

fn owns(cred: &crate::Cred, head: &Head) -> bool {
    cred.uid == head.cuid.load(Relaxed) || cred.uid == head.uid.load(Relaxed)
}

/// The caller's capabilities as far as they count for the IPC object. A process privileged in a machine rules
/// over what was made in that machine, and not over what others made, though the pool is in reach: as root in
/// a user namespace.
fn caps(c: &Ctx, cred: &crate::Cred, head: &Head) -> u64 {
    if c.kernel.rules_pool() || maker(head) == Some(c.member) {
        cred.caps
    } else {
        0
    }
}

/// May the caller change or remove the IPC object?
pub fn check_owner(c: &Ctx, head: &Head) -> Result<(), Errno> {
    let cred = c.kernel.cred();
    if owns(&cred, head) || caps(c, &cred, head) & CAP_SYS_ADMIN != 0 {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Owner, or has the given capability?
pub fn owner_or(c: &Ctx, head: &Head, cap: u64) -> bool {
    let cred = c.kernel.cred();
    has(c, head, cap) || owns(&cred, head)
}

/// Has the caller a capability that counts for the IPC object?
pub fn has(c: &Ctx, head: &Head, cap: u64) -> bool {
    caps(c, &c.kernel.cred(), head) & cap != 0
}

/// The IPC object's permissions as callers see them.
pub fn of(c: &Ctx, head: &Head) -> Perm {
    let id = head.id.load(Acquire) as i32;
    Perm {
        key: head.key.load(Relaxed) as i32,
        uid: head.uid.load(Relaxed),
        gid: head.gid.load(Relaxed),
        cuid: head.cuid.load(Relaxed),
        cgid: head.cgid.load(Relaxed),
        mode: head.mode.load(Relaxed) & 0o7777,
        seq: c.pool.ids().sequence(id),
    }
}

/// Puts the owner and mode that `IPC_SET` gives into a transaction.
pub fn put(c: &Ctx, txn: &mut Txn, head: &Head, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    let mode = head.mode.load(Relaxed) & !0o777 | mode & 0o777;
    let at = c.pool.offset_of(head);
    txn.set(at, u64::from(head.id.load(Relaxed)) | u64::from(mode) << 32)?;
    Ok(txn.set(at + 8, u64::from(uid) | u64::from(gid) << 32)?)
}
