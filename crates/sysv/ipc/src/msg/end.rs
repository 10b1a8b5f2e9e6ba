//! The two ends of a ring: position and counts, moved by one compare-and-swap.

use crate::{pid_word, Ctx};
use vshmem_pool::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::layout::MsgEnd;
use vshmem_pool::log::{Full, Txn};
use vshmem_pool::tuning::{FAST_ATTEMPTS, MOST_BEATEN, MOST_DOUBLED};

/// The bit by which fast paths keep off.
pub const SLOW: u64 = 1 << 63;
/// Most cells that an end can move by at once.
pub const MAX_STEP: u32 = (1 << 15) - 1;

/// An end, as its pair says it: `{position:32, bytes:32}` and `{messages:32, mover's slot + 1:16, step:15,
/// SLOW:1}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Position: the tail or the head.
    pub pos: u32,
    /// Bytes of text that ever passed.
    pub bytes: u32,
    /// Messages that ever passed.
    pub msgs: u32,
    /// Slot + 1 of the process that moved it last; 0: none.
    pub owner: u16,
    /// Cells that it was moved by.
    pub step: u16,
    /// Fast paths keep off.
    pub slow: bool,
}

impl At {
    /// Reads a pair.
    #[inline]
    pub fn of((lo, hi): (u64, u64)) -> At {
        At {
            pos: lo as u32,
            bytes: (lo >> 32) as u32,
            msgs: hi as u32,
            owner: (hi >> 32) as u16,
            step: (hi >> 48) as u16 & 0x7fff,
            slow: hi & SLOW != 0,
        }
    }

    /// The pair.
    #[inline]
    pub const fn words(self) -> (u64, u64) {
        let slow = if self.slow { SLOW } else { 0 };
        (
            self.pos as u64 | (self.bytes as u64) << 32,
            self.msgs as u64 | (self.owner as u64) << 32 | (self.step as u64) << 48 | slow,
        )
    }

    /// Counts alone, as the other end remembers them.
    #[inline]
    pub const fn counts(self) -> u64 {
        self.bytes as u64 | (self.msgs as u64) << 32
    }
}

// As docs/layout.md has it.
const _: () = {
    let at = At { pos: 1, bytes: 2, msgs: 3, owner: 4, step: 5, slow: false };
    let (lo, hi) = at.words();
    assert!(lo == 2 << 32 | 1 && hi == 5 << 48 | 4 << 32 | 3);
    assert!(At { slow: true, ..at }.words().1 == 1 << 63 | hi && at.counts() == 3 << 32 | 2);
    assert!(MAX_STEP == (1 << 15) - 1);
};

/// Reads an end at one moment. Only who scribbles changes it again and again in the nanosecond between two
/// looks.
#[inline]
pub fn read(end: &MsgEnd) -> At {
    let mut pair = end.at.load();
    for _ in 0..FAST_ATTEMPTS {
        if end.at.lo.load(Acquire) == pair.0 {
            break;
        }
        pair = end.at.load();
    }
    At::of(pair)
}

/// The position of an end, to see whether it moves.
#[inline]
pub fn position(end: &MsgEnd) -> u64 {
    end.at.lo.load(Relaxed)
}

/// A caller that another process was faster than leaves an end alone for some pauses, twice as many each
/// time. Else each of many would fetch the line from the others all the time, and the one that has moved the
/// end could not go on.
#[cold]
pub fn was_beaten(c: &Ctx, first: u32, times: &mut u32) {
    if *times < MOST_BEATEN {
        c.kernel.back_off(first << (*times).min(MOST_DOUBLED));
    }
    *times += 1;
}

/// Moves an end in a transaction.
pub fn put(txn: &mut Txn, end: &MsgEnd, at: At) -> Result<(), Full> {
    let (lo, hi) = at.words();
    txn.put(&end.at.lo, lo)?;
    txn.put(&end.at.hi, hi)
}

/// Keeps fast paths off an end.
pub fn freeze(end: &MsgEnd) {
    end.at.hi.fetch_or(SLOW, AcqRel);
}

/// Lets fast paths use an end again.
pub fn thaw(end: &MsgEnd) {
    end.at.hi.fetch_and(!SLOW, AcqRel);
}

/// Time and pid of the caller, as the last process at an end. Written only when they change.
#[inline(always)]
pub fn record_use(c: &Ctx, end: &MsgEnd, now: i64) {
    note_use(end, pid_word(c), now);
}

/// Time and pid word of the last process at an end. Written only when they change.
#[inline(always)]
pub fn note_use(end: &MsgEnd, pid: u64, now: i64) {
    if end.time.load(Relaxed) != now {
        end.time.store(now, Relaxed);
    }
    if end.pid.load(Relaxed) != pid {
        end.pid.store(pid, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_survive_packing() {
        let at = At { pos: 0x8000_0001, bytes: u32::MAX, msgs: 7, owner: 65535, step: 0x7fff, slow: true };
        assert_eq!(At::of(at.words()), at);
        let at = At { slow: false, step: 1, ..at };
        assert_eq!(At::of(at.words()), at);
    }
}
