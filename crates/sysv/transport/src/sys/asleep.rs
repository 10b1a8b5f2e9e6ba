//! System calls that sleep, and whether a signal handler ran meanwhile.
//!
//! The kernel says EINTR only if the signal ended the sleep. One that comes a moment before the sleep, or
//! when its time is up and the thread has not run again yet (on a busy machine, for milliseconds), has its
//! handler run all the same, and no call says so. But the kernel has put the handler's frame onto the stack,
//! below what belongs to the function that was interrupted. So words are written there before the call, by
//! the same few instructions, and looked at after it. A handler on a stack of its own (`sigaltstack`) is not
//! seen so.

use super::memcheck;

/// Bytes that have room for the frame of [`asleep`] and what lies below it.
const BELOW: usize = 1024;

/// The end of a sleep in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awake {
    /// The result of the system call; an errno value, negative, if it failed.
    pub result: isize,
    /// A signal handler ran on this stack, from just before the call until it was over.
    pub handled: bool,
}

/// The result as the instructions return it, in two registers.
#[repr(C)]
struct Returned {
    result: isize,
    changed: u64,
}

// A function of its own, without what unwinding needs: if a handler ends its thread (`pthread_exit`), the C
// library looks no further than here, and ends the thread without running anything in the callers, which
// could not bear it.
extern "C" {
    fn vshmem_asleep(number: i64, arguments: *const [usize; 6]) -> Returned;
}

/// Makes a system call with six arguments, and notes whether a handler ran.
///
/// # Safety
/// As the call demands.
pub unsafe fn asleep(number: i64, arguments: [usize; 6]) -> Awake {
    // What is written and read lies below the stack, some words from here.
    let at = (&raw const arguments) as usize - BELOW;
    memcheck::ignore(at, BELOW);
    // SAFETY: the caller vouches for the call. All else that is written lies where only a signal's frame is
    // ever put.
    let returned = unsafe { vshmem_asleep(number, &arguments) };
    memcheck::forget(at, BELOW);
    Awake { result: returned.result, handled: returned.changed != 0 }
}

// The ten words lie below the red zone of 128 bytes. A signal's frame begins there, aligned to 64, with four
// bytes that end the state of the floating point unit. The mark is what no frame has in these places.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.vshmem_asleep, \"ax\", @progbits",
    ".globl vshmem_asleep",
    ".hidden vshmem_asleep",
    ".type vshmem_asleep, @function",
    "vshmem_asleep:",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rdi, qword ptr [r11]",
    "mov rsi, qword ptr [r11 + 8]",
    "mov rdx, qword ptr [r11 + 16]",
    "mov r10, qword ptr [r11 + 24]",
    "mov r8, qword ptr [r11 + 32]",
    "mov r9, qword ptr [r11 + 40]",
    "movabs rcx, 0x5ca1ab1e0ddba11f",
    ".irp at, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208",
    "mov qword ptr [rsp - \\at], rcx",
    ".endr",
    "syscall",
    "movabs rcx, 0x5ca1ab1e0ddba11f",
    "xor edx, edx",
    ".irp at, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208",
    "mov r11, qword ptr [rsp - \\at]",
    "xor r11, rcx",
    "or rdx, r11",
    ".endr",
    "ret",
    ".size vshmem_asleep, . - vshmem_asleep",
    ".popsection",
);

// There is no red zone: a signal's frame begins below the stack pointer with the two words of a frame record.
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.vshmem_asleep, \"ax\", %progbits",
    ".globl vshmem_asleep",
    ".hidden vshmem_asleep",
    ".type vshmem_asleep, %function",
    "vshmem_asleep:",
    "mov x8, x0",
    "mov x9, x1",
    "ldp x0, x1, [x9]",
    "ldp x2, x3, [x9, #16]",
    "ldp x4, x5, [x9, #32]",
    "movz x10, #0xa11f",
    "movk x10, #0x0ddb, lsl #16",
    "movk x10, #0xab1e, lsl #32",
    "movk x10, #0x5ca1, lsl #48",
    "stp x10, x10, [sp, #-16]",
    "svc #0",
    "ldp x11, x12, [sp, #-16]",
    "eor x11, x11, x10",
    "eor x12, x12, x10",
    "orr x1, x11, x12",
    "ret",
    ".size vshmem_asleep, . - vshmem_asleep",
    ".popsection",
);

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::thread;
    use std::time::{Duration, Instant};

    static RUN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handle(_: i32) {
        RUN.fetch_add(1, SeqCst);
    }

    fn sleep(nanoseconds: i64) -> Awake {
        let spec = [0, nanoseconds];
        // SAFETY: the time is live for the call, and nothing else is given.
        unsafe {
            asleep(
                libc::SYS_clock_nanosleep,
                [libc::CLOCK_MONOTONIC as usize, 0, spec.as_ptr() as usize, 0, 0, 0],
            )
        }
    }

    /// A thread sleeps in tiny steps while another one sends it signals: each handler is seen, whether the
    /// sleep was over by then or not.
    #[test]
    fn a_handler_is_seen_whenever_it_ran() {
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGUSR2, handle as *const () as usize) };
        // SAFETY: takes nothing.
        let (me, process) = unsafe { (libc::gettid(), libc::getpid()) };
        assert!(!sleep(1000).handled);
        let sender = thread::spawn(move || {
            let end = Instant::now() + Duration::from_millis(500);
            while Instant::now() < end {
                thread::sleep(Duration::from_micros(300));
                // SAFETY: signals a thread that waits for this one.
                unsafe { libc::syscall(libc::SYS_tgkill, process, me, libc::SIGUSR2) };
            }
        });
        let (mut late, mut seen) = (0, 0);
        while !sender.is_finished() {
            let before = RUN.load(SeqCst);
            let awake = sleep(1000);
            // Between the two looks at the count and the call there is a little room.
            let ran = RUN.load(SeqCst) != before;
            assert!(ran || !awake.handled, "nobody ran");
            assert!(awake.handled || awake.result != -(libc::EINTR as isize));
            seen += u32::from(awake.handled);
            late += u32::from(awake.handled && awake.result == 0);
        }
        sender.join().unwrap();
        let all = RUN.load(SeqCst);
        assert!(seen * 2 > all, "{seen} of {all} were seen");
        assert!(late > 0, "none came when a sleep was over");
    }
}
