//! The memory of a ring: heads of 32 bytes, then as many cells of 64 bytes of text.
//!
//! Heads and text are apart so that a position's mark is never anything but a mark: text that looks like one
//! can't be mistaken for it, and a long message needs one mark only. So the text is contiguous, and the cells
//! of a received message are not written to again until they carry the next one.

use super::mark::{Mark, State, LAP};
use core::ptr::NonNull;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::atomic::{self, AtomicU64};
use vshmem_pool::Mem;

/// Bytes of a head: mark, type, and a short text.
const HEAD: u64 = 32;
/// Bytes for each cell that the ring does not use.
const SPARE: u64 = 32;
/// Bytes of text in a cell.
pub const CELL: usize = 64;
/// Bytes of a text that is short enough to stand in the head.
pub const SHORT: usize = 16;
/// Most cells of a ring: 128 MiB.
pub const MOST_CELLS: u32 = 1 << 20;

// As docs/layout.md has it.
const _: () = assert!(HEAD == 32 && CELL == 64 && SHORT == 16 && bytes(1) == 128);

/// Cells that a message of `len` bytes takes.
#[inline]
pub fn cells_for(len: usize) -> u32 {
    len.div_ceil(CELL).max(1) as u32
}

/// Bytes that a ring of so many cells takes. The last quarter is not used: the heap is best at powers of two.
#[inline]
pub const fn bytes(cells: u64) -> u64 {
    cells * (HEAD + CELL as u64 + SPARE)
}

/// A ring that was checked to lie inside the pool.
#[derive(Clone, Copy)]
pub struct Ring {
    base: NonNull<u8>,
    at: u64,
    cells: u32,
}

impl Ring {
    /// The ring at an offset; `None` if it is not inside the pool, or not a ring.
    #[inline]
    pub fn at(mem: &Mem, at: u64, cells: u64) -> Option<Ring> {
        if !cells.is_power_of_two() || cells > MOST_CELLS as u64 || at % 64 != 0 {
            return None;
        }
        mem.bytes(at, bytes(cells))?;
        Some(Ring { base: NonNull::new(mem.base())?, at, cells: cells as u32 })
    }

    /// The ring as words that [`Ring::of_words`] reads.
    pub fn words(&self) -> [u64; 3] {
        [self.base.as_ptr().expose_provenance() as u64, self.at, self.cells.into()]
    }

    /// Reads words.
    ///
    /// # Safety
    /// They are those of a ring in this process, whose pool is still mapped.
    #[inline(always)]
    pub unsafe fn of_words([base, at, cells]: [u64; 3]) -> Ring {
        // SAFETY: the address of a mapping, as the caller vouches.
        let base = unsafe { NonNull::new_unchecked(core::ptr::with_exposed_provenance_mut(base as usize)) };
        Ring { base, at, cells: cells as u32 }
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

    #[inline]
    fn index(&self, pos: u32) -> u64 {
        (pos & (self.cells - 1)).into()
    }

    /// Offset in the pool of a position's mark.
    #[inline]
    pub fn mark_offset(&self, pos: u32) -> u64 {
        self.at + self.index(pos) * HEAD
    }

    #[inline]
    fn head(&self, pos: u32) -> *mut u8 {
        // SAFETY: the index is below the number of cells, all heads of which `at` found to be inside the
        // mapping.
        unsafe { self.base.as_ptr().add(self.mark_offset(pos) as usize) }
    }

    #[inline]
    fn cell(&self, pos: u32) -> *mut u8 {
        let at = self.at + u64::from(self.cells) * HEAD + self.index(pos) * CELL as u64;
        // SAFETY: the index is below the number of cells, all of which `at` found to be inside the mapping.
        unsafe { self.base.as_ptr().add(at as usize) }
    }

    /// A position's mark, as it is.
    #[inline]
    pub fn mark_word(&self, pos: u32) -> &'static AtomicU64 {
        // SAFETY: `head` is inside the mapping and 32-byte aligned; atomics accept every bit pattern.
        unsafe { &*self.head(pos).cast::<AtomicU64>() }
    }

    /// A position's mark, if it is of the position's lap and says something.
    #[inline]
    pub fn mark(&self, pos: u32) -> Option<Mark> {
        self.valid(pos, self.mark_word(pos).load(Acquire))
    }

    /// Bytes of the message at a position, if there is one that nobody has taken.
    #[inline(always)]
    pub fn ready(&self, pos: u32) -> Option<usize> {
        let mark = self.mark_word(pos).load(Acquire);
        let ready = Mark { state: State::Ready, lap: self.lap(pos), len: 0, owner: 0 }.word();
        // State and lap.
        ((mark ^ ready) as u32 & 0xff_ffff == 0).then_some((mark >> 24) as usize & 0xff_ffff)
    }

    /// The mark that a word holds at a position, if it is of the position's lap.
    #[inline]
    pub fn valid(&self, pos: u32, word: u64) -> Option<Mark> {
        Mark::of(word).filter(|m| m.lap == self.lap(pos))
    }

    /// A message's type.
    #[inline]
    pub fn kind(&self, pos: u32) -> i64 {
        // SAFETY: bytes 8..16 of a head are inside the mapping and aligned.
        unsafe { (*self.head(pos).add(8).cast::<AtomicU64>()).load(Acquire) as i64 }
    }

