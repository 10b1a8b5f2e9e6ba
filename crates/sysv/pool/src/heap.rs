//! The allocator: free pieces of a row of equal blocks, the shortest that is long enough first; changed
//! through the redo log under the pool's lock.
//!
//! A free piece is all that is free between two ranges in use. What becomes free is joined with the pieces
//! beside it at once, so two of them never lie side by side, and nothing ever has to be put together. A
//! request takes the shortest piece that is long enough (of several the one that became free last), exactly
//! as much as was asked for, and leaves the rest a piece. So no block is wasted, a request is refused only
//! where there is no such room in a row, and long pieces are kept for long requests. Allocated blocks have no
//! state: their owner knows how many it has.
//!
//! Pieces say themselves what they are ([`words`]), in words for their first blocks and for their last one.
//! That is how the neighbours of a range are found. By length they are found through trees ([`tree`]). Both
//! take a number of steps that depends on how many bits a length has, and on nothing else: not on how many
//! pieces there are, nor on what a stranger has written into their words. What those can't be is not
//! followed, and ends the transaction.
//!
//! Of pages, short ranges are taken from the end of a piece and others from its beginning. So those that keep
//! their memory after use lie together, and the others find pages that never had any. Where a range of
//! [`LARGE`] and more can begin on a multiple of that, at one end of the piece or the other, it does, so that
//! it can be mapped in large pages. To leave pages out for that would cost more room than it is worth.
//!
//! The small heap has few blocks at first. It grows into the pages behind it ([`growth`]), up to an eighth of
//! the pool: the *common pages*. So these are taken for segments only where others are not to be had, from
//! the far end. A pool of segments alone is theirs, and one of many queues has room for these.
//!
//! Pages that were used before may not read as zeros. A piece knows from where to where that is so
//! ([`Soil`]): in between there may be pages that do. That is forgotten as the pages are taken, or when they
//! are emptied. A process that takes small blocks zeroes all of them.
//!
//! How much of a log that takes: to take a piece out changes five words at the most, to put one in six. A
//! range that becomes free is joined with two pieces: 16 entries.
//!
//! A pool's file is sparse, and touching what has no memory on a file system that is full ends the process.
//! So a block's word is written for the first time only after memory was reserved for it, when blocks are
//! taken: also for the words that giving them back will write, which are those of the first three blocks and
//! of the last one. Giving back needs no memory.

use crate::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::layout::{CHUNKS, PAGE};
use crate::log::{Full, Txn};
use crate::pool::Pool;
use words::Piece;

pub mod audit;
mod growth;
mod range;
mod tidy;
mod tree;
mod words;

pub use crate::pool::Heap;
pub use range::{Range, Soil};
#[cfg(test)]
pub(crate) use tidy::LOOKED_AT;

/// Ranges of up to so many pages are taken from the end of a piece: 64 KiB.
const SHORT: u32 = 16;
/// A large page in pages: 2 MiB.
const LARGE: u32 = 512;
/// The number of pieces that are looked at, the shortest one first.
const LONGER: u32 = 4;

/// Gives memory to a range of the pool (offset, length); false if there is none.
pub type Reserve<'a> = dyn FnMut(u64, u64) -> bool + 'a;

impl Heap {
    /// Makes so many blocks from one on free. Nobody else uses the pool yet.
    pub(crate) fn format(&self, pool: &Pool, first: u32, count: u32) {
        let piece = Piece::new(first, first + count, Soil::NONE);
        let words = [Some((0, piece.head())), piece.fork(0).map(|word| (1, word))];
        for (distance, value) in words.into_iter().chain(piece.lengths()).flatten() {
            if let Some(word) = pool.mem.word(self.word_offset(first) + distance * 8) {
                word.store(value, Relaxed);
            }
        }
        let root = pool.root();
        let trees = if self.pages { &root.page_free } else { &root.small_free };
        trees[piece.order() as usize].store(piece.link(), Relaxed);
    }

    /// The index of the words' chunk that a block's word is in, and the bytes of such a chunk: whole pages.
    fn chunk_of(&self, block: u32) -> (usize, u64) {
        let len = (self.count as u64 * 8).div_ceil(CHUNKS as u64);
        let chunk = len.next_multiple_of(PAGE);
        ((block as u64 * 8 / chunk) as usize, chunk)
    }

