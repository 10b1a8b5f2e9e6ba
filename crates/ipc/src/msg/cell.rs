//! Cells: 128 bytes, of which the first eight are the state.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::Mem;

/// Bytes in a cell.
pub const CELL: u64 = 128;
/// Bytes of text in a message's first cell, which also has the type.
pub const FIRST_TEXT: usize = 112;
/// Bytes of those in the line that has the state.
const FIRST_LINE_TEXT: usize = 48;
/// Bytes of text in the others.
pub const MORE_TEXT: usize = 120;

/// What a message's first cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Free for a message of this lap; or taken by a sender that has not written its name yet.
    ///
    /// Not 0: a late comer must not mistake memory that became somebody else's for a free cell.
    Free = 6,
    /// Taken by a sender who is named, and not finished. `len` counts cells.
    Reserved = 1,
    /// A message.
    Ready = 2,
    /// A message that is being copied out by the receiver that is named.
    Taken = 3,
    /// A message that was handed to a waiting receiver, who is named.
    Assigned = 4,
    /// No message any more, still in the ring because something before it is. `len` counts cells.
    Consumed = 5,
}

/// A cell's state word: `{state:4, lap:20, len:24, owner:16}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// State.
    pub state: State,
    /// Low 20 bits of the lap.
    pub lap: u32,
    /// Bytes of text, or cells.
    pub len: u32,
    /// Process slot + 1, 0: nobody.
    pub owner: u16,
}

/// The part of a lap that a mark keeps.
pub const LAP: u32 = (1 << 20) - 1;

impl Mark {
    /// The word.
    #[inline]
    pub fn word(self) -> u64 {
        self.state as u64
            | ((self.lap & LAP) as u64) << 4
            | (self.len as u64 & 0xff_ffff) << 24
            | (self.owner as u64) << 48
    }

    /// Reads a word; `None` if no such state exists.
    #[inline]
    pub fn of(word: u64) -> Option<Mark> {
        let state = match word & 15 {
            6 => State::Free,
            1 => State::Reserved,
            2 => State::Ready,
            3 => State::Taken,
            4 => State::Assigned,
            5 => State::Consumed,
            _ => return None,
        };
        Some(Mark {
            state,
            lap: (word >> 4) as u32 & LAP,
            len: (word >> 24) as u32 & 0xff_ffff,
            owner: (word >> 48) as u16,
        })
    }

    /// A free cell of a lap.
    #[inline]
    pub fn free(lap: u32) -> Mark {
        Mark {
            state: State::Free,
            lap: lap & LAP,
            len: 0,
            owner: 0,
        }
    }
}

/// Cells that a message of `len` bytes takes.
#[inline]
pub fn cells_for(len: usize) -> u32 {
    if len <= FIRST_TEXT {
        1
    } else {
        1 + (len - FIRST_TEXT).div_ceil(MORE_TEXT) as u32
    }
}

/// A ring that was checked to lie inside the pool.
#[derive(Clone, Copy)]
pub struct Ring {
    mem: Mem,
    at: u64,
    cells: u32,
}

impl Ring {
    /// The ring at an offset; `None` if it is not inside the pool, or not a ring.
    #[inline]
    pub fn at(mem: Mem, at: u64, cells: u64) -> Option<Ring> {
        if !cells.is_power_of_two() || cells > 1 << 20 || at % 64 != 0 {
            return None;
        }
        mem.bytes(at, cells * CELL)?;
        Some(Ring {
            mem,
            at,
            cells: cells as u32,
        })
    }

    /// Cells in the ring.
    #[inline]
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// Offset of the ring.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The lap of a position.
    #[inline]
    pub fn lap(&self, pos: u32) -> u32 {
        pos >> self.cells.trailing_zeros() & LAP
    }

    fn cell(&self, pos: u32) -> *mut u8 {
        let index = pos & (self.cells - 1);
        // SAFETY: the index is below the number of cells, all of which `at` found to be inside the mapping.
        unsafe {
            self.mem
                .base()
                .add((self.at + index as u64 * CELL) as usize)
        }
    }

    /// Offset in the pool of a position's state word.
    pub fn state_offset(&self, pos: u32) -> u64 {
        self.at + (pos & (self.cells - 1)) as u64 * CELL
    }

