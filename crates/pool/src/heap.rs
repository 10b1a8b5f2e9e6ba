//! The allocator: a buddy system over equal blocks, changed through the redo log under the pool's lock.
//!
//! A word for each block says whether it is the first of a free piece, of which order, and links it into that
//! order's list. Allocated blocks have no state: whoever has them knows how many. A request takes the
//! smallest power of two that fits and gives the tail back at once, so that odd sizes waste nothing.
//!
//! A piece that becomes free is merged with its buddy, and what comes of it with its own. The last free piece
//! of an order is left out, so that a program that takes and gives the same size again and again does not
//! split and merge all orders each time. Then there are two buddies in that order's list, and nothing else.
//! They stay the first two, for others are put behind them, so an order has one such *pair* at the most, and
//! it is found at once: a request for which there is no piece merges all pairs, and looks again. So nothing
//! is refused for which there is room.
//!
//! Pages that read as zeros are not merged with pages that may not; small blocks are zeroed by whoever takes
//! them, and all the same. For pages, and for what an older library has left in pieces, there is
//! [`Heap::merge_all`]. Each of its transactions merges one piece with all that it can be merged with, so it
//! has made large pieces when its budget is spent, and who comes next goes on from there.
//!
//! How much of a log that takes: to take a piece out of a list or to put it into one changes three words, one
//! of which may be the list's head. A piece is merged less than [`ORDERS`] times. A range has two pieces of
//! an order at the most, and on each side of it there is at most one of each to merge with. That comes to
//! less than 350 entries. Merging pairs, of which there may be many, ends when half of the log is full.
//!
//! A pool's file is sparse, and touching what has no memory on a file system that is full ends the process.
//! So a block's word is written for the first time only after memory was reserved for it, when blocks are
//! taken: also for the words that giving them back will write. Giving back needs no memory. Words that may
//! have none are not looked at.

use crate::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::layout::{CHUNKS, ORDERS, PAGE};
use crate::log::{Full, Txn};
use crate::pool::Pool;

pub mod audit;
mod tidy;

pub use crate::pool::Heap;

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub first: u32,
    /// Blocks.
    pub count: u32,
    /// Some of it may not read as zeros.
    pub dirty: bool,
}

/// What a piece that becomes free is merged with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    /// With what is like it, but for the last free piece of an order.
    Lazy,
    /// With what is like it.
    Like,
    /// With whatever is free: what comes of it may not read as zeros if a part of it may not.
    Any,
}

/// Gives memory to a range of the pool (offset, length); false if there is none.
pub type Reserve<'a> = dyn FnMut(u64, u64) -> bool + 'a;

const FREE: u64 = 1 << 62;
const DIRTY: u64 = 1 << 63;
const LINK: u64 = (1 << 28) - 1;

/// A block's word: links are index + 1 (0: none), so a heap has fewer than 2^28 blocks.
#[derive(Clone, Copy)]
struct Piece {
    next: u64,
    prev: u64,
    order: u32,
    dirty: bool,
}

impl Piece {
    const fn word(self) -> u64 {
        let dirty = if self.dirty { DIRTY } else { 0 };
        self.next | self.prev << 28 | (self.order as u64) << 56 | FREE | dirty
    }
    fn of(word: u64) -> Option<Piece> {
        (word & FREE != 0).then_some(Piece {
            next: word & LINK,
            prev: word >> 28 & LINK,
            order: (word >> 56 & 63) as u32,
            dirty: word & DIRTY != 0,
        })
    }
}

// As docs/layout.md has it.
const _: () = {
    let none = Piece { next: 0, prev: 0, order: 0, dirty: false };
    assert!(none.word() == 1 << 62 && Piece { dirty: true, ..none }.word() == 3 << 62);
    assert!(Piece { next: LINK, ..none }.word() == 1 << 62 | 0xfff_ffff);
    assert!(Piece { prev: LINK, ..none }.word() == 1 << 62 | 0xfff_ffff << 28);
    assert!(Piece { order: 63, ..none }.word() == 1 << 62 | 63 << 56);
};

