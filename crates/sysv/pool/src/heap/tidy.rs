//! Tidying: free pieces are emptied where there is time or need for it.
//!
//! A process that can give memory back to the host, and is not in the middle of anything, looks for pieces
//! that may not read as zeros ([`Heap::soiled`]), empties a part of one while it holds the lock, so that
//! nobody can take it, and says so ([`Heap::set_clean`]). A death before that leaves a piece that may not
//! read as zeros, as it was.

use super::range::{Range, Soil};
use super::words::{Piece, FIRST};
use crate::atomic::Ordering::Relaxed;
use crate::budget::LOOK;
use crate::log::{Full, Txn};
use crate::pool::Heap;
use crate::pool::Pool;

/// The number of words that are looked at in one search: some microseconds.
pub(crate) const LOOKED_AT: u32 = 16 << 10;
/// The price of a look at a piece, in words.
const PIECE: u32 = 8;

impl Heap {
    /// The first free piece from a block on of which at least `least` blocks in a row may not read as zeros
    /// and are no common pages: the memory of those is kept.
    /// Looks at a part of the heap; `from` is then where to go on, behind the last block if that was all.
    /// What is looked at is paid for by `pays`, which returns false when nothing is left. Call it under the
    /// pool's lock.
    ///
    /// It goes by address, so whatever comes and goes between two calls, a piece that stays is found by
    /// those who go from the first block to the last one.
    pub fn soiled(
        &self,
        pool: &Pool,
        least: u32,
        from: &mut u32,
        pays: impl Fn(u64) -> bool,
    ) -> Option<Range> {
        let read = |at| pool.mem.word(at).map(|w| w.load(Relaxed));
        let mut left = LOOKED_AT;
        while *from < self.count && left > 0 {
            let end = self.chunk_end(*from);
            let len = (end - *from).min(left);
            let words = || pool.mem.words(self.word_offset(*from), len.into());
            let Some(words) = self.is_backed(pool, *from).then(words).flatten() else {
                // Nothing that lies here was ever used.
                *from = end;
                continue;
            };
            let first = words.iter().position(|w| w.load(Relaxed) & FIRST != 0);
            let passed = first.map_or(len, |first| first as u32);
            if !pays(LOOK + u64::from(passed) / 8) {
                return None;
            }
            *from += passed;
            left = left.saturating_sub(passed + PIECE);
            if first.is_none() {
                continue;
            }
            match self.piece(*from, read) {
                Some(piece) if piece.soil.within(self.common, self.count).count() >= least => {
                    return Some(piece.into())
                }
                Some(piece) => *from = piece.end(),
                None => *from += 1,
            }
        }
        None
    }

    /// Says that of a piece that [`Heap::soiled`] found, under the same lock, no more than `left` may not
    /// read as zeros now.
    pub fn set_clean(&self, txn: &mut Txn, range: Range, left: Soil) -> Result<(), Full> {
        let piece = self.piece(range.first, |at| txn.get(at)).ok_or(Full)?;
        if range.soil.is_empty() || Range::from(piece) != range {
            return Err(Full);
        }
        let piece = Piece { soil: piece.soil.within(left.from, left.to), ..piece };
        self.write_head(txn, &piece)?;
        self.write_lengths(txn, &piece)
    }
}
