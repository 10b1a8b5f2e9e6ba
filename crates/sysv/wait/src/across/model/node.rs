//! A kernel: what is below the code that waits.

use crate::wakeups::Wakeups;
use crate::Waited;
use core::time::Duration;
use vshmem_pool::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_pool::model::Process;
use vshmem_pool::tuning::LONGEST_NAP;
use vshmem_pool::{Kernel, Pool};

/// The peer number of the host.
pub const HOST: u16 = 0;
/// The number of what waits for interrupts: no thread of a kernel.
const LINES: u16 = u16::MAX;

/// A kernel: the host's, which has futexes, or a machine's, which may have the driver.
#[derive(Clone, Copy)]
pub struct Node {
    pub pool: Pool,
    pub member: u16,
    pub peer: u16,
    pub has_driver: bool,
}

fn waited(waited: vshmem_pool::Waited) -> Waited {
    match waited {
        vshmem_pool::Waited::TimedOut => Waited::TimedOut,
        _ => Waited::Woken,
    }
}

impl Node {
    /// The kernel's process, as the checker has it.
    pub fn process(self) -> Process {
        Process { naps: LONGEST_NAP, number: self.peer }
    }

    /// Joins the kernels that ring doorbells.
    pub fn join(self) {
        self.pool.join_doorbells(self.member, self.peer);
    }

    /// The line to a peer, where doorbells melt into one. It lies in memory that the pool does not use.
    fn line(self, peer: u16) -> &'static AtomicU32 {
        let mem = self.pool.mem();
        let word = mem.word_anywhere(mem.len() as u64 - 64 * (u64::from(peer) + 1)).unwrap();
        // SAFETY: the half of a word, which lives as long, and is used as this only.
        unsafe { &*word.as_ptr().cast::<AtomicU32>() }
    }

    /// A peer gets an interrupt.
    pub fn notify(self, peer: u16) {
        let line = self.line(peer);
        line.swap(1, SeqCst);
        Process { number: LINES, ..self.process() }.wake(line, 1);
    }

    /// Waits until an interrupt comes.
    pub fn wait_for_interrupt(self) {
        let line = self.line(self.peer);
        while line.swap(0, SeqCst) == 0 {
            Process { number: LINES, ..self.process() }.wait(line, 0, None);
        }
    }
}

impl Wakeups for Node {
    fn can_futex(&self) -> bool {
        self.peer == HOST
    }
    fn sleep_by_futex(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        assert!(self.can_futex());
        waited(self.process().wait(word, expected, timeout))
    }
    fn wake_by_futex(&self, word: &AtomicU32, n: u32) -> u32 {
        assert!(self.can_futex());
        self.process().wake(word, n)
    }
    fn has_driver(&self) -> bool {
        self.has_driver
    }
    /// Its lock orders its look at the word, nothing else does.
    fn sleep_in_driver(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Option<Waited> {
        // Without the driver, a nap has its end by the clock.
        let timeout = if self.has_driver { timeout } else { Some(Duration::ZERO) };
        Some(waited(self.process().sleep(word, expected, timeout, Relaxed)))
    }
    fn wake_in_driver(&self, word: &AtomicU32, n: u32) -> Option<u32> {
        self.has_driver.then(|| self.process().wake(word, n))
    }
    fn peer(&self) -> Option<u16> {
        self.has_driver.then_some(self.peer)
    }
    fn ring_doorbell(&self, peer: u16) -> bool {
        if self.has_driver {
            self.notify(peer);
        }
        self.has_driver
    }
}
