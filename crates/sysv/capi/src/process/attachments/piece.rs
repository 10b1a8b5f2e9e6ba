//! A piece of an attachment.

use core::ops::Range;

/// A piece of an attachment: all of it, unless SHM_REMAP has put something else over a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The beginning of the whole attachment: the address that `shmdt` is given.
    pub base: usize,
    /// The beginning of the piece.
    pub addr: usize,
    /// Its length in bytes, whole pages.
    pub len: usize,
    /// The segment.
    pub id: i32,
    /// The pool, as an index into the open pools.
    pub pool: u8,
    /// The number of the source that it is mapped by; 0: by none.
    pub source: u64,
    /// Whether the program keeps it from children (`MADV_DONTFORK`).
    pub is_kept: bool,
    /// The offset of the segment in the pool.
    pub(super) begins: u64,
    /// Later attachments have higher numbers; the pieces of one have the same.
    pub(super) order: u64,
}

impl Piece {
    /// A whole attachment, later than all that is in the table until it is entered there.
    pub fn whole(range: Range<usize>, begins: u64, id: i32, pool: usize, source: u64) -> Piece {
        let (base, addr, len, pool, order) = (range.start, range.start, range.len(), pool as u8, u64::MAX);
        Piece { base, addr, len, id, pool, source, is_kept: false, begins, order }
    }

    /// The offset of the piece in the pool.
    pub fn offset(&self) -> u64 {
        self.begins.wrapping_add(self.addr.wrapping_sub(self.base) as u64)
    }

    /// Does the attachment begin with it?
    pub fn is_whole(&self) -> bool {
        self.addr == self.base
    }

    /// The piece of an attachment, at the addresses to which a program has moved it.
    pub fn moved(&self, to: Range<usize>) -> Piece {
        Piece { base: to.start, addr: to.start, len: to.len(), begins: self.offset(), ..*self }
    }

    /// Another one, of the memory that is mapped at an address within it.
    pub fn doubled(&self, addr: usize, to: Range<usize>) -> Piece {
        let begins = self.offset() + (addr - self.addr) as u64;
        Piece { begins, ..self.moved(to) }
    }

    /// Later attachments have higher numbers.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// The addresses.
    pub fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.len
    }

    /// Does all of it lie in a range of addresses?
    pub fn lies_in(&self, range: &Range<usize>) -> bool {
        range.start <= self.addr && self.addr + self.len <= range.end
    }

    /// Does it have a page of the range?
    pub fn meets(&self, range: &Range<usize>) -> bool {
        self.addr < range.end && range.start < self.addr + self.len
    }

    /// The parts of it outside of a range: before that, and behind it.
    pub fn without(&self, range: &Range<usize>) -> [Option<Piece>; 2] {
        let mine = self.range();
        let part =
            |from: usize, to: usize| (from < to).then(|| Piece { addr: from, len: to - from, ..*self });
        let before = part(mine.start, mine.end.min(range.start));
        let behind = part(mine.start.max(range.end), mine.end);
        [before, behind]
    }
}
