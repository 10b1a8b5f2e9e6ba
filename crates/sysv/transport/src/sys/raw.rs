//! The instruction that enters the kernel, and what comes back.

/// A positive `errno` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub i32);

/// The result of a system call.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Makes a system call with six arguments; unused ones are ignored by the kernel. Returns what the kernel
/// returned, a negative errno value included.
///
/// # Safety
/// As the call demands.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub unsafe fn raw(number: i64, a: [usize; 6]) -> isize {
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

/// Makes a system call with six arguments; unused ones are ignored by the kernel. Returns what the kernel
/// returned, a negative errno value included.
///
/// # Safety
/// As the call demands.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub unsafe fn raw(number: i64, a: [usize; 6]) -> isize {
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

/// Tells a call's result from an error.
pub(crate) fn outcome(result: isize) -> Outcome<usize> {
    if (-4095..0).contains(&result) {
        return Err(Errno(-result as i32));
    }
    Ok(result as usize)
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

/// System call with up to six arguments, each given as anything that casts to `usize`; what the kernel
/// returned, a negative errno value included.
#[macro_export]
macro_rules! syscall {
    ($number:expr $(, $arg:expr)* $(,)?) => {{
        let given: &[usize] = &[$($arg as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(given);
        $crate::system_call($number as i64, args)
    }};
}
/// System call by the last part of its number's name; an error is told from a result.
macro_rules! call {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        $crate::sys::outcome($crate::syscall!(libc::$number $(, $arg)*))
    };
}
pub(crate) use call;

pub(crate) use syscall;
