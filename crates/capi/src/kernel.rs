//! What the pool and the upper half need of the kernel below, from the rooms `port` and `wait`.

use crate::errno::Kept;
use crate::state::OpenPool;
use crate::{cred, process, raw};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use vshmem_pool::{Cred, Kernel, Waited};

/// When a slot's process was last seen alive, in ticks of which the slot takes the low 16 bits.
static SEEN_ALIVE: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// How long that counts for those whom it is enough: some 50 us.
const LATELY: u64 = 2 << 16;

impl Kernel for OpenPool {
    fn alive(&self, slot: u32, pid: u32, started: u64) -> bool {
        if started & process::NO_LIFE_LOCK != 0 {
            return !process::is_gone(pid, started);
        }
        // SAFETY: only an open pool is asked.
        let handle = unsafe { &self.opened().handle };
        match handle.alive(slot) {
            Some(alive) => alive && !process::has_left(pid, started),
            None => !process::is_gone(pid, started),
        }
    }

    fn alive_lately(&self, slot: u32, pid: u32, started: u64) -> bool {
        let now = cred::ticks();
        let seen = &SEEN_ALIVE[slot as usize % SEEN_ALIVE.len()];
        let word = now & !0xffff | u64::from(slot & 0xffff);
        let last = seen.load(Ordering::Relaxed);
        if now != 0 && last & 0xffff == word & 0xffff && word.wrapping_sub(last) <= LATELY {
            return true;
        }
        let alive = self.alive(slot, pid, started);
        seen.store(if alive { word } else { 0 }, Ordering::Relaxed);
        alive
    }

    fn has_executed(&self, pid: u32, started: u64) -> bool {
        process::has_executed(pid, started)
    }

    fn block_signals(&self) -> u64 {
        raw::block_signals()
    }

    fn restore_signals(&self, old: u64) {
        raw::restore_signals(old);
    }

    fn handler_waits(&self, old: u64) -> bool {
        raw::handler_waits(old)
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        // SAFETY: only an open pool is asked.
        unsafe { self.opened().handle.reserve(offset, len) }
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        // SAFETY: only an open pool is asked.
        unsafe { self.opened().handle.release(offset, len) }
    }

    fn room(&self) -> Option<u64> {
        // SAFETY: only an open pool is asked.
        unsafe { self.opened().handle.statfs_room() }
    }

    fn now(&self) -> i64 {
        // SAFETY: with a null pointer, libc only returns the time; in user space, as a rule.
        unsafe { libc::time(core::ptr::null_mut()) }
    }

    fn monotonic(&self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: libc fills the structure, in user space as a rule. It can't fail for this clock, so errno stays.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn cred(&self) -> Cred {
        cred::now()
    }

    fn uid(&self) -> u32 {
        cred::uid()
    }

    fn in_group(&self, gid: u32) -> bool {
        cred::in_group(gid)
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        let _errno = Kept::now();
        match vshmem_wait::wait(word, expected, timeout, self.scope()) {
            vshmem_wait::Waited::Woken => Waited::Woken,
            vshmem_wait::Waited::TimedOut => Waited::TimedOut,
            vshmem_wait::Waited::Interrupted => Waited::Interrupted,
        }
    }

    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        let _errno = Kept::now();
        vshmem_wait::wake(word, n, self.scope())
    }

    fn spin_rounds(&self) -> u32 {
        vshmem_wait::spin::rounds(self.scope())
    }

    fn spinning(&self) {
        cred::keep();
    }

    fn spun(&self, worth_it: bool) {
        vshmem_wait::spin::spun(worth_it);
    }
}

impl OpenPool {
    /// Who may wait for the words of this pool.
    fn scope(&self) -> vshmem_wait::Scope {
        // SAFETY: only an open pool is asked.
        let opened = unsafe { self.opened() };
        if opened.handle.can_futex() && self.is_one_kernels() {
            vshmem_wait::Scope::Kernel
        } else {
            vshmem_wait::Scope::Machines
        }
    }

    /// Is our kernel the only one that uses the pool?
    fn is_one_kernels(&self) -> bool {
        // SAFETY: only an open pool is asked.
        let opened = unsafe { self.opened() };
        let mut alone = true;
        opened
            .pool
            .members(|index, _, alive| alone &= index == opened.member || !alive);
        alone
    }
}
