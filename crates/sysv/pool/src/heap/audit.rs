//! An audit of a heap: is every block either free, once, or somebody's? All of it under the pool's lock.
//!
//! Allocated blocks have no state, so an audit has three parts: the trees of free pieces are walked, the
//! owners of blocks claim them, and blocks that are left belong to nobody. Nothing that is read is believed:
//! a tree is followed for as many steps as there can be pieces.

use super::words::{Piece, FIRST};
use super::Heap;
use crate::atomic::Ordering::Relaxed;
use crate::layout::ORDERS;
use crate::pool::Pool;

/// A fault of a free piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tree leads to a block that can't be a free piece of a length that has its place there.
    Stray,
    /// The piece's way back does not lead to where the tree or its list came from.
    Unlinked,
    /// A part of it is in another free piece too.
    Twice,
    /// It does not end where its last word says, or another free piece begins there.
    Ends,
    /// Pieces say that they are free, and no tree leads to them, or the other way round. Their number is in
    /// place of a block.
    Unlisted,
}

/// An audit under way.
pub struct Audit<'a> {
    pool: &'a Pool,
    heap: &'a Heap,
    /// A bit for each block: it is free, or somebody's.
    known: &'a mut [u64],
}

impl Heap {
    /// Words of memory that an audit needs.
    pub fn audit_words(&self) -> usize {
        self.count.div_ceil(64) as usize
    }
}

impl<'a> Audit<'a> {
    /// Begins; `None` if `known` has not [`Heap::audit_words`].
    pub fn new(pool: &'a Pool, heap: &'a Heap, known: &'a mut [u64]) -> Option<Audit<'a>> {
        let known = known.get_mut(..heap.audit_words())?;
        known.fill(0);
        Some(Audit { pool, heap, known })
    }

    /// Walks the trees. `report` gets blocks and what is wrong there.
    pub fn walk(&mut self, mut report: impl FnMut(u64, Fault)) {
        let (pool, heap) = (self.pool, self.heap);
        // A clear bit says that words may have no memory, and must not be looked at but by a link.
        let mut listed = 0u64;
        for order in 0..ORDERS as u32 {
            heap.walk(pool, order, (heap.count >> order).saturating_add(1), |met| {
                let block = met.link - 1;
                let Some(piece) = met.piece else {
                    report(block, Fault::Stray);
                    return false;
                };
                if piece.prev != met.before {
                    report(block, Fault::Unlinked);
                }
                if !self.claim(piece.first, piece.count) {
                    report(block, Fault::Twice);
                    return false;
                }
                if !self.ends(&piece) {
                    report(block, Fault::Ends);
                }
                listed += u64::from(heap.is_backed(pool, piece.first));
                true
            });
        }
        let said = self.said_free();
        if said != listed {
            report(said.abs_diff(listed), Fault::Unlisted);
        }
    }

    /// Does a piece end where it says, and is it joined with what is free behind it?
    fn ends(&self, piece: &Piece) -> bool {
        let read = |at| self.pool.mem.word(at).map(|w| w.load(Relaxed));
        self.heap.piece_before(piece.end(), read) == Some(*piece)
            && self.heap.piece(piece.end(), read).is_none()
    }

    fn word_at(&self, offset: u64) -> u64 {
        let word = self.pool.mem.word(offset);
        word.map_or(0, |w| w.load(Relaxed))
    }

    /// The number of words that have memory and say that they begin a free piece.
    fn said_free(&self) -> u64 {
        let (mut free, mut block) = (0, 0);
        while block < self.heap.count {
            let end = self.heap.chunk_end(block);
            if self.heap.is_backed(self.pool, block) {
                let says = |b: &u32| self.word_at(self.heap.word_offset(*b)) & FIRST != 0;
                free += (block..end).filter(says).count() as u64;
            }
            block = end;
        }
        free
    }

    /// Says whose blocks these are: not free ones, nor anybody else's. False: they are, or are no blocks of
    /// this heap.
    pub fn claim(&mut self, first: u32, count: u32) -> bool {
        let end = u64::from(first) + u64::from(count);
        if end > self.heap.count.into() {
            return false;
        }
        let mut alone = true;
        let mut block = u64::from(first);
        while block < end {
            let upto = end.min((block / 64 + 1) * 64);
            let bits = (u64::MAX >> (64 - (upto - block))) << (block % 64);
            let Some(word) = self.known.get_mut((block / 64) as usize) else {
                return false;
            };
            alone &= *word & bits == 0;
            *word |= bits;
            block = upto;
        }
        alone
    }

    /// Claims the blocks of `len` bytes at an offset in the pool, as [`Audit::claim`] does.
    pub fn claim_bytes(&mut self, at: u64, len: u64) -> bool {
        match (self.heap.block_at(at), self.heap.blocks_for(len)) {
            (Some(first), Some(count)) => self.claim(first, count),
            _ => false,
        }
    }

    /// Calls `each` with first block and length of all ranges that are neither free nor claimed.
    pub fn nobodys(&self, mut each: impl FnMut(u32, u32)) {
        let is_known =
            |block: u32| self.known.get((block / 64) as usize).is_none_or(|w| w >> (block % 64) & 1 == 1);
        let mut block = 0;
        while block < self.heap.count {
            if block % 64 == 0 && self.known.get((block / 64) as usize) == Some(&u64::MAX) {
                block += 64;
                continue;
            }
            let first = block;
            while block < self.heap.count && !is_known(block) {
                block += 1;
            }
            if block > first {
                each(first, block - first);
            } else {
                block += 1;
            }
        }
    }
}
