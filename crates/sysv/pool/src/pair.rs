//! Sixteen bytes that change at once.

use crate::atomic::{AtomicU64, Ordering};
use crate::mem::Shared;

/// Two 64-bit words that one compare-and-swap replaces together.
///
/// The words may also be read, and changed by 64-bit atomic operations, one by one: a later [`Pair::cas`]
/// with an outdated value of either word fails.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct Pair {
    /// The low word.
    pub lo: AtomicU64,
    /// The high word.
    pub hi: AtomicU64,
}

// SAFETY: two atomics, every bit pattern valid.
unsafe impl Shared for Pair {}

impl Pair {
    /// Both words, each read atomically, but not both at one moment: [`Pair::cas`] tells whether they belong
    /// together.
    #[inline]
    pub fn load(&self) -> (u64, u64) {
        #[cfg(feature = "model")]
        crate::model::execution::is_pair(core::ptr::from_ref(self) as usize);
        (self.lo.load(Ordering::Acquire), self.hi.load(Ordering::Acquire))
    }

    /// Replaces the low word alone if it equals `old`, whatever the high word is. Sequentially consistent.
    #[inline]
    pub fn cas_low(&self, old: u64, new: u64) -> bool {
        self.lo.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Replaces `old` by `new` if both words equal `old`; otherwise returns what they were. Sequentially
    /// consistent.
    #[inline]
    pub fn cas(&self, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
        let (lo, hi) = self.replace(old, new);
        if (lo, hi) == old {
            Ok(())
        } else {
            Err((lo, hi))
        }
    }

    /// Replaces `old` by `new` if both words equal `old`; returns what they were.
    #[inline(always)]
    fn replace(&self, old: (u64, u64), new: (u64, u64)) -> (u64, u64) {
        #[cfg(feature = "model")]
        if let Some(was) = crate::model::execution::replace_pair(core::ptr::from_ref(self) as usize, old, new)
        {
            return was;
        }
        told::before(self);
        let was = (self as *const Pair).cast_mut().cast::<u64>().swap_pair(old, new);
        told::after(self);
        was
    }
}

/// ThreadSanitizer sees no atomic operation in assembly, so it is told of it (scripts/sanitize.sh).
mod told {
    use super::Pair;

    #[cfg(tsan)]
    extern "C" {
        fn __tsan_release(address: *const Pair);
        fn __tsan_acquire(address: *const Pair);
    }

    #[inline(always)]
    pub fn before(_pair: &Pair) {
        #[cfg(tsan)]
        // SAFETY: the addresses are only compared with others.
        unsafe {
            __tsan_release(_pair);
            __tsan_release(core::ptr::from_ref(&_pair.hi).cast());
        }
    }

    #[inline(always)]
    pub fn after(_pair: &Pair) {
        #[cfg(tsan)]
        // SAFETY: the addresses are only compared with others.
        unsafe {
            __tsan_acquire(_pair);
            __tsan_acquire(core::ptr::from_ref(&_pair.hi).cast());
        }
    }
}

trait SwapPair {
    fn swap_pair(self, old: (u64, u64), new: (u64, u64)) -> (u64, u64);
}

/// Miri has no assembly. For it both words are replaced one after the other: tests that race here are not for
/// it.
#[cfg(miri)]
impl SwapPair for *mut u64 {
    fn swap_pair(self, old: (u64, u64), new: (u64, u64)) -> (u64, u64) {
        // SAFETY: called by Pair::cas only, so self points to a live, 16-byte aligned pair of words.
        let pair = unsafe { &*self.cast::<Pair>() };
        let was = pair.load();
        if was == old {
            pair.lo.store(new.0, Ordering::SeqCst);
            pair.hi.store(new.1, Ordering::SeqCst);
        }
        was
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl SwapPair for *mut u64 {
    #[inline(always)]
    fn swap_pair(self, old: (u64, u64), new: (u64, u64)) -> (u64, u64) {
        let (mut lo, mut hi) = old;
        // SAFETY: called by Pair::cas only, so self points to a live, 16-byte aligned pair of words. rbx
        // can't be named as an operand, so it is exchanged in and put back; the other operands are in named
        // registers, because the compiler may give rbx to one that is not. Every x86-64 processor that a
        // supported distribution runs in a virtual machine has cmpxchg16b (only the first AMD64 parts of 2003
        // lack it).
        unsafe {
            core::arch::asm!(
                "xchg rsi, rbx",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                in("rdi") self,
                inout("rsi") new.0 => _,
                in("rcx") new.1,
                inout("rax") lo,
                inout("rdx") hi,
                options(nostack),
            );
        }
        (lo, hi)
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
impl SwapPair for *mut u64 {
    #[inline(always)]
    fn swap_pair(self, old: (u64, u64), new: (u64, u64)) -> (u64, u64) {
        let (lo, hi): (u64, u64);
        // SAFETY: called by Pair::cas only, so self points to a live, 16-byte aligned pair of words. A pair
        // that was read as different is written back unchanged, which makes the read of both words
        // single-copy atomic.
        unsafe {
            core::arch::asm!(
                "2:",
                "ldaxp {lo}, {hi}, [{ptr}]",
                "cmp {lo}, {old_lo}",
                "ccmp {hi}, {old_hi}, #0, eq",
                "b.ne 3f",
                "stlxp {fail:w}, {new_lo}, {new_hi}, [{ptr}]",
                "cbnz {fail:w}, 2b",
                "b 4f",
                "3:",
                "stlxp {fail:w}, {lo}, {hi}, [{ptr}]",
                "cbnz {fail:w}, 2b",
                "4:",
                ptr = in(reg) self,
                lo = out(reg) lo, hi = out(reg) hi,
                old_lo = in(reg) old.0, old_hi = in(reg) old.1,
                new_lo = in(reg) new.0, new_hi = in(reg) new.1,
                fail = out(reg) _,
                options(nostack),
            );
        }
        (lo, hi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread, vec::Vec};

    #[test]
    fn replaces_both_or_none() {
        let p = Pair::default();
        assert_eq!(p.cas((0, 0), (1, 2)), Ok(()));
        assert_eq!(p.cas((1, 3), (9, 9)), Err((1, 2)));
        assert_eq!(p.cas((0, 2), (9, 9)), Err((1, 2)));
        assert_eq!(p.load(), (1, 2));
    }

    #[test]
    fn replaces_the_low_word_alone() {
        let p = Pair::default();
        assert_eq!(p.cas((0, 0), (1, 2)), Ok(()));
        assert!(p.cas_low(1, 7) && !p.cas_low(1, 8));
        assert_eq!(p.load(), (7, 2));
    }

    #[cfg_attr(miri, ignore)] // it races
    #[test]
    fn no_update_is_lost_between_threads() {
        let p = Arc::new(Pair::default());
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let p = p.clone();
                thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut old = p.load();
                        if i == 0 {
                            while !p.cas_low(old.0, old.0 + 1) {
                                old = p.load();
                            }
                            continue;
                        }
                        while let Err(now) = p.cas(old, (old.0 + 1, old.1.wrapping_sub(1))) {
                            old = now;
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(p.load(), (80_000, 0u64.wrapping_sub(60_000)));
    }
}