    /// The first block whose word is in the next chunk.
    fn chunk_end(&self, block: u32) -> u32 {
        let (chunk, bytes) = self.chunk_of(block);
        ((chunk as u64 + 1) * (bytes / 8)).min(self.count.into()) as u32
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

    /// Sees to it that all words that a piece of so many blocks has, or is going to have, have memory.
    fn back_piece(&self, pool: &Pool, first: u32, count: u32, reserve: &mut Reserve) -> bool {
        let Some(last) = count.checked_sub(1) else {
            return true;
        };
        [0, last.min(2), last].iter().all(|distance| self.back(pool, first + distance, reserve))
    }

    /// Takes `count` blocks; `Ok(None)` if there is no piece that long, or `reserve` (offset, length) has no
    /// memory for the words that this and giving them back will write.
    pub fn allocate(&self, txn: &mut Txn, count: u32, reserve: &mut Reserve) -> Result<Option<Range>, Full> {
        if count == 0 || count > self.count {
            return Ok(None);
        }
        let Some(piece) = self.fitting(txn, count).filter(|piece| piece.count >= count) else {
            return Ok(None);
        };
        let first = self.place_in(&piece, count);
        Ok(self.cut(txn, &piece, first, count, reserve)?.then(|| Range {
            first,
            count,
            soil: piece.soil.within(first, first + count),
        }))
    }

    /// Takes `count` blocks from one on out of a piece, and leaves what is before them and behind them two
    /// pieces; false if `reserve` has no memory for the words of those.
    fn cut(
        &self,
        txn: &mut Txn,
        piece: &Piece,
        first: u32,
        count: u32,
        reserve: &mut Reserve,
    ) -> Result<bool, Full> {
        let before = Piece::new(piece.first, first, piece.soil);
        let behind = Piece::new(first + count, piece.end(), piece.soil);
        let all = [(first, count), (before.first, before.count), (behind.first, behind.count)];
        let pool = txn.pool();
        if !all.into_iter().all(|(first, count)| self.back_piece(pool, first, count, reserve)) {
            return Ok(false);
        }
        match (before.count, behind.count) {
            (0, 0) => self.remove(txn, piece)?,
            (_, 0) => self.replace(txn, piece, before)?,
            (0, _) => self.replace(txn, piece, behind)?,
            _ => {
                self.replace(txn, piece, before)?;
                self.insert(txn, behind)?;
            }
        }
        Ok(true)
    }

    /// The shortest piece of at least `count` blocks, or if these are not meant for so many, one of the next
    /// longer ones that has such.
    fn fitting(&self, txn: &Txn, count: u32) -> Option<Piece> {
        let shortest = self.shortest(txn, count)?;
        let mut piece = shortest;
        for _ in 0..LONGER {
            if self.meant_for(&piece, count).is_some() {
                return Some(piece);
            }
            let Some(longer) = self.shortest(txn, piece.count + 1) else { break };
            piece = longer;
        }
        Some(shortest)
    }

    /// The part of a piece, from block to block, that is meant for ranges of `count` blocks, if it is long
    /// enough: not where common pages are, nor those that short ranges keep.
    fn meant_for(&self, piece: &Piece, count: u32) -> Option<(u32, u32)> {
        let kept = if self.is_short(count) { 0 } else { self.spare() };
        let end = self.count - kept;
        let (from, to) = (piece.first.max(self.common), piece.end().min(end));
        (to.saturating_sub(from) >= count).then_some((from, to))
    }

    /// A large page, in heaps that can do without one.
    fn spare(&self) -> u32 {
        let large = LARGE.next_multiple_of(self.align);
        if self.count / 400 >= large {
            large
        } else {
            0
        }
    }

    fn is_short(&self, count: u32) -> bool {
        count <= SHORT * self.align
    }

    /// The first of the `count` blocks that are to be taken from a piece.
    fn place_in(&self, piece: &Piece, count: u32) -> u32 {
        if !self.pages {
            return piece.first;
        }
        let Some((first, end)) = self.meant_for(piece, count) else {
            return piece.end() - count;
        };
        let last = end - count;
        let is_large = |first: u32| count >= LARGE && first % LARGE == 0;
        if piece.first < self.common {
            // The small heap comes from the other end.
            let aligned = last / LARGE * LARGE;
            let has_room = self.spare() > 0 && piece.count >= self.count / 2;
            let is_worth_it = has_room && last - aligned <= count / 64;
            return if count >= LARGE && is_worth_it { aligned.max(first) } else { last };
        }
        if self.is_short(count) || !is_large(first) && is_large(last) {
            last
        } else {
            first
        }
    }

    /// Gives blocks back.
    pub fn free(&self, txn: &mut Txn, range: Range) -> Result<(), Full> {
        let end = u64::from(range.first) + u64::from(range.count);
        if range.count == 0 || end > self.count.into() {
            return Ok(());
        }
        let soil = if self.pages { range.soil } else { Soil::NONE };
        let (mut from, mut to, mut soil) = (range.first, end as u32, soil.within(range.first, end as u32));
        let before = self.piece_before(from, |at| txn.get(at));
        if let Some(piece) = &before {
            (from, soil) = (piece.first, soil.with(piece.soil));
        }
        let behind = self.piece(to, |at| txn.get(at));
        if let Some(piece) = &behind {
            (to, soil) = (piece.end(), soil.with(piece.soil));
        }
        let whole = Piece::new(from, to, soil);
        match (before, behind) {
            (Some(before), Some(behind)) => {
                self.remove(txn, &behind)?;
                // It may have had to do with the other one.
                let before = self.piece(before.first, |at| txn.get(at)).ok_or(Full)?;
                self.replace(txn, &before, whole)
            }
            (Some(piece), None) | (None, Some(piece)) => self.replace(txn, &piece, whole),
            (None, None) => self.insert(txn, whole),
        }
    }

    /// Blocks that are free, for tests. Call it under the pool's lock.
    pub fn free_blocks(&self, pool: &Pool) -> u64 {
        let read = |at| pool.mem.word(at).map(|w| w.load(Relaxed));
        let (mut free, mut block) = (0, 0);
        while block < self.count {
            match self.piece(block, read) {
                Some(piece) => {
                    free += u64::from(piece.count);
                    block = piece.end();
                }
                None => block += 1,
            }
        }
        free
    }
}
