//! What is done to free pieces afterwards: they are emptied where there is time or need for it.
//!
//! A process that can give memory back to the host, and is not in the middle of anything, looks for pieces
//! that may not read as zeros ([`Heap::soiled`]), empties them while it holds the lock, so that nobody can
//! take them, and says so ([`Heap::set_clean`]). A death before that leaves a piece that may not read as
//! zeros, as it was.

use super::range::{Range, Soil};
use super::words::Piece;
use crate::layout::ORDERS;
use crate::log::{Full, Txn};
use crate::pool::Heap;
use crate::pool::Pool;

/// So many pieces of an order are looked at in a search that must not take long.
const LOOKED_AT: u32 = 256;

impl Heap {
    /// A free piece of which at least `least` blocks in a row may not read as zeros, of the largest order
    /// that has one; `None` if none was found among those that were looked at. Call it under the pool's lock.
    pub fn soiled(&self, pool: &Pool, least: u32) -> Option<Range> {
        (0..ORDERS as u32).rev().find_map(|order| {
            let mut found = None;
            self.walk(pool, order, LOOKED_AT, |met| {
                found = met.piece.filter(|piece| !piece.soil.is_empty() && piece.soil.count() >= least);
                met.piece.is_some() && found.is_none()
            });
            found.map(Range::from)
        })
    }

    /// Says that a piece that [`Heap::soiled`] found, under the same lock, reads as zeros now.
    pub fn set_clean(&self, txn: &mut Txn, range: Range) -> Result<(), Full> {
        let piece = self.piece(range.first, |at| txn.get(at)).ok_or(Full)?;
        if range.soil.is_empty() || Range::from(piece) != range {
            return Err(Full);
        }
        let piece = Piece { soil: Soil::NONE, ..piece };
        self.write_head(txn, &piece)?;
        self.write_lengths(txn, &piece)
    }

    /// Offers what may not read as zeros of all free pieces to `release` (offset, length), until it returns
    /// false: it was emptied if it returns true. Needs the lock that `txn` makes transactions of. What was
    /// done stays done when it fails, because its budget is spent. Each piece that is looked at is paid for
    /// by `pays`, which returns false when nothing is left. Returns whether something was emptied.
    pub fn empty_all<'a>(
        &self,
        pool: &'a Pool,
        txn: impl Fn() -> Txn<'a>,
        mut pays: impl FnMut() -> bool,
        mut release: impl FnMut(u64, u64) -> bool,
    ) -> bool {
        let (mut any, mut goes_on) = (false, true);
        for order in (0..ORDERS as u32).rev() {
            self.walk(pool, order, self.count >> order, |met| {
                goes_on = pays();
                if !goes_on {
                    return false;
                }
                let Some(piece) = met.piece.filter(|piece| !piece.soil.is_empty()) else {
                    return met.piece.is_some();
                };
                let soil = piece.soil;
                goes_on = release(self.offset(soil.from), u64::from(soil.count()) * self.block());
                let mut change = txn();
                goes_on =
                    goes_on && self.set_clean(&mut change, piece.into()).is_ok() && change.commit().is_ok();
                any |= goes_on;
                goes_on
            });
            if !goes_on {
                break;
            }
        }
        any
    }
}
