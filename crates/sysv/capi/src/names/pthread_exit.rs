//! A thread that a signal handler ends (`pthread_exit`) while it is in a call of ours.
//!
//! glibc ends a thread by unwinding its stack, and each frame is asked first. Those of this library can't
//! bear that: it would end in `catch_unwind`, which ends the process. In the kernel, where these calls are
//! from, nothing is unwound. So `pthread_exit` is ours, too: if the handler has interrupted this library,
//! libc's own is called from a function that unwinding does not know. Then it looks no further: it runs what
//! `pthread_cleanup_push` has named, and the destructors of the thread's data, but no destructors of objects
//! of C++ that lie on the stack below the handler. Sleeps in the kernel are such functions themselves
//! (`transport::sys::asleep`).
//!
//! The thread leaves behind its place in a queue, as one does that jumps out of a handler: see
//! [`crate::thread::interrupted`].

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// libc's own function; 0 before the library is loaded.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// An opaque `struct _Unwind_Context`.
enum Context {}

type Each = extern "C" fn(*mut Context, *mut c_void) -> c_int;

extern "C" {
    // Of the compiler's unwinder, as the Itanium C++ ABI has them (section 1.6; the first one is GCC's).
    fn _Unwind_Backtrace(each: Each, state: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;

    // The linker's: where this library begins, and its instructions end.
    static __ehdr_start: u8;
    static etext: u8;

    // Calls libc's function, and is no frame that unwinding knows.
    fn vshmem_end_thread(value: *mut c_void, real: usize) -> !;
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.vshmem_end_thread, \"ax\", @progbits",
    ".globl vshmem_end_thread",
    ".hidden vshmem_end_thread",
    ".type vshmem_end_thread, @function",
    "vshmem_end_thread:",
    "push rbp",
    "call rsi",
    "ud2",
    ".size vshmem_end_thread, . - vshmem_end_thread",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.vshmem_end_thread, \"ax\", @progbits",
    ".globl vshmem_end_thread",
    ".hidden vshmem_end_thread",
    ".type vshmem_end_thread, @function",
    "vshmem_end_thread:",
    "stp x29, x30, [sp, #-16]!",
    "blr x1",
    "brk #1",
    ".size vshmem_end_thread, . - vshmem_end_thread",
    ".popsection",
);

/// Looks libc's function up. When the library is loaded, since that takes a lock of the loader's.
pub fn on_load() {
    // SAFETY: a string; the loader is there.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_exit".as_ptr()) };
    REAL.store(real as usize, Relaxed);
}

/// The calling thread's frames, as far as they were looked at, from the last one on.
struct Frames {
    left: bool,
    met: bool,
}

/// Is this library in the midst of a call, that the calling handler has interrupted?
fn is_interrupted() -> bool {
    let mut frames = Frames { left: false, met: false };
    // SAFETY: the function is called with the pointer that is given here, before this returns.
    unsafe { _Unwind_Backtrace(look, (&raw mut frames).cast()) };
    frames.met
}

/// Looks at a frame. The first ones are those of this module.
extern "C" fn look(context: *mut Context, state: *mut c_void) -> c_int {
    // SAFETY: the unwinder's own, and what `is_interrupted` has given.
    let (at, frames) = unsafe { (_Unwind_GetIP(context), &mut *state.cast::<Frames>()) };
    let text = (&raw const __ehdr_start) as usize..(&raw const etext) as usize;
    if !text.contains(&at) {
        frames.left = true;
    }
    frames.met |= frames.left && text.contains(&at);
    // Anything but 0 ends it.
    frames.met.into()
}

/// pthread_exit(3).
///
/// # Safety
/// As for libc's: nothing on the thread's stack is used any more.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    let real = REAL.load(Relaxed);
    if real == 0 {
        // SAFETY: ends the thread, the only way that is left without libc.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    if is_interrupted() {
        // SAFETY: libc's function, which does not return.
        unsafe { vshmem_end_thread(value, real) };
    }
    // SAFETY: libc's function of this type.
    let real: unsafe extern "C-unwind" fn(*mut c_void) -> ! = unsafe { core::mem::transmute(real) };
    // SAFETY: as the caller vouches. This frame has nothing to be dropped.
    unsafe { real(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FOUND: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn ask(_: c_int) {
        FOUND.store(1 + usize::from(is_interrupted()), Relaxed);
    }

    /// All of this program counts as the library.
    #[test]
    fn a_handler_has_interrupted_and_others_have_not() {
        assert!(!is_interrupted());
        // SAFETY: the handler makes no calls but the unwinder's, and the signal is sent to this thread.
        unsafe {
            libc::signal(libc::SIGUSR2, ask as extern "C" fn(c_int) as usize);
            libc::raise(libc::SIGUSR2);
            libc::signal(libc::SIGUSR2, libc::SIG_DFL);
        }
        assert_eq!(FOUND.load(Relaxed), 2);
    }
}
