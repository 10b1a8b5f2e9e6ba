//! The instruction that enters the kernel, and what comes back.

/// A positive `errno` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub i32);

/// What a system call returns.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Makes a system call with six arguments; unused ones are ignored by the kernel.
///
/// # Safety
/// As the call demands.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn raw(number: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 system call convention; rcx and r11 are overwritten by the instruction.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call with six arguments; unused ones are ignored by the kernel.
///
/// # Safety
/// As the call demands.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn raw(number: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the AArch64 system call convention.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("vshmem-transport makes system calls directly and knows x86-64 and AArch64 only");

/// Makes a system call and tells its result from an error.
///
/// # Safety
/// As the call demands.
pub(crate) unsafe fn call(number: i64, a: [usize; 6]) -> Outcome<usize> {
    // SAFETY: passed on.
    outcome(unsafe { raw(number, a) })
}

/// Tells a call's result from an error.
pub(crate) fn outcome(result: isize) -> Outcome<usize> {
    if (-4095..0).contains(&result) {
        return Err(Errno(-result as i32));
    }
    Ok(result as usize)
}

/// A descriptor or flag word as a register holds it.
pub(crate) fn int(value: i32) -> usize {
    value as isize as usize
}

/// Repeats a call for as long as signals interrupt it.
pub(crate) fn again(mut attempt: impl FnMut() -> Outcome<usize>) -> Outcome<usize> {
    loop {
        match attempt() {
            Err(Errno(libc::EINTR)) => continue,
            other => return other,
        }
    }
}

/// System call with up to six arguments, each given as anything that casts to `usize`; what the kernel returned, a negative errno
/// value included.
macro_rules! syscall {
    ($number:expr $(, $arg:expr)* $(,)?) => {{
        let given: &[usize] = &[$($arg as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(given);
        $crate::sys::raw($number as i64, args)
    }};
}
pub(crate) use syscall;