    /// Writes type and text of a message, not its mark.
    ///
    /// # Safety
    /// `text` must point to `len` readable bytes, and the cells must be the caller's and enough.
    #[inline(always)]
    pub unsafe fn write(&self, pos: u32, kind: i64, text: *const u8, len: usize) {
        // SAFETY: the caller vouches for text and cells, of which the first has CELL bytes.
        unsafe {
            if len > CELL {
                self.write_several(pos, text, len);
            } else if len > SHORT {
                atomic::copy_in(text, self.cell(pos), len);
            }
        }
        // The head comes last, all at once: a receiver looks at it all the time.
        // SAFETY: bytes 8..16 and 16..32 of a head are inside the mapping; `text` has `len` bytes.
        unsafe {
            (*self.head(pos).add(8).cast::<AtomicU64>()).store(kind as u64, Relaxed);
            if len <= SHORT {
                atomic::copy_in(text, self.head(pos).add(16), len);
            }
        }
    }

    /// Writes a text to several cells.
    ///
    /// # Safety
    /// As for [`Ring::write`].
    #[inline(never)]
    unsafe fn write_several(self, pos: u32, text: *const u8, len: usize) {
        let near = self.until_the_end(pos, len);
        // SAFETY: the first part ends with the ring at the latest, the second begins with it and is shorter
        // than it; `text` has `len` bytes.
        unsafe {
            atomic::copy_in(text, self.cell(pos), near);
            if near < len {
                atomic::copy_in(text.add(near), self.cell(0), len - near);
            }
        }
    }

    /// Copies the first `part` bytes of a message's text, which has `len` bytes, out.
    ///
    /// # Safety
    /// `text` must point to `part` writable bytes.
    #[inline(always)]
    pub unsafe fn read(&self, pos: u32, len: usize, text: *mut u8, part: usize) {
        let part = part.min(len).min(self.cells as usize * CELL);
        if len <= SHORT {
            // SAFETY: a head has so many bytes behind the type; racing writers cost the text, not us.
            unsafe { atomic::copy_out(self.head(pos).add(16), text, part) };
            return;
        }
        if part <= CELL {
            // SAFETY: a cell has so many bytes; racing writers cost the text, not us.
            unsafe { atomic::copy_out(self.cell(pos), text, part) };
            return;
        }
        // SAFETY: the caller vouches for the buffer.
        unsafe { self.read_several(pos, text, part) };
    }

    /// Copies the first bytes of a text out of several cells, no more than the ring has.
    ///
    /// # Safety
    /// As for [`Ring::read`].
    #[inline(never)]
    unsafe fn read_several(self, pos: u32, text: *mut u8, part: usize) {
        let near = self.until_the_end(pos, part);
        // SAFETY: as in `write_several`, in the other direction.
        unsafe {
            atomic::copy_out(self.cell(pos), text, near);
            if near < part {
                atomic::copy_out(self.cell(0), text.add(near), part - near);
            }
        }
    }

    /// The part of `len` bytes from a position that fits before the ring begins again, in bytes.
    #[inline]
    fn until_the_end(&self, pos: u32, len: usize) -> usize {
        len.min((self.cells as usize - self.index(pos) as usize) * CELL)
    }

    /// Asks for the lines of a message's beginning, to write to them soon.
    #[inline]
    pub fn prefetch_to_write(&self, pos: u32) {
        atomic::prefetch_to_write(self.cell(pos));
        atomic::prefetch_to_write(self.head(pos));
    }

    /// Asks for the first line of a message's text, to read it soon.
    #[inline]
    pub fn prefetch_to_read(&self, pos: u32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        unsafe {
            use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch(self.cell(pos).cast::<i8>(), _MM_HINT_T0);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = pos;
    }

    /// The words in a head behind the mark: a message's type, and its text if it is short.
    pub fn head_words(&self, pos: u32) -> [&'static AtomicU64; 3] {
        let head = self.head(pos).cast::<AtomicU64>();
        // SAFETY: a head has four words, all inside the mapping and aligned.
        [1, 2, 3].map(|i| unsafe { &*head.add(i) })
    }

    /// Copies a message of another ring that nobody else is at work on.
    pub fn copy_message(&self, pos: u32, from: &Ring, from_pos: u32, mark: Mark, cells: u32) {
        self.copy_text(pos, from, from_pos, cells);
        for (to, of) in self.head_words(pos).iter().zip(from.head_words(from_pos)) {
            to.store(of.load(Relaxed), Relaxed);
        }
        let lap = self.lap(pos);
        self.mark_word(pos).store(Mark { lap, ..mark }.word(), Relaxed);
    }

    /// Copies what stands in cells of another ring.
    pub fn copy_text(&self, pos: u32, from: &Ring, from_pos: u32, cells: u32) {
        for i in 0..cells {
            let (to, of) = (pos.wrapping_add(i), from_pos.wrapping_add(i));
            // SAFETY: cells are inside the mapping, and rings don't overlap unless somebody scribbled, which
            // this stands.
            unsafe { atomic::copy_within(from.cell(of), self.cell(to), CELL) };
        }
    }

    /// Words in the last quarter of the block, which is not the ring's: a retired ring has its list there.
    pub fn spare_words(&self) -> u64 {
        u64::from(self.cells) * SPARE / 8
    }

    /// One of the spare words; the last if there are not so many.
    pub fn spare_word(&self, n: u64) -> &'static AtomicU64 {
        let n = n.min(self.spare_words() - 1);
        let at = self.at + u64::from(self.cells) * (HEAD + CELL as u64) + n * 8;
        // SAFETY: it is in the last quarter of what `at` found to be inside the mapping, and aligned as the
        // ring is.
        unsafe { &*self.base.as_ptr().add(at as usize).cast::<AtomicU64>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(cells_for(0), 1);
        assert_eq!(cells_for(64), 1);
        assert_eq!(cells_for(65), 2);
        assert_eq!(cells_for(8192), 128);
        assert_eq!(bytes(64), 8192);
    }
}
