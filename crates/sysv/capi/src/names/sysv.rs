//! libc's System V calls. Under `LD_PRELOAD` they stand before libc's.

use crate::calls::{msg, sem, shm};
use crate::names::dispatch::{by_id, by_key, MSG, SEM, SHM};
use crate::names::mlockall::lock_all;
use crate::names::unshare;
use crate::pools::caller::caller;
use crate::pools::outcome;
use crate::process::config::config;
use crate::process::raw::syscall;
use crate::thread::errno::{from_kernel, guard};
use core::ffi::c_void;
use libc::timespec;
use vshmem_ipc::sem::Sembuf;
use vshmem_ipc::Errno;

fn int(result: isize) -> Result<i32, Errno> {
    from_kernel(result).map(|r| r as i32)
}

/// shmget(2).
#[no_mangle]
pub extern "C" fn shmget(key: i32, size: usize, flags: i32) -> i32 {
    by_key(
        "shmget",
        key,
        move || outcome::get(|caller| shm::get(caller, key, size, flags)),
        // SAFETY: touches no memory of ours.
        move || int(unsafe { syscall!(libc::SYS_shmget, key, size, flags) }),
    )
}

/// shmat(2).
///
/// # Safety
/// With `SHM_REMAP`, nothing that is mapped at `addr` may be in use.
#[no_mangle]
pub unsafe extern "C" fn shmat(id: i32, addr: *const c_void, flags: i32) -> *mut c_void {
    by_id(
        "shmat",
        id,
        move || shm::attach(&caller()?, id, addr as usize, flags),
        move || {
            // SAFETY: as the caller vouches.
            from_kernel(unsafe { syscall!(libc::SYS_shmat, id, addr, flags) }).map(|p| p as *mut c_void)
        },
    )
}

/// shmdt(2).
///
/// # Safety
/// The segment attached at `addr`, if there is one, may not be in use.
#[no_mangle]
pub unsafe extern "C" fn shmdt(addr: *const c_void) -> i32 {
    guard("shmdt", || {
        if shm::detach(addr as usize)? {
            Ok(0)
        } else if config().takes_all() {
            Err(Errno::EINVAL)
        } else {
            // SAFETY: as the caller vouches.
            int(unsafe { syscall!(libc::SYS_shmdt, addr) })
        }
    })
}

/// shmctl(2).
///
/// # Safety
/// `buf` points to what the command reads or writes; an address that can't be accessed is EFAULT.
#[no_mangle]
pub unsafe extern "C" fn shmctl(id: i32, command: i32, buf: *mut c_void) -> i32 {
    SHM.call(id, 0, command, buf as usize)
}

/// semget(2).
#[no_mangle]
pub extern "C" fn semget(key: i32, count: i32, flags: i32) -> i32 {
    by_key(
        "semget",
        key,
        move || outcome::get(|caller| sem::get(caller, key, count, flags)),
        // SAFETY: touches no memory of ours.
        move || int(unsafe { syscall!(libc::SYS_semget, key, count, flags) }),
    )
}

/// semop(2).
///
/// # Safety
/// `sops` points to `count` operations; an address that can't be accessed is EFAULT.
#[no_mangle]
pub unsafe extern "C" fn semop(id: i32, sops: *mut Sembuf, count: usize) -> i32 {
    // SAFETY: as the caller vouches.
    unsafe { sem::op_or(id, sops, count, semop_slow) }
}

/// `semop` that no shortcut can do. A function of its own, so that `semop` has little to save and restore.
#[inline(never)]
unsafe extern "C" fn semop_slow(id: i32, sops: *mut Sembuf, count: usize) -> i32 {
    by_id(
        "semop",
        id,
        // SAFETY: as the caller vouches.
        move || unsafe { sem::op(id, sops, count) },
        // SAFETY: the kernel checks the address.
        move || int(unsafe { syscall!(libc::SYS_semtimedop, id, sops, count, 0usize) }),
    )
}

