//! Signal handlers that run in the middle of a wait.
//!
//! In the kernel a signal ends the wait before its handler runs. Here the handler runs while the thread
//! stands in the IPC object's queue. So the first call that it makes ends that wait, with EINTR; then nobody
//! serves it any more, neither the handler itself nor others. A handler that jumps out of the wait
//! (`siglongjmp` after `alarm`) leaves it behind: the thread's next call ends it, or the thread's end
//! (`pthread_exit` in a handler, asynchronous cancellation).
//!
//! A thread can also be *marked*: whichever call comes next has to look who makes it
//! ([`crate::pools::sharers`]). To calls that is the same word, so they ask once.

use crate::process::tls::{self, Wait};
use core::sync::atomic::{compiler_fence, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_ipc::Ctx;

/// The key by which libc tells of threads that end, + 1; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Takes the key by which libc tells of threads that have ever waited and end. A thread that ends calls
/// [`abandon`].
pub fn watch_by(key: libc::pthread_key_t) {
    KEY.store(key + 1, Relaxed);
}

/// The thread ends: wherever its wait was, that stack is not in use any more.
pub fn abandon() {
    set_stack(0);
}

/// Has libc tell of the calling thread's end.
#[cold]
fn watch() {
    let Some(key) = KEY.load(Relaxed).checked_sub(1) else {
        return;
    };
    let something = core::ptr::without_provenance(1);
    // SAFETY: a key that was made. Where libc has no memory for it, it is tried again at the next wait.
    if unsafe { libc::pthread_setspecific(key, something) } == 0 {
        // SAFETY: the thread's own block.
        unsafe { (*tls::thread()).wait.watched = 1 };
    }
}

/// Has libc tell of the calling thread's end, unless that was done: before anything is recorded that is to be
/// found then.
#[inline]
fn be_watched() {
    // SAFETY: the thread's own block.
    if unsafe { (*tls::thread()).wait.watched } == 0 {
        watch();
    }
}

/// The end of a stack that no stack ends above: the thread is in the middle of the wait.
const NOWHERE: usize = usize::MAX;

/// Records that the thread stands in a queue, or no more. Until then a handler may run at any time, also when
/// the thread looks around. The second time this is called by the function that all of the wait is in: a
/// handler's frames are below the one of a signal, which lies below that function's and takes more than what
/// is called to record it. A handler that jumps away before that leaves its record, which is freed at the
/// process's end.
pub fn stands(word: Option<&AtomicU32>) {
    let at = word.map_or(core::ptr::null(), |word| word as *const AtomicU32);
    let again = !at.is_null() && self::word() == at as usize;
    set_stack(if again { here() } else { NOWHERE });
    if !at.is_null() {
        be_watched();
    }
    set_word(at);
}

/// Records the word that the thread waits on for the time of the wait; while it stands in a queue, that is
/// its place there, whichever word it waits on.
#[inline]
pub fn during<T>(word: &AtomicU32, wait: impl FnOnce() -> T) -> T {
    be_watched();
    let stands = is_waiting();
    // SAFETY: the thread's own block. By pointer: a handler changes it meanwhile.
    let before = unsafe { (&raw const (*tls::thread()).wait.stack).read_volatile() };
    set_stack(here());
    if !stands {
        set_word(word);
    }
    let result = wait();
    if stands {
        set_stack(before);
    } else {
        set_word(core::ptr::null());
    }
    result
}

fn set_stack(at: usize) {
    // SAFETY: the thread's own block.
    unsafe { (&raw mut (*tls::thread()).wait.stack).write_volatile(at) };
}

/// A thread in the middle of a wait, or marked, takes no shortcuts: whichever call comes next looks.
fn set_word(word: *const AtomicU32) {
    compiler_fence(SeqCst);
    tls::set_permit(false);
    // SAFETY: the thread's own block.
    let word = unsafe {
        let wait = &raw mut (*tls::thread()).wait;
        let word = if word.is_null() { (&raw const (*wait).idle).read_volatile() } else { word as usize };
        (&raw mut (*wait).word).write_volatile(word);
        word
    };
    compiler_fence(SeqCst);
    tls::set_permit(word == 0);
    compiler_fence(SeqCst);
}

/// The thread stands nowhere, whatever it has recorded, and is not marked.
pub fn forget() {
    // SAFETY: the thread's own block.
    unsafe { (*tls::thread()).wait.idle = 0 };
    set_word(core::ptr::null());
}

/// Marks the calling thread, or takes the mark from it.
pub fn mark(is_marked: bool) {
    // SAFETY: the thread's own block.
    unsafe { (&raw mut (*tls::thread()).wait.idle).write_volatile(if is_marked { MARK } else { 0 }) };
    if !is_waiting() {
        set_word(core::ptr::null());
    }
}

/// The word of a thread that is marked and does not wait: nobody waits at this address.
pub const MARK: usize = 1;

#[inline(always)]
fn word() -> usize {
    // SAFETY: the thread's own block.
    unsafe { (&raw const (*tls::thread()).wait.word).read_volatile() }
}

/// Is the thread in the middle of a wait?
#[inline(always)]
pub fn is_waiting() -> bool {
    word() > MARK
}

/// Is the thread marked?
pub fn is_marked() -> bool {
    // SAFETY: the thread's own block.
    unsafe { (&raw const (*tls::thread()).wait.idle).read_volatile() != 0 }
}

/// Is the thread in the middle of a wait, or marked?
#[inline(always)]
pub fn must_look() -> bool {
    word() != 0
}

/// Ends the wait that the calling thread is in the middle of, if that is in this pool.
#[cold]
#[inline(never)]
pub fn end_wait(c: &Ctx) {
    // SAFETY: the thread's own block.
    let Wait { word, stack, .. } = unsafe { (&raw const (*tls::thread()).wait).read_volatile() };
    let word = word as *const AtomicU32;
    set_word(core::ptr::null());
    // The frame of the wait is gone if the stack ends above it: stacks grow downwards. On a stack of its own,
    // a handler runs on top of the wait.
    let is_over = here() > stack && !is_on_signal_stack();
    if !vshmem_ipc::interrupt(c, word, is_over) {
        // As it was: waiting for the lock has recorded another place of the stack.
        set_stack(stack);
        set_word(word);
    }
}

/// The approximate address at which the stack ends now.
#[inline(always)]
fn here() -> usize {
    let local = 0u8;
    core::hint::black_box(&local) as *const u8 as usize
}

fn is_on_signal_stack() -> bool {
    // SAFETY: a zeroed stack_t is a value, and the call only fills it.
    unsafe {
        let mut stack: libc::stack_t = core::mem::zeroed();
        let result = crate::process::raw::syscall!(libc::SYS_sigaltstack, 0usize, &mut stack as *mut _);
        result == 0 && stack.ss_flags & libc::SS_ONSTACK != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_outlasts_waits() {
        let word = AtomicU32::new(0);
        let looks = || (is_waiting(), must_look());
        assert_eq!(looks(), (false, false));
        mark(true);
        assert_eq!(looks(), (false, true));
        assert_eq!(during(&word, looks), (true, true));
        assert_eq!((looks(), tls::permit()), ((false, true), 0));
        during(&word, || mark(false));
        assert_eq!(looks(), (false, false));
        mark(true);
        forget();
        assert!(!is_marked() && !must_look());
    }
}
