//! The growth of the small heap into the pages behind it.
//!
//! It lies before the page heap's free pages, and grows into them as somebody needs more than it has: by the
//! page or by the [`STEP`], whatever is free in a row behind its last block, up to as many blocks as the pool
//! was made for. The pages leave their heap, the blocks become free, and the root says how far the small heap
//! goes, all in the transaction that then takes some of them. So a death on the way leaves pages or blocks,
//! and never both.
//!
//! It never becomes smaller. Each process remembers of which pages it knows that they have memory
//! ([`crate::mem`]), and does not ask again before it looks at a structure: so memory of pages that were the
//! small heap's must not be given back. Nor is that of common pages that only might have been
//! ([`crate::Ctx::release`]), for a hostile member may have told somebody else that they were.

use super::{Range, Reserve};
use crate::layout::PAGE;
use crate::log::{Full, Txn};
use crate::pool::Pool;

/// Pages by which the small heap grows, where there are as many: 1 MiB.
const STEP: u32 = 256;

impl Pool {
    /// Takes `count` blocks of the small heap, which grows if it must; `Ok(None)` if it can't, or `reserve`
    /// has no memory for words of the heaps.
    pub fn allocate_blocks(
        &self,
        txn: &mut Txn,
        count: u32,
        reserve: &mut Reserve,
    ) -> Result<Option<Range>, Full> {
        let small = &self.geometry.small;
        match small.allocate(txn, count, reserve)? {
            None if self.grow(txn, count, reserve)? => small.allocate(txn, count, reserve),
            taken => Ok(taken),
        }
    }

    /// Gives the small heap so many pages that it has `count` free blocks in a row; false if there are none.
    fn grow(&self, txn: &mut Txn, count: u32, reserve: &mut Reserve) -> Result<bool, Full> {
        let (small, pages) = (&self.geometry.small, &self.geometry.pages);
        let said = txn.get(self.offset_of(&self.root().small_end)).ok_or(Full)?;
        let Some(end) = u32::try_from(said).ok().filter(|end| *end < small.count) else {
            return Ok(false);
        };
        let Some(page) = pages.block_at(small.offset(end)) else {
            return Ok(false);
        };
        let Some(piece) = pages.piece(page, |at| txn.get(at)) else {
            return Ok(false);
        };
        let last = small.piece_before(end, |at| txn.get(at)).map_or(0, |last| last.count);
        let blocks = (PAGE / small.block()) as u32;
        let need = count.saturating_sub(last).div_ceil(blocks).next_multiple_of(pages.align);
        let most = piece.count.min(pages.common.saturating_sub(page));
        let step = STEP.next_multiple_of(pages.align);
        let taken = need.max(step).min(most);
        let is_enough = need > 0 && need <= taken;
        if !is_enough || !small.back_piece(self, end, taken * blocks, reserve) {
            return Ok(false);
        }
        if !pages.cut(txn, &piece, page, taken, reserve)? {
            return Ok(false);
        }
        small.free(txn, Range::new(end, taken * blocks, false))?;
        txn.put(&self.root().small_end, u64::from(end + taken * blocks))?;
        Ok(true)
    }
}
