//! Waiting on one kernel: futex(2), shared between processes.

use crate::nap::{self, Waited};
use core::ptr::{null, without_provenance};
use core::time::Duration;
use vshmem_pool::atomic::AtomicU32;
use vshmem_transport::{asleep, syscall};

/// A futex call by the instruction itself, which leaves errno alone. The second word, for operations that
/// have one, is the same.
fn futex(word: &AtomicU32, op: i32, value: u32, timeout: *const libc::timespec) -> isize {
    // SAFETY: the word is live for the call; the timeout is null, or points to a timespec of the caller where
    // the operation has one.
    unsafe { syscall!(libc::SYS_futex, word.as_ptr(), op, value, timeout, word.as_ptr(), 0) }
}

/// Sleeps while `word` holds `expected`, `timeout` at the most.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
    let spec = timeout.map(nap::timespec);
    let pointer = spec.as_ref().map_or(null(), |t| t as *const libc::timespec);
    let (at, pointer) = (word.as_ptr() as usize, pointer as usize);
    let arguments = [at, libc::FUTEX_WAIT as usize, expected as usize, pointer, 0, 0];
    // SAFETY: the word is live for the call, and so is the timeout, if there is one.
    let awake = unsafe { asleep(libc::SYS_futex, arguments) };
    match -awake.result as i32 {
        libc::ETIMEDOUT if awake.handled => Waited::Interrupted,
        libc::ETIMEDOUT => Waited::TimedOut,
        libc::EINTR => Waited::Interrupted,
        // No futex on this memory: nap instead of spinning through the caller's loop.
        libc::EFAULT | libc::EINVAL => nap::wait(word, expected, timeout, |_| None),
        _ => Waited::Woken,
    }
}

/// Wakes up to `n` threads that sleep on `word`; returns how many.
pub fn wake(word: &AtomicU32, n: u32) -> u32 {
    futex(word, libc::FUTEX_WAKE, n.min(i32::MAX as u32), null()).max(0) as u32
}

/// Does a thread sleep on this word now? Moving one sleeper from the word to itself changes nothing, and
/// tells whether there was one.
pub fn has_sleeper(word: &AtomicU32) -> bool {
    // Where a wait has its timeout, this operation has how many to move.
    let one = without_provenance(1);
    futex(word, libc::FUTEX_REQUEUE, 0, one) > 0
}

/// Can threads sleep on this word? Not on memory of a PCI device.
pub fn works_on(word: &AtomicU32) -> bool {
    futex(word, libc::FUTEX_WAKE, 0, null()) >= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use vshmem_pool::atomic::Ordering::SeqCst;

    /// No sleeper; one that is asked for several times and still sleeps; and none again once it is woken.
    #[test]
    fn a_sleeper_is_seen_and_sleeps_on() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        assert!(!has_sleeper(&WORD));
        let sleeper = thread::spawn(|| while wait(&WORD, 0, None) != Waited::Woken {});
        let mut waited = 0;
        while !has_sleeper(&WORD) && waited < 10_000 {
            thread::sleep(Duration::from_millis(1));
            waited += 1;
        }
        for _ in 0..3 {
            assert!(has_sleeper(&WORD));
        }
        WORD.store(1, SeqCst);
        assert_eq!(wake(&WORD, 1), 1);
        sleeper.join().unwrap();
        assert!(!has_sleeper(&WORD));
    }
}