impl Heap {
    fn heads<'p>(&self, pool: &'p Pool) -> &'p [AtomicU64; ORDERS] {
        let root = pool.root();
        if self.pages {
            &root.page_free
        } else {
            &root.small_free
        }
    }

    fn head_offset(&self, pool: &Pool, order: u32) -> Option<u64> {
        self.heads(pool).get(order as usize).map(|h| pool.offset_of(h))
    }

    fn word_offset(&self, block: u32) -> u64 {
        self.table + block as u64 * 8
    }

    /// Makes all blocks free. Nobody else uses the pool yet.
    pub(crate) fn format(&self, pool: &Pool) {
        let mut first = 0;
        while first < self.count {
            let order = self.largest_order(first, self.count - first);
            let head = &self.heads(pool)[order as usize];
            let next = head.load(Relaxed);
            if let Some(old) = next.checked_sub(1).and_then(|b| pool.mem.word(self.word_offset(b as u32))) {
                old.store(old.load(Relaxed) | (first as u64 + 1) << 28, Relaxed);
            }
            if let Some(w) = pool.mem.word(self.word_offset(first)) {
                w.store(Piece { next, prev: 0, order, dirty: false }.word(), Relaxed);
            }
            head.store(first as u64 + 1, Relaxed);
            first += 1 << order;
        }
    }

    /// The largest piece that may begin at `first` and is not longer than `count`.
    fn largest_order(&self, first: u32, count: u32) -> u32 {
        first.trailing_zeros().min(count.ilog2()).min(ORDERS as u32 - 1)
    }

    fn piece(&self, txn: &Txn, block: u32) -> Option<Piece> {
        if block >= self.count {
            return None;
        }
        Piece::of(txn.get(self.word_offset(block))?)
    }

    /// Puts a piece into its order's list: first, or behind a pair.
    fn push(&self, txn: &mut Txn, block: u32, order: u32, dirty: bool) -> Result<(), Full> {
        let head = self.head_offset(txn.pool(), order).ok_or(Full)?;
        let link = block as u64 + 1;
        let (prev, next) = match self.pair(txn, order) {
            Some(([_, second], mut piece)) => {
                let next = piece.next;
                piece.next = link;
                txn.set(self.word_offset(second), piece.word())?;
                (second as u64 + 1, next)
            }
            None => {
                let next = txn.get(head).ok_or(Full)? & LINK;
                txn.set(head, link)?;
                (0, next)
            }
        };
        if let Some((old, mut piece)) = self.linked(txn, next) {
            piece.prev = link;
            txn.set(self.word_offset(old), piece.word())?;
        }
        let piece = Piece { next, prev, order, dirty };
        txn.set(self.word_offset(block), piece.word())
    }

    /// The first two pieces of an order, if they are each other's buddies; and the second one's word.
    fn pair(&self, txn: &Txn, order: u32) -> Option<([u32; 2], Piece)> {
        let (first, piece) = self.first(txn, order)?;
        let buddy = first ^ 1 << order;
        if piece.next != buddy as u64 + 1 {
            return None;
        }
        let second = self.piece(txn, buddy).filter(|p| p.order == order)?;
        Some(([first, buddy], second))
    }

    /// The first piece of an order. A list that a stranger has damaged is not followed further.
    fn first(&self, txn: &Txn, order: u32) -> Option<(u32, Piece)> {
        let link = txn.get(self.head_offset(txn.pool(), order)?)?;
        self.linked(txn, link)
            .filter(|(b, p)| p.order == order && *b as u64 + (1 << order) <= self.count as u64)
    }

    /// The piece that a link leads to.
    fn linked(&self, txn: &Txn, link: u64) -> Option<(u32, Piece)> {
        let block = u32::try_from(link.checked_sub(1)?).ok()?;
        self.piece(txn, block).map(|p| (block, p))
    }

    fn unlink(&self, txn: &mut Txn, block: u32, piece: Piece) -> Result<(), Full> {
        if let Some((next, mut p)) = self.linked(txn, piece.next) {
            p.prev = piece.prev;
            txn.set(self.word_offset(next), p.word())?;
        }
        match self.linked(txn, piece.prev) {
            Some((prev, mut p)) => {
                p.next = piece.next;
                txn.set(self.word_offset(prev), p.word())?;
            }
            None => {
                let head = self.head_offset(txn.pool(), piece.order).ok_or(Full)?;
                txn.set(head, piece.next)?;
            }
        }
        txn.set(self.word_offset(block), 0)
    }

    /// Which of the words' chunks a block's word is in, and how many bytes such a chunk has: whole pages.
    fn chunk_of(&self, block: u32) -> (usize, u64) {
        let len = (self.count as u64 * 8).div_ceil(CHUNKS as u64);
        let chunk = len.next_multiple_of(PAGE);
        ((block as u64 * 8 / chunk) as usize, chunk)
    }

    fn backed<'p>(&self, pool: &'p Pool, chunk: usize) -> (Option<&'p AtomicU64>, u64) {
        let known = &pool.root().words_backed[self.pages as usize];
        (known.get(chunk / 64), 1 << (chunk % 64))
    }

    /// Is a block's word known to have memory?
    fn is_backed(&self, pool: &Pool, block: u32) -> bool {
        let (word, bit) = self.backed(pool, self.chunk_of(block).0);
        word.is_some_and(|w| w.load(Acquire) & bit != 0)
    }

    /// Sees to it that a block's word has memory, which `reserve` (offset, length) gives.
    fn back(&self, pool: &Pool, block: u32, reserve: &mut Reserve) -> bool {
        if self.is_backed(pool, block) {
            return true;
        }
        let (index, chunk) = self.chunk_of(block);
        let (from, all) = (index as u64 * chunk, self.count as u64 * 8);
        if !reserve(self.table + from, chunk.min(all - from)) {
            return false;
        }
        let (word, bit) = self.backed(pool, index);
        word.is_some_and(|w| {
            w.fetch_or(bit, AcqRel);
            true
        })
    }

    /// The same for the first blocks of all pieces that a range falls into.
    fn back_pieces(&self, pool: &Pool, mut first: u32, mut count: u32, reserve: &mut Reserve) -> bool {
        while count > 0 {
            if !self.back(pool, first, reserve) {
                return false;
            }
            let order = self.largest_order(first, count);
            first += 1 << order;
            count -= 1 << order;
        }
        true
    }

    /// Takes `count` blocks; `Ok(None)` if there is no piece that large, or `reserve` (offset, length) has no
    /// memory for the words that this and giving them back will write.
    pub fn allocate(&self, txn: &mut Txn, count: u32, reserve: &mut Reserve) -> Result<Option<Range>, Full> {
        if count == 0 || count > self.count {
            return Ok(None);
        }
        let want = count.next_power_of_two().ilog2();
        let mut found = self.smallest(txn, want);
        if found.is_none() {
            self.merge_pairs(txn, want)?;
            found = self.smallest(txn, want);
        }
        let Some((block, piece)) = found else {
            return Ok(None);
        };
        let (pool, tail) = (txn.pool(), (1 << piece.order) - count);
        if !self.back_pieces(pool, block, count, reserve)
            || !self.back_pieces(pool, block + count, tail, reserve)
        {
            return Ok(None);
        }
        self.unlink(txn, block, piece)?;
        self.give(txn, block + count, tail, piece.dirty)?;
        Ok(Some(Range { first: block, count, dirty: piece.dirty }))
    }

    /// The first piece of the lowest order that has one, from `want` on.
    fn smallest(&self, txn: &Txn, want: u32) -> Option<(u32, Piece)> {
        (want..ORDERS as u32).find_map(|order| self.first(txn, order))
    }

    /// Merges the pairs below an order, as long as the log has room for that and what is to be done then.
    fn merge_pairs(&self, txn: &mut Txn, below: u32) -> Result<(), Full> {
        for order in 0..below.min(ORDERS as u32) {
            let Some(([first, _], _)) = self.pair(txn, order) else {
                continue;
            };
            let piece = self.piece(txn, first).ok_or(Full)?;
            let like = self.buddy(txn, first, order, piece.dirty, Merge::Like);
            if like.is_some() && !txn.is_half_full() {
                self.unlink(txn, first, piece)?;
                self.give_piece(txn, first, order, piece.dirty, Merge::Like)?;
            }
        }
        Ok(())
    }

    /// Gives blocks back.
    pub fn free(&self, txn: &mut Txn, range: Range) -> Result<(), Full> {
        let end = range.first as u64 + range.count as u64;
        if end > self.count as u64 {
            return Ok(());
        }
        self.give(txn, range.first, range.count, range.dirty)
    }

    fn give(&self, txn: &mut Txn, mut first: u32, mut count: u32, dirty: bool) -> Result<(), Full> {
        while count > 0 {
            let order = self.largest_order(first, count);
            self.give_piece(txn, first, order, dirty, Merge::Lazy)?;
            first += 1 << order;
            count -= 1 << order;
        }
        Ok(())
    }

    /// Puts a piece that is in no list among the free ones, merged.
    fn give_piece(
        &self,
        txn: &mut Txn,
        mut block: u32,
        mut order: u32,
        mut dirty: bool,
        merge: Merge,
    ) -> Result<(), Full> {
        while let Some((buddy, piece)) = self.buddy(txn, block, order, dirty, merge) {
            self.unlink(txn, buddy, piece)?;
            block = block.min(buddy);
            dirty |= piece.dirty;
            order += 1;
        }
        self.push(txn, block, order, dirty)
    }

    /// The free piece that a piece is to be merged with.
    fn buddy(&self, txn: &Txn, block: u32, order: u32, dirty: bool, merge: Merge) -> Option<(u32, Piece)> {
        let buddy = block ^ 1 << order;
        if order + 1 >= ORDERS as u32
            || buddy as u64 + (1 << order) > self.count as u64
            || !self.is_backed(txn.pool(), buddy)
        {
            return None;
        }
        let piece = self.piece(txn, buddy).filter(|p| p.order == order)?;
        let is_like = !self.pages || piece.dirty == dirty;
        let is_last = piece.next == 0 && piece.prev == 0;
        let is_meant = match merge {
            Merge::Lazy => is_like && !is_last,
            Merge::Like => is_like,
            Merge::Any => true,
        };
        is_meant.then_some((buddy, piece))
    }

    /// A piece that begins at a block, if it is one of those that are free.
    fn at(&self, pool: &Pool, block: u32) -> Option<Piece> {
        if block >= self.count {
            return None;
        }
        Piece::of(pool.mem.word(self.word_offset(block))?.load(Relaxed))
    }

    /// Blocks that are free, for listings and tests. Call it under the pool's lock.
    pub fn free_blocks(&self, pool: &Pool) -> u64 {
        let word = |b: u32| pool.mem.word(self.word_offset(b)).map_or(0, |w| w.load(Relaxed));
        let mut free = 0;
        let mut block = 0u64;
        while block < self.count as u64 {
            match Piece::of(word(block as u32)) {
                Some(p) if p.order < ORDERS as u32 => {
                    free += 1 << p.order;
                    block += 1 << p.order;
                }
                _ => block += 1,
            }
        }
        free
    }
}
