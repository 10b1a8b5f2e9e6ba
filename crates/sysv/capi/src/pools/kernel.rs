//! The kernel as a pool and the upper half see it, by the crates `transport` and `wait`.

use crate::pools::sizes::SEGMENTS;
use crate::pools::table::{OpenPool, Opened, POOLS};
use crate::pools::{heirs, sharers};
use crate::process::page::{self, unpack, Page, MAX_POOLS};
use crate::process::{gate, raw};
use crate::thread::errno::ErrnoGuard;
use crate::thread::{cred, interrupted};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use vshmem_pool::layout::PAGE;
use vshmem_pool::{Cred, Kernel, Waited};
use vshmem_transport::process;

/// The moments at which processes of a pool were last seen alive, in ticks of which the slot takes the low 16
/// bits.
struct SeenAlive([AtomicU64; 64]);

/// The moments in each of [`POOLS`].
static SEEN_ALIVE: [SeenAlive; MAX_POOLS] = [const { SeenAlive::new() }; MAX_POOLS];
/// Ticks of the time stamp counter for which a process that was seen alive counts as alive, for callers that
/// accept that: some 50 us.
const LATELY_TICKS: u64 = 2 << 16;

impl SeenAlive {
    const fn new() -> SeenAlive {
        SeenAlive([const { AtomicU64::new(0) }; 64])
    }

    /// Was the slot's process seen alive lately, or is it `alive`, which is recorded? `now` is 0 where there
    /// is no clock.
    fn lately(&self, slot: u32, now: u64, alive: impl FnOnce() -> bool) -> bool {
        let seen = &self.0[slot as usize % self.0.len()];
        let word = now & !0xffff | u64::from(slot & 0xffff);
        let last = seen.load(Ordering::Relaxed);
        if now != 0 && last & 0xffff == word & 0xffff && word.wrapping_sub(last) <= LATELY_TICKS {
            return true;
        }
        let alive = alive();
        seen.store(if alive { word } else { 0 }, Ordering::Relaxed);
        alive
    }
}

impl Kernel for OpenPool {
    fn alive(&self, slot: u32, pid: u32, started: u64) -> bool {
        self.is_mine(slot, pid) || process::is_alive(&self.asked().handle, slot, pid, started)
    }

    fn alive_lately(&self, slot: u32, pid: u32, started: u64) -> bool {
        SEEN_ALIVE[self.place()].lately(slot, cred::ticks(), || self.alive(slot, pid, started))
    }

    fn has_executed(&self, pid: u32, started: u64) -> bool {
        process::has_executed(pid, started)
    }

    fn is_stopped(&self, pid: u32, started: u64) -> bool {
        process::is_stopped(pid, started)
    }

    fn is_mapped(&self, source: u64) -> bool {
        self.asked().handle.is_mapped(source) != Some(false)
    }

    fn has_heirs(&self) -> bool {
        heirs::are_suspected()
    }

    fn block_signals(&self) -> u64 {
        gate::block_signals()
    }

    fn restore_signals(&self, old: u64) {
        gate::restore_signals(old);
    }

    fn handler_waits(&self, old: u64) -> bool {
        raw::handler_waits(old)
    }

