//! Looking a heap over: is every block either free, once, or somebody's? All of it under the pool's lock.
//!
//! Allocated blocks have no state, so an audit has three parts: the free lists are walked, whoever has blocks
//! claims them, and what is left belongs to nobody. Nothing that is read is believed: a list is followed for
//! as many steps as there are pieces.

use super::{Heap, Piece, FREE};
use crate::atomic::Ordering::Relaxed;
use crate::layout::ORDERS;
use crate::pool::Pool;

/// What is wrong with a free piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A list leads to a block that can't be a free piece of that list's order.
    Stray,
    /// The piece's way back does not lead to where the list came from.
    Unlinked,
    /// A part of it is in another free piece too.
    Twice,
    /// So many pieces (in place of a block) say that they are free, and no list leads to them; or the other
    /// way round.
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

    /// Walks the free lists. `report` gets blocks and what is wrong there.
    pub fn walk(&mut self, mut report: impl FnMut(u64, Fault)) {
        // A clear bit says that words may have no memory, and must not be looked at but by a link.
        let mut listed = 0u64;
        for order in 0..ORDERS as u32 {
            let Some(head) = self.heap.head_offset(self.pool, order) else {
                return;
            };
            let (mut before, mut link) = (0, self.word_at(head));
            for _ in 0..=self.heap.count >> order {
                let Some(block) = link.checked_sub(1) else {
                    break;
                };
                let Some(piece) = self.piece(block, order) else {
                    report(block, Fault::Stray);
                    break;
                };
                if piece.prev != before {
                    report(block, Fault::Unlinked);
                }
                if !self.claim(block as u32, 1 << order) {
                    report(block, Fault::Twice);
                    break;
                }
                listed += u64::from(self.heap.is_backed(self.pool, block as u32));
                (before, link) = (block + 1, piece.next);
            }
        }
        let said = self.said_free();
        if said != listed {
            report(said.abs_diff(listed), Fault::Unlisted);
        }
    }

    /// A free piece of an order that may begin at a block.
    fn piece(&self, block: u64, order: u32) -> Option<Piece> {
        let end = block.checked_add(1 << order)?;
        let fits = end <= self.heap.count.into() && block % (1 << order) == 0;
        let piece = self.heap.at(self.pool, fits.then_some(block as u32)?)?;
        (piece.order == order).then_some(piece)
    }

    fn word_at(&self, offset: u64) -> u64 {
        let word = self.pool.mem.word(offset);
        word.map_or(0, |w| w.load(Relaxed))
    }

    /// How many words that have memory say that they begin a free piece?
    fn said_free(&self) -> u64 {
        let (mut free, mut block) = (0, 0);
        while block < self.heap.count {
            let (chunk, bytes) = self.heap.chunk_of(block);
            let next = (chunk as u64 + 1) * (bytes / 8);
            let end = next.min(self.heap.count.into()) as u32;
            if self.heap.is_backed(self.pool, block) {
                let says = |b: &u32| self.word_at(self.heap.word_offset(*b)) & FREE != 0;
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

    /// The same for `len` bytes at an offset in the pool.
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