    /// A position's state word.
    #[inline]
    pub fn state(&self, pos: u32) -> &'static AtomicU64 {
        // SAFETY: `cell` is inside the mapping and 64-byte aligned; atomics accept every bit pattern.
        unsafe { &*self.cell(pos).cast::<AtomicU64>() }
    }

    /// A position's mark, if it is of the position's lap.
    #[inline]
    pub fn mark(&self, pos: u32) -> Option<Mark> {
        Mark::of(self.state(pos).load(Acquire)).filter(|m| m.lap == self.lap(pos))
    }

    /// Is the cell free for this lap?
    #[inline]
    pub fn is_free(&self, pos: u32) -> bool {
        self.state(pos).load(Acquire) == Mark::free(self.lap(pos)).word()
    }

    /// The mark of a free cell for a position's next lap.
    #[inline]
    pub fn next_free(&self, pos: u32) -> Mark {
        Mark::free(self.lap(pos).wrapping_add(1))
    }

    /// A message's type.
    #[inline]
    pub fn kind(&self, pos: u32) -> i64 {
        // SAFETY: bytes 8..16 of a cell are inside the mapping and aligned.
        unsafe { (*self.cell(pos).add(8).cast::<AtomicU64>()).load(Acquire) as i64 }
    }

    /// Writes type and text of a message, not its state.
    ///
    /// # Safety
    /// `text` must point to `len` readable bytes, and the cells must be the caller's.
    pub unsafe fn write(&self, pos: u32, kind: i64, text: *const u8, len: usize) {
        // SAFETY: as in `kind`; the caller owns the cells.
        let n = len.min(FIRST_TEXT);
        let (mut done, first) = (n, pos);
        let mut pos = pos;
        while done < len {
            pos = pos.wrapping_add(1);
            let n = (len - done).min(MORE_TEXT);
            // SAFETY: a cell has MORE_TEXT bytes after its state; `text` has at least done + n bytes.
            unsafe { core::ptr::copy_nonoverlapping(text.add(done), self.cell(pos).add(8), n) };
            done += n;
        }
        // The line that has the state comes last, all at once: a receiver looks at it all the time.
        let near = n.min(FIRST_LINE_TEXT);
        // SAFETY: the first cell has FIRST_TEXT bytes after state and type; `text` has at least n by the contract.
        unsafe {
            let to = self.cell(first).add(16);
            core::ptr::copy_nonoverlapping(text.add(near), to.add(near), n - near);
            core::ptr::copy_nonoverlapping(text, to, near);
            (*self.cell(first).add(8).cast::<AtomicU64>()).store(kind as u64, Relaxed);
        }
    }

    /// Asks for the first cell's lines, to write to them soon, or to read.
    #[inline]
    pub fn prefetch(&self, pos: u32, to_write: bool) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the cell is inside the mapping; a prefetch does not fault anyway.
        unsafe {
            use core::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0, _MM_HINT_T0};
            let at = self.cell(pos).cast::<i8>();
            if to_write {
                _mm_prefetch(at, _MM_HINT_ET0);
                _mm_prefetch(at.add(64), _MM_HINT_ET0);
            } else {
                _mm_prefetch(at.add(64), _MM_HINT_T0);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (pos, to_write);
    }

    /// Copies `len` bytes of a message's text out.
    ///
    /// # Safety
    /// `text` must point to `len` writable bytes.
    pub unsafe fn read(&self, pos: u32, text: *mut u8, len: usize) {
        let n = len.min(FIRST_TEXT);
        // SAFETY: as in `write`, in the other direction; racing writers cost the text, not us.
        unsafe { core::ptr::copy_nonoverlapping(self.cell(pos).add(16), text, n) };
        let (mut done, mut pos) = (n, pos);
        while done < len {
            pos = pos.wrapping_add(1);
            let n = (len - done).min(MORE_TEXT);
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(self.cell(pos).add(8), text.add(done), n) };
            done += n;
        }
    }

    /// Copies the text of a message of another ring (type too), cell by cell.
    pub fn copy_message(&self, pos: u32, from: &Ring, from_pos: u32, cells: u32) {
        for i in 0..cells {
            let (to, of) = (
                self.cell(pos.wrapping_add(i)),
                from.cell(from_pos.wrapping_add(i)),
            );
            // SAFETY: both cells are inside the mapping, and rings don't overlap (the heap gave them out).
            unsafe { core::ptr::copy(of.add(8), to.add(8), MORE_TEXT) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_packing() {
        for state in [
            State::Free,
            State::Reserved,
            State::Ready,
            State::Taken,
            State::Assigned,
            State::Consumed,
        ] {
            let mark = Mark {
                state,
                lap: 0xabcde,
                len: 0x123456,
                owner: 65535,
            };
            assert_eq!(Mark::of(mark.word()), Some(mark));
        }
        assert_eq!(Mark::of(0), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(cells_for(0), 1);
        assert_eq!(cells_for(112), 1);
        assert_eq!(cells_for(113), 2);
        assert_eq!(cells_for(112 + 120), 2);
        assert_eq!(cells_for(112 + 121), 3);
    }
}
