//! System calls by the instruction itself.
//!
//! The library exports a function named `syscall`, so it must not count on libc's; and these calls leave
//! errno alone.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering::*};
pub(crate) use vshmem_transport::syscall;
pub use vshmem_transport::{map_private, read_file, seconds};

/// The calling process's id.
pub fn getpid() -> u32 {
    // SAFETY: takes nothing, changes nothing.
    unsafe { syscall!(libc::SYS_getpid) as u32 }
}

/// Opens a file by these flags, writes the bytes by one call, and closes it. A failure is told to nobody.
pub fn write_file(path: &CStr, flags: i32, bytes: &[u8]) {
    // SAFETY: a C string, and bytes that the kernel reads. Nobody else knows of the descriptor.
    unsafe {
        let fd = syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0o666);
        if fd >= 0 {
            syscall!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len());
            syscall!(libc::SYS_close, fd);
        }
    }
}

/// Lets others have the processor, and stays ready to run.
pub fn give_way() {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_sched_yield) };
}

/// All signals are blocked: does one wait that has a handler and that the mask `old` lets through?
pub fn handler_waits(old: u64) -> bool {
    pending(old).any(|signal| !matches!(action(signal), libc::SIG_DFL | libc::SIG_IGN))
}

/// All signals are blocked: does one wait that the mask `old` lets through and that does anything?
pub fn signal_waits(old: u64) -> bool {
    const NOTHING: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    pending(old).any(|signal| match action(signal) {
        libc::SIG_DFL => !NOTHING.contains(&signal),
        libc::SIG_IGN => false,
        _ => true,
    })
}

/// The signals that wait and that the mask `old` lets through.
fn pending(old: u64) -> impl Iterator<Item = i32> {
    let mut pending = 0u64;
    // SAFETY: the set is 8 bytes, as the last argument says.
    unsafe { syscall!(libc::SYS_rt_sigpending, &raw mut pending, 8) };
    let pending = pending & !old;
    (1..=64).filter(move |signal| pending & 1 << (signal - 1) != 0)
}

/// The action of a signal: a handler's address, `SIG_DFL` or `SIG_IGN`.
fn action(signal: i32) -> usize {
    // The kernel's structure: handler, flags, restorer, mask of 8 bytes; the handler comes first on every
    // architecture with 64 bits.
    let mut action = [0usize; 4];
    // SAFETY: no new action; the old one is four words.
    let done = unsafe { syscall!(libc::SYS_rt_sigaction, signal, 0usize, action.as_mut_ptr(), 8) };
    if done == 0 {
        action[0]
    } else {
        libc::SIG_IGN
    }
}

/// Blocks all 64 signals, those that libc keeps for itself included; returns the mask before.
pub fn block_signals() -> u64 {
    let (all, mut old) = (u64::MAX, 0u64);
    // SAFETY: both masks are 8 bytes, as the last argument says.
    unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut old, 8) };
    old
}

/// Puts the mask that [`block_signals`] returned back.
pub fn restore_signals(old: u64) {
    // SAFETY: the mask is 8 bytes, as the last argument says.
    unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const old, 0usize, 8) };
}

/// The number, of which the compiler knows nothing any more.
#[inline(always)]
pub fn opaque(mut number: isize) -> isize {
    // SAFETY: does nothing.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags))
    };
    number
}

/// Maps zeros in private memory for a pointer that is null, after `prepare` has seen them. `None`: there is
/// no memory. For types of which zeros are a value.
pub fn map_once<T>(pointer: &AtomicPtr<T>, prepare: impl FnOnce(*mut u8)) -> Option<()> {
    if !pointer.load(Acquire).is_null() {
        return Some(());
    }
    let fresh = map_private(size_of::<T>());
    if fresh.is_null() {
        return None;
    }
    prepare(fresh);
    let published = pointer.compare_exchange(core::ptr::null_mut(), fresh.cast(), AcqRel, Relaxed);
    if published.is_err() {
        // SAFETY: nobody else has seen this one.
        unsafe { unmap(fresh, size_of::<T>()) };
    }
    Some(())
}

/// Unmaps memory that [`map_private`] mapped.
///
/// # Safety
/// Nobody may use the memory any more.
pub unsafe fn unmap(p: *mut u8, len: usize) {
    // SAFETY: the caller gives up the memory.
    unsafe { syscall!(libc::SYS_munmap, p, len) };
}