/// semtimedop(2).
///
/// # Safety
/// As [`semop`]; `timeout` is null or points to a time.
#[no_mangle]
pub unsafe extern "C" fn semtimedop(
    id: i32,
    sops: *mut Sembuf,
    count: usize,
    timeout: *const timespec,
) -> i32 {
    if timeout.is_null() {
        // SAFETY: as the caller vouches.
        return unsafe { semop(id, sops, count) };
    }
    by_id(
        "semtimedop",
        id,
        // SAFETY: as the caller vouches.
        move || unsafe { sem::timed_op(id, sops, count, timeout) },
        // SAFETY: the kernel checks the addresses.
        move || int(unsafe { syscall!(libc::SYS_semtimedop, id, sops, count, timeout) }),
    )
}

/// semctl(2). C declares it with variable arguments; on the machines that we know, the fourth one lies where
/// a plain fourth argument does, and is garbage that nobody looks at where the command takes none.
///
/// # Safety
/// `arg` is what the command takes; an address that can't be accessed is EFAULT.
#[no_mangle]
pub unsafe extern "C" fn semctl(id: i32, number: i32, command: i32, arg: usize) -> i32 {
    SEM.call(id, number, command, arg)
}

/// msgget(2).
#[no_mangle]
pub extern "C" fn msgget(key: i32, flags: i32) -> i32 {
    by_key(
        "msgget",
        key,
        move || outcome::get(|caller| msg::get(caller, key, flags)),
        // SAFETY: touches no memory of ours.
        move || int(unsafe { syscall!(libc::SYS_msgget, key, flags) }),
    )
}

/// msgsnd(2).
///
/// # Safety
/// `message` points to a type and `size` bytes; an address that can't be accessed is EFAULT.
#[no_mangle]
pub unsafe extern "C" fn msgsnd(id: i32, message: *const c_void, size: usize, flags: i32) -> i32 {
    // SAFETY: as the caller vouches.
    unsafe { msg::send_or(id, message, size, flags, msgsnd_slow) }
}

/// `msgsnd` that no shortcut can do, see [`semop_slow`].
#[inline(never)]
unsafe extern "C" fn msgsnd_slow(id: i32, message: *const c_void, size: usize, flags: i32) -> i32 {
    by_id(
        "msgsnd",
        id,
        // SAFETY: as the caller vouches.
        move || unsafe { msg::send(&caller()?, id, message.cast(), size, flags) },
        // SAFETY: the kernel checks the address.
        move || int(unsafe { syscall!(libc::SYS_msgsnd, id, message, size, flags) }),
    )
}

/// msgrcv(2).
///
/// # Safety
/// `message` points to room for a type and `size` bytes; an address that can't be accessed is EFAULT.
#[no_mangle]
pub unsafe extern "C" fn msgrcv(id: i32, message: *mut c_void, size: usize, mtype: i64, flags: i32) -> isize {
    // SAFETY: as the caller vouches.
    unsafe { msg::receive_or(id, message, size, mtype, flags, msgrcv_slow) }
}

/// `msgrcv` that no shortcut can do, see [`semop_slow`].
#[inline(never)]
unsafe extern "C" fn msgrcv_slow(
    id: i32,
    message: *mut c_void,
    size: usize,
    mtype: i64,
    flags: i32,
) -> isize {
    by_id(
        "msgrcv",
        id,
        // SAFETY: as the caller vouches.
        move || unsafe { msg::receive(&caller()?, id, message.cast(), size, mtype, flags) },
        // SAFETY: the kernel checks the address.
        move || from_kernel(unsafe { syscall!(libc::SYS_msgrcv, id, message, size, mtype, flags) }),
    )
}

/// msgctl(2).
///
/// # Safety
/// `buf` points to what the command reads or writes; an address that can't be accessed is EFAULT.
#[no_mangle]
pub unsafe extern "C" fn msgctl(id: i32, command: i32, buf: *mut c_void) -> i32 {
    MSG.call(id, 0, command, buf as usize)
}

/// mlockall(2): locks what is mapped and attached, and not the pools.
#[no_mangle]
pub extern "C" fn mlockall(flags: i32) -> i32 {
    guard("mlockall", || lock_all(flags))
}

/// unshare(2): a new list of `SEM_UNDO` adjustments ends the old one in pools, too.
#[no_mangle]
pub extern "C" fn unshare(flags: i32) -> i32 {
    guard("unshare", || unshare::unshare(flags))
}
