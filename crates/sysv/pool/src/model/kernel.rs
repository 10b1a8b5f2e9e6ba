//! The kernel under a scene.

use super::turn::switching;
use super::{execution, life};
use crate::atomic::{AtomicU32, Ordering};
use crate::{Cred, Kernel, Waited};
use core::time::Duration;

/// A process, and the kernel as it sees it. Its pid is the number of its actor.
pub struct Process {
    /// Sleeps that are no longer than this end by themselves, all others only when somebody wakes.
    pub naps: Duration,
    /// The kernel's number, of several: each wakes its own threads only.
    pub number: u16,
}

impl Process {
    fn sleep_word(&self, word: &AtomicU32) -> life::SleepWord {
        (self.number, word.as_ptr() as usize)
    }

    /// Sleeps on `word` while it holds `expected`; it is loaded in this order under the kernel's lock.
    pub fn sleep(
        &self,
        word: &AtomicU32,
        expected: u32,
        timeout: Option<Duration>,
        order: Ordering,
    ) -> Waited {
        let Some(life) = execution::life().filter(|_| !std::thread::panicking()) else {
            return Waited::TimedOut;
        };
        if timeout.is_some_and(|timeout| timeout <= self.naps) {
            switching(loom::thread::yield_now);
            return Waited::TimedOut;
        }
        life.sleep(self.sleep_word(word), expected, || word.load(order));
        Waited::Woken
    }

    /// Wakes those who sleep on `word` and expected another value: what a driver does in an interrupt.
    pub fn check_sleepers(&self, word: &AtomicU32) {
        if let Some(life) = execution::life().filter(|_| !std::thread::panicking()) {
            life.wake(self.sleep_word(word), u32::MAX, |expected| word.load(Ordering::Relaxed) != expected);
        }
    }
}

impl Kernel for Process {
    fn alive(&self, _slot: u32, pid: u32, _started: u64) -> bool {
        match execution::life() {
            Some(_) if std::thread::panicking() => true,
            Some(life) => !life.is_dead(pid as usize),
            None => !life::was_killed(pid as usize),
        }
    }
    fn block_signals(&self) -> u64 {
        0
    }
    fn restore_signals(&self, _old: u64) {}
    fn reserve(&self, _offset: u64, _len: u64) -> bool {
        true
    }
    fn release(&self, _offset: u64, _len: u64) -> bool {
        false
    }
    fn available_memory(&self) -> Option<u64> {
        None
    }
    fn now(&self) -> i64 {
        0
    }
    fn monotonic(&self) -> u64 {
        0
    }
    fn cred(&self) -> Cred {
        Cred { uid: 0, gid: 0, caps: 0 }
    }
    fn in_group(&self, _gid: u32) -> bool {
        false
    }
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        self.sleep(word, expected, timeout, Ordering::SeqCst)
    }
    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        match execution::life() {
            Some(life) if !std::thread::panicking() => life.wake(self.sleep_word(word), n, |_| true),
            _ => 0,
        }
    }
    fn spin_rounds(&self) -> u32 {
        0
    }
    fn spinning(&self) {
        if execution::life().is_some() {
            switching(loom::thread::yield_now);
        }
    }
}