    fn signal_waits(&self, old: u64) -> bool {
        raw::signal_waits(old)
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        let _errno = ErrnoGuard::now();
        self.asked().across().reserve(offset, len, None)
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        self.asked().handle.release(offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> bool {
        self.asked().handle.zero(offset, len)
    }

    fn told(&self, segment: i32) -> Option<u64> {
        SEGMENTS.known(self.place(), segment).map(|pages| pages * PAGE)
    }

    fn backed(&self, offset: u64, len: u64) -> Option<u64> {
        self.asked().handle.backed(offset, len)
    }

    fn available_memory(&self) -> Option<u64> {
        self.asked().handle.available_memory()
    }

    #[inline(always)]
    fn now(&self) -> i64 {
        raw::seconds()
    }

    fn monotonic(&self) -> u64 {
        vshmem_transport::time(libc::CLOCK_MONOTONIC).as_nanos() as u64
    }

    fn cred(&self) -> Cred {
        cred::now()
    }

    fn uid(&self) -> u32 {
        cred::uid()
    }

    fn rules_pool(&self) -> bool {
        !self.asked().handle.is_device()
    }

    fn in_group(&self, gid: u32) -> bool {
        cred::in_group(gid)
    }

    fn is_child_of(&self, pid: u32) -> bool {
        page::existing().map(Page::pid) != Some(pid) && !sharers::has(pid)
    }

    fn stands(&self, word: Option<&AtomicU32>) {
        interrupted::stands(word);
    }

    fn is_inside(&self) -> bool {
        gate::is_inside()
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        debug_assert!(!gate::is_inside(), "nobody sleeps inside the gate");
        let _errno = ErrnoGuard::now();
        let scope = self.scope();
        let wait = || vshmem_wait::wait(word, expected, timeout, scope);
        let pid = page::existing().map(Page::pid);
        let waited = interrupted::during(word, wait);
        if page::existing().map(Page::pid) != pid {
            return Waited::Forked;
        }
        match waited {
            vshmem_wait::Waited::Woken => Waited::Woken,
            vshmem_wait::Waited::TimedOut => Waited::TimedOut,
            vshmem_wait::Waited::Interrupted => Waited::Interrupted,
        }
    }

    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        let _errno = ErrnoGuard::now();
        vshmem_wait::wake(word, n, self.scope())
    }

    fn has_sleeper(&self, word: &AtomicU32) -> bool {
        let _errno = ErrnoGuard::now();
        vshmem_wait::has_sleeper(word, self.scope())
    }

    fn spin_rounds(&self) -> u32 {
        vshmem_wait::rounds(self.scope())
    }

    fn rounds_in_flow(&self) -> u32 {
        vshmem_wait::rounds_in_flow(self.scope())
    }

    fn glance(&self) -> u32 {
        vshmem_wait::glance(self.scope())
    }

    fn give_way(&self) -> bool {
        raw::give_way();
        true
    }

    #[inline(always)]
    fn spinning_pays(&self) -> bool {
        vshmem_wait::spin::pays()
    }

    fn back_off(&self, pauses: u32) {
        (0..pauses).for_each(|_| vshmem_wait::spin::pause());
    }

    fn spinning(&self) {
        vshmem_wait::spin::pause();
        cred::keep();
    }

    fn spun(&self, worth_it: bool) {
        vshmem_wait::spin::spun(worth_it);
    }
}

impl OpenPool {
    /// The open pool: only one that is open is asked for its kernel.
    #[inline(always)]
    fn asked(&self) -> &'static Opened {
        // SAFETY: a call is made on pools that are open.
        unsafe { self.opened() }
    }

    /// Is a slot of the pool the calling process's own? One that it had before it executed this program,
    /// under the same pid, is not.
    fn is_mine(&self, slot: u32, pid: u32) -> bool {
        page::existing().is_some_and(|page| {
            let me = unpack(page.memberships[self.place()].me.load(Ordering::Acquire));
            pid == page.pid() && me.is_some_and(|me| me.slot == slot)
        })
    }

    /// The pool's place among [`POOLS`].
    fn place(&self) -> usize {
        let ahead = core::ptr::from_ref(self) as usize - POOLS.as_ptr() as usize;
        ahead / size_of::<OpenPool>()
    }

    /// The kernels whose threads may wait for words of this pool.
    fn scope(&self) -> vshmem_wait::Scope<'_> {
        let opened = self.asked();
        if opened.handle.can_futex() && opened.pool.is_alone(opened.member) {
            vshmem_wait::Scope::Kernel
        } else {
            vshmem_wait::Scope::Machines(opened.across())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_seen_alive_in_one_pool_may_be_dead_in_another() {
        let now = 1 << 40;
        let [first, second] = [&POOLS[1], &POOLS[2]].map(|pool| &SEEN_ALIVE[pool.place()]);
        assert!(first.lately(3, now, || true));
        assert!(first.lately(3, now + 1, || false), "seen a moment ago");
        assert!(!second.lately(3, now + 1, || false), "in another pool");
        assert!(!first.lately(3, now + 2 * LATELY_TICKS, || false), "long ago");
        assert!(first.lately(3, now, || true));
        assert!(!first.lately(3 + 64, now + 1, || false), "another slot");
    }

    #[test]
    fn pools_know_their_places() {
        assert!((0..MAX_POOLS).all(|i| POOLS[i].place() == i));
    }
}
