//! Clocks, as the kernel tells them. libc's functions may be other libraries', which tell programs another
//! time (libfaketime): with a clock that stands still a wait would never end. So the kernel's own code for
//! clocks is asked, which it maps into each process (vdso(7)), or else the kernel.

use core::ffi::CStr;
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use core::time::Duration;

use super::raw::call;

type Gettime = unsafe extern "C" fn(libc::clockid_t, *mut [u64; 2]) -> i32;
#[cfg(not(target_arch = "x86_64"))]
type Seconds = unsafe extern "C" fn(*mut i64) -> i64;

#[cfg(target_arch = "x86_64")]
const GETTIME: &CStr = c"__vdso_clock_gettime";
#[cfg(not(target_arch = "x86_64"))]
const GETTIME: &CStr = c"__kernel_clock_gettime";
/// The name of a function that is not there on all processors.
const SECONDS: &CStr = c"__vdso_time";

/// A [`Gettime`].
static GETTIME_AT: AtomicPtr<()> = AtomicPtr::new(find_gettime as *mut ());
/// A function that returns seconds and, if it is given a pointer, stores them.
static SECONDS_AT: AtomicPtr<()> = AtomicPtr::new(find_seconds as *mut ());

/// The time by a clock.
#[inline]
pub fn time(clock: libc::clockid_t) -> Duration {
    let mut now = [0; 2];
    // SAFETY: a function of that type, which fills in one `struct timespec`.
    unsafe { transmute::<*mut (), Gettime>(GETTIME_AT.load(Relaxed))(clock, &mut now) };
    Duration::new(now[0], now[1] as u32)
}

/// Seconds since the epoch, as the kernel puts them into IPC objects.
#[inline(always)]
pub fn seconds() -> i64 {
    #[cfg(target_arch = "x86_64")]
    {
        let now;
        // One instruction, as in a call of libc's.
        // SAFETY: calls a function of that type, which with a null pointer only returns the time.
        unsafe {
            core::arch::asm!(
                "call qword ptr [rip + {at}]",
                at = sym SECONDS_AT,
                in("rdi") 0usize,
                lateout("rax") now,
                clobber_abi("C"),
            )
        };
        now
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as above.
    unsafe {
        transmute::<*mut (), Seconds>(SECONDS_AT.load(Relaxed))(core::ptr::null_mut())
    }
}

#[cold]
unsafe extern "C" fn find_gettime(clock: libc::clockid_t, to: *mut [u64; 2]) -> i32 {
    let found = vdso(GETTIME).unwrap_or(ask_kernel as *mut ());
    GETTIME_AT.store(found, Relaxed);
    // SAFETY: a function of that type; the caller vouches for what is passed on.
    unsafe { transmute::<*mut (), Gettime>(found)(clock, to) }
}

#[cold]
unsafe extern "C" fn find_seconds(_: *mut i64) -> i64 {
    let found = vdso(SECONDS).unwrap_or(coarse_seconds as *mut ());
    SECONDS_AT.store(found, Relaxed);
    seconds()
}

unsafe extern "C" fn ask_kernel(clock: libc::clockid_t, to: *mut [u64; 2]) -> i32 {
    // SAFETY: the kernel fills in one `struct timespec`, for which the caller vouches.
    unsafe { call!(SYS_clock_gettime, clock, to) }.map_or(-1, |_| 0)
}

unsafe extern "C" fn coarse_seconds(_: *mut i64) -> i64 {
    time(libc::CLOCK_REALTIME_COARSE).as_secs() as i64
}

/// The address of the kernel's function of that name in this process.
fn vdso(name: &CStr) -> Option<*mut ()> {
    /// `PT_LOAD` and `PT_DYNAMIC`, with where a part lies in the file and in memory.
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    /// `DT_STRTAB` and `DT_SYMTAB`.
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    /// Bytes of an `Elf64_Sym`.
    const SYMBOL: usize = 24;
    // SAFETY: reads the auxiliary vector.
    let image = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if image == 0 {
        return None;
    }
    // SAFETY: the kernel's image is mapped whole, for good, and is an ELF file for 64 bits; its symbols lie
    // before their names, each of which is terminated.
    unsafe {
        let word = |at: usize| (at as *const u64).read_unaligned();
        let (size, count) =
            (((image + 54) as *const u16).read_unaligned(), ((image + 56) as *const u16).read_unaligned());
        let parts = image + word(image + 32) as usize;
        let part = |kind| {
            let mut all = (0..usize::from(count)).map(|i| parts + i * usize::from(size));
            all.find(|part| (*part as *const u32).read_unaligned() == kind)
        };
        let (load, dynamic) = (part(LOAD)?, part(DYNAMIC)?);
        let moved = (image + word(load + 8) as usize).wrapping_sub(word(load + 16) as usize);
        let entries = image + word(dynamic + 8) as usize;
        let entry = |tag| {
            let mut all = (entries..).step_by(16).take_while(|at| word(*at) != 0);
            all.find(|at| word(*at) == tag).map(|at| moved.wrapping_add(word(at + 8) as usize))
        };
        let (strings, symbols) = (entry(STRINGS)?, entry(SYMBOLS)?);
        let is_it = |symbol: &usize| {
            let at = strings + (*symbol as *const u32).read_unaligned() as usize;
            word(symbol + 8) != 0 && CStr::from_ptr(at as *const _) == name
        };
        let found = (symbols..strings.saturating_sub(SYMBOL - 1)).step_by(SYMBOL).find(is_it)?;
        Some(moved.wrapping_add(word(found + 8) as usize) as *mut ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_code_for_clocks_is_found() {
        // SAFETY: reads the auxiliary vector. Emulators may have none of the kind.
        let is_there = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } != 0;
        assert_eq!(vdso(GETTIME).is_some(), is_there);
        assert_eq!(vdso(SECONDS).is_some(), is_there && cfg!(target_arch = "x86_64"));
        assert_eq!(vdso(c"__vdso_no_such_function"), None);
    }

    #[test]
    fn clocks_agree_with_the_kernels() {
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME, libc::CLOCK_REALTIME] {
            let mut asked = [0; 2];
            let before = time(clock);
            // SAFETY: room for one `struct timespec`.
            assert_eq!(unsafe { ask_kernel(clock, &mut asked) }, 0);
            let asked = Duration::new(asked[0], asked[1] as u32);
            assert!(before <= asked && asked <= time(clock));
        }
        // SAFETY: no pointer is passed on.
        let (now, coarse) = (seconds(), unsafe { coarse_seconds(core::ptr::null_mut()) });
        assert!((now..=now + 1).contains(&coarse));
        assert!(now.abs_diff(time(libc::CLOCK_REALTIME).as_secs() as i64) <= 1);
    }
}
