//! `mlockall`, which would fill pools with memory, all of it, for good: a pool is mapped whole, and little of
//! it may be in use. What is mapped is locked but for the pools: attached segments are, as they are mappings
//! of their own.

use crate::errno::{self, from_kernel};
use crate::gate;
use crate::next::{is_in_libc, Next};
use crate::page::MAX_POOLS;
use crate::pools::POOLS;
use crate::raw::syscall;
use core::ffi::c_void;
use core::ops::Range;
use vshmem_ipc::Errno;

/// The kernel's list of the process's mappings, proc_pid_maps(5).
const MAPS: &core::ffi::CStr = c"/proc/self/maps";

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
    match is_ours.then(Maps::open).flatten() {
        Some(maps) => lock_each(maps, &pools, flags),
        None => mlockall(flags),
    }
}

fn mlockall(flags: i32) -> Result<i32, Errno> {
    // SAFETY: changes no contents and no protection.
    from_kernel(unsafe { syscall!(libc::SYS_mlockall, flags) }).map(|result| result as i32)
}

/// Locks one mapping after the other. What is mapped meanwhile is future to the kernel, which is told first.
fn lock_each(mut maps: Maps, pools: &[Range<usize>], flags: i32) -> Result<i32, Errno> {
    match flags & libc::MCL_FUTURE {
        // A call without it ends that of an earlier one.
        // SAFETY: as above.
        0 => from_kernel(unsafe { syscall!(libc::SYS_munlockall) }).map(drop)?,
        _ => mlockall(flags & !libc::MCL_CURRENT).map(drop)?,
    }
    while let Some(map) = maps.next() {
        if pools.iter().any(|pool| pool.start <= map.start && map.end <= pool.end) {
            continue;
        }
        lock(&map, libc::MLOCK_ONFAULT)?;
        if flags & libc::MCL_ONFAULT == 0 {
            // Nothing can be had behind some mappings, which mlockall does not complain of.
            let _ = lock(&map, 0);
        }
    }
    Ok(0)
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

/// Whether some of the range is not mapped any more.
fn is_gone(map: &Range<usize>) -> bool {
    // SAFETY: an asynchronous write-back of nothing that is not written back anyway.
    let result = unsafe { syscall!(libc::SYS_msync, map.start, map.len(), libc::MS_ASYNC) };
    result == -(libc::ENOMEM as isize)
}

/// Where pools are mapped, as long as none is closed; empty for those that are not open.
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

/// The process's mappings, read piece by piece: there is no heap.
struct Maps {
    fd: isize,
    bytes: [u8; 1024],
    filled: usize,
    at: usize,
}

impl Maps {
    fn open() -> Option<Maps> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: a string.
        let fd = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, MAPS.as_ptr(), flags) };
        (fd >= 0).then_some(Maps { fd, bytes: [0; 1024], filled: 0, at: 0 })
    }

    fn byte(&mut self) -> Option<u8> {
        if self.at == self.filled {
            // SAFETY: the kernel writes at most that many bytes there.
            let read =
                unsafe { syscall!(libc::SYS_read, self.fd, self.bytes.as_mut_ptr(), self.bytes.len()) };
            (self.at, self.filled) = (0, usize::try_from(read).ok().filter(|read| *read > 0)?);
        }
        self.at += 1;
        self.bytes.get(self.at - 1).copied()
    }

    /// A hexadecimal number, and what follows it is skipped.
    fn number(&mut self) -> Option<usize> {
        let mut number = 0;
        while let Some(digit) = char::from(self.byte()?).to_digit(16) {
            number = number << 4 | digit as usize;
        }
        Some(number)
    }

    /// The next mapping: a line begins with `start-end `.
    fn next(&mut self) -> Option<Range<usize>> {
        let range = self.number()?..self.number()?;
        while self.byte()? != b'\n' {}
        Some(range)
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        // SAFETY: opened above, and nobody else knows of it.
        unsafe { syscall!(libc::SYS_close, self.fd) };
    }
}
