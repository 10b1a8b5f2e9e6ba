//! What is done to free pieces afterwards: they are emptied where there is time for it, and merged where
//! there is need.
//!
//! A process that can give memory back to the host, and is not in the middle of anything, looks for pieces
//! that may not read as zeros ([`Heap::soiled`]), empties them while it holds the lock, so that nobody can
//! take them, and says so ([`Heap::set_clean`]). A death before that leaves a piece that may not read as
//! zeros, as it was.

use super::{Heap, Merge, Piece, Range};
use crate::atomic::Ordering::Relaxed;
use crate::layout::ORDERS;
use crate::log::{Full, Txn};
use crate::pool::Pool;

/// So many pieces of an order are looked at in a search that must not take long.
const LOOKED_AT: u32 = 256;

impl Heap {
    /// A free piece of at least 2^`least` blocks that may not read as zeros, a large one if there is; `None`
    /// if none was found among those that were looked at. Call it under the pool's lock.
    pub fn soiled(&self, pool: &Pool, least: u32) -> Option<Range> {
        for order in (least..ORDERS as u32).rev() {
            let head = self.head_offset(pool, order)?;
            let mut link = pool.mem.word(head)?.load(Relaxed);
            for _ in 0..(self.count >> order).min(LOOKED_AT) {
                let Some(block) = link.checked_sub(1).and_then(|b| u32::try_from(b).ok()) else {
                    break;
                };
                let Some(piece) = self.at(pool, block).filter(|p| p.order == order) else {
                    break;
                };
                if piece.dirty {
                    return self.whole(block, order);
                }
                link = piece.next;
            }
        }
        None
    }

    /// All of a piece, if it lies in the heap.
    fn whole(&self, first: u32, order: u32) -> Option<Range> {
        let (count, dirty) = (1 << order, true);
        (first as u64 + count as u64 <= self.count as u64).then_some(Range { first, count, dirty })
    }

    /// Says that a piece that [`Heap::soiled`] found, under the same lock, reads as zeros now.
    pub fn set_clean(&self, txn: &mut Txn, range: Range) -> Result<(), Full> {
        let piece = self.piece(txn, range.first).filter(|p| p.dirty).ok_or(Full)?;
        if self.whole(range.first, piece.order) != Some(range) {
            return Err(Full);
        }
        self.unlink(txn, range.first, piece)?;
        self.give_piece(txn, range.first, piece.order, false, Merge::Lazy)
    }

    /// Merges all pieces that can be merged. Pieces that may not read as zeros are offered to `release`
    /// (offset, length), until it returns false; they count as zeros if it returns true. If not, they are
    /// merged with pieces that do, and what comes of it may not. Needs the lock that `txn` makes transactions
    /// of. What was done stays done when it fails, because its budget is spent.
    pub fn merge_all<'a>(
        &self,
        pool: &'a Pool,
        txn: impl Fn() -> Txn<'a>,
        mut release: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), Full> {
        let mut releases = true;
        for order in 0..ORDERS as u32 {
            let head = self.head_offset(pool, order).ok_or(Full)?;
            let mut link = pool.mem().word(head).map_or(0, |w| w.load(Relaxed));
            // The heap has no more pieces of an order: a longer list leads back to itself.
            for _ in 0..=self.count >> order {
                let mut change = txn();
                let Some((block, piece)) = self.linked(&change, link).filter(|(_, p)| p.order == order)
                else {
                    // Nothing, if it could be looked at.
                    change.commit()?;
                    break;
                };
                link = piece.next;
                let mut dirty = piece.dirty;
                if dirty && releases {
                    releases = release(self.offset(block), self.block() << order);
                    dirty = !releases;
                }
                if let Some((buddy, other)) = self.buddy(&change, block, order, dirty, Merge::Any) {
                    if link == buddy as u64 + 1 {
                        link = other.next;
                    }
                    self.unlink(&mut change, block, piece)?;
                    self.give_piece(&mut change, block, order, dirty, Merge::Any)?;
                } else if dirty != piece.dirty {
                    change.set(self.word_offset(block), Piece { dirty, ..piece }.word())?;
                }
                change.commit()?;
            }
        }
        Ok(())
    }
}
