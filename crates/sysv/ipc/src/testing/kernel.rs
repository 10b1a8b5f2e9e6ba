//! The kernel as a test's process sees it.

use super::{stop_for_ever, Process, LONGEST_TEST};
use crate::{Cred, Kernel, Waited};
use core::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use vshmem_pool::atomic::{AtomicU32, Ordering::SeqCst};
use vshmem_pool::layout::{PAGE, WAITING};

impl Kernel for Process {
    fn give_way(&self) -> bool {
        self.meanwhile.lock().unwrap().as_ref().map(|meanwhile| meanwhile()).is_some()
    }
    fn alive(&self, _slot: u32, pid: u32, _started: u64) -> bool {
        self.call();
        !self.world.dead().contains(&pid)
    }
    fn is_stopped(&self, pid: u32, _started: u64) -> bool {
        pid != 0 && self.world.stopped.load(SeqCst) == pid
    }
    fn is_mapped(&self, source: u64) -> bool {
        self.call();
        self.world.mapped.lock().unwrap().contains(&source)
    }
    fn block_signals(&self) -> u64 {
        self.call();
        0
    }
    fn signal_waits(&self, _old: u64) -> bool {
        self.signalled.load(SeqCst)
    }
    fn restore_signals(&self, _old: u64) {
        self.call();
    }
    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.call();
        if self.world.memory.mem().bytes(offset, len).is_none()
            || self.world.reservations.fetch_sub(1, SeqCst) <= 0
        {
            return false;
        }
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        self.world.reserved.lock().unwrap().extend(pages);
        true
    }
    fn release(&self, offset: u64, len: u64) -> bool {
        self.call();
        if self.in_machine.load(SeqCst) {
            return false;
        }
        self.world.longest_release.fetch_max(len, SeqCst);
        let whole = offset.div_ceil(PAGE)..(offset + len) / PAGE;
        let mut reserved = self.world.reserved.lock().unwrap();
        reserved.retain(|page| !whole.contains(page));
        self.world.memory.mem().zero(offset, len)
    }
    fn backed(&self, offset: u64, len: u64) -> Option<u64> {
        self.call();
        if self.in_machine.load(SeqCst) {
            return None;
        }
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        // Not while releases are held up.
        let reserved = self.world.reserved.try_lock().ok()?;
        let word = |at| self.world.memory.mem().word_anywhere(at).unwrap().load(SeqCst);
        let is_written = |page| (0..PAGE / 8).any(|i| word(page * PAGE + i * 8) != 0);
        let backed = pages.filter(|page| reserved.contains(page) || is_written(*page)).count();
        Some(backed as u64 * PAGE)
    }
    fn available_memory(&self) -> Option<u64> {
        self.call();
        // Plenty, whatever the pool has.
        Some(4 * self.world.memory.len() as u64)
    }
    fn now(&self) -> i64 {
        self.call();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |d| d.as_secs() as i64)
    }
    fn monotonic(&self) -> u64 {
        self.call();
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let real = BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        real.wrapping_mul(self.world.speed.load(SeqCst).into())
    }
    fn cred(&self) -> Cred {
        self.call();
        *self.cred.lock().unwrap()
    }
    fn rules_pool(&self) -> bool {
        !self.in_machine.load(SeqCst)
    }
    fn is_inside(&self) -> bool {
        self.inside.load(SeqCst)
    }
    fn told(&self, _segment: i32) -> Option<u64> {
        Some(self.told.load(SeqCst)).filter(|len| *len < u64::MAX)
    }
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        self.call();
        assert!(!self.is_inside(), "nobody sleeps inside");
        let end = timeout.map(|t| Instant::now() + t / self.world.speed.load(SeqCst));
        let mut held = self.world.dead();
        self.asleep.fetch_add(1, SeqCst);
        let waited = loop {
            if self.stopped.load(SeqCst) || held.contains(&self.pid) {
                drop(held);
                stop_for_ever();
            }
            if word.load(SeqCst) != expected {
                break Waited::Woken;
            }
            if self.interrupted.swap(false, SeqCst) {
                break Waited::Interrupted;
            }
            let left = end.map_or(LONGEST_TEST, |e| e.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Waited::TimedOut;
            }
            held = self.world.changed.wait_timeout(held, left).unwrap().0;
        };
        self.asleep.fetch_sub(1, SeqCst);
        drop(held);
        waited
    }
    fn patience(&self) -> Option<u64> {
        u64::try_from(self.patience.load(SeqCst)).ok()
    }
    fn wake(&self, word: &AtomicU32, _n: u32) -> u32 {
        self.call();
        let waits = self.world.pool.waiter_of(word).is_some() && word.load(SeqCst) == WAITING;
        self.world.early.fetch_add(waits.into(), SeqCst);
        // Taken once, so that nobody is between looking at the word and falling asleep.
        drop(self.world.dead());
        self.world.changed.notify_all();
        0
    }
}
