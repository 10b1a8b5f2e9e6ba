//! `mlockall`, which would fill pools with memory, all of it, for good: a pool is mapped whole, and little of
//! it may be in use. What is mapped is locked but for the pools: attached segments are, as they are mappings
//! of their own.

use crate::names::next::{is_in_libc, Next};
use crate::pools::table::POOLS;
use crate::process::gate;
use crate::process::page::MAX_POOLS;
use crate::process::raw::syscall;
use crate::thread::errno::{self, from_kernel};
use core::ffi::c_void;
use core::ops::{ControlFlow, Range};
use vshmem_ipc::Errno;

static NEXT: Next = Next::new(c"mlockall");

/// mlockall(2) without the pools. Where another library stands before libc, it is asked instead: the runtimes
/// of sanitizers lock nothing, since their shadow of all memory could not be had.
pub fn lock_all(flags: i32) -> Result<i32, Errno> {
    let next = NEXT.address();
    if !is_in_libc(next as *const c_void) {
        // SAFETY: a function of that name, which has this argument.
        let real: extern "C" fn(i32) -> i32 = unsafe { core::mem::transmute(next) };
        return match real(flags) {
            -1 => Err(Errno(errno::get())),
            result => Ok(result),
        };
    }
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    let pools = pools();
    let is_ours = flags & libc::MCL_CURRENT != 0 && flags & !known == 0 && !pools.iter().all(Range::is_empty);
    match is_ours.then(|| lock_each(&pools, flags)).flatten() {
        Some(locked) => locked.map(|()| 0),
        // The kernel does not tell what is mapped.
        None => mlockall(flags),
    }
}

fn mlockall(flags: i32) -> Result<i32, Errno> {
    // SAFETY: changes no contents and no protection.
    from_kernel(unsafe { syscall!(libc::SYS_mlockall, flags) }).map(|result| result as i32)
}

/// Locks one mapping after the other. What is mapped meanwhile is future to the kernel, which is told first.
/// `None`: it does not tell what is mapped.
fn lock_each(pools: &[Range<usize>], flags: i32) -> Option<Result<(), Errno>> {
    let told = match flags & libc::MCL_FUTURE {
        // A call without it ends that of an earlier one.
        // SAFETY: as above.
        0 => from_kernel(unsafe { syscall!(libc::SYS_munlockall) }).map(drop),
        _ => mlockall(flags & !libc::MCL_CURRENT).map(drop),
    };
    if told.is_err() {
        return Some(told);
    }
    let mut locked = Ok(());
    vshmem_transport::each_mapping(&mut |map| {
        if !pools.iter().any(|pool| pool.start <= map.start && map.end <= pool.end) {
            locked = lock(&map, libc::MLOCK_ONFAULT);
            if locked.is_ok() && flags & libc::MCL_ONFAULT == 0 {
                // Nothing can be had behind some mappings, which mlockall does not complain of.
                let _ = lock(&map, 0);
            }
        }
        if locked.is_err() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Some(locked)
}

fn lock(map: &Range<usize>, flags: u32) -> Result<(), Errno> {
    // SAFETY: changes no contents and no protection.
    let result = unsafe { syscall!(libc::SYS_mlock2, map.start, map.len(), flags) };
    match from_kernel(result) {
        // Unmapped since. Beyond a limit it says the same, but then the process has its pages locked already.
        Err(Errno(libc::ENOMEM)) if is_gone(map) => Ok(()),
        result => result.map(drop),
    }
}

/// Is some of the range not mapped any more?
fn is_gone(map: &Range<usize>) -> bool {
    // SAFETY: an asynchronous write-back of nothing that is not written back anyway.
    let result = unsafe { syscall!(libc::SYS_msync, map.start, map.len(), libc::MS_ASYNC) };
    result == -(libc::ENOMEM as isize)
}

/// The addresses at which pools are mapped, as long as none is closed; empty for those that are not open.
fn pools() -> [Range<usize>; MAX_POOLS] {
    let mut ranges = [const { 0..0 }; MAX_POOLS];
    let Ok(_gate) = gate::enter() else { return ranges };
    for (place, range) in POOLS.iter().zip(&mut ranges).filter(|(place, _)| place.is_open()) {
        // SAFETY: it is open, and is not closed behind the gate.
        let memory = unsafe { place.opened() }.handle.mem();
        let start = memory.base() as usize;
        *range = start..start + memory.mapped();
    }
    ranges
}
