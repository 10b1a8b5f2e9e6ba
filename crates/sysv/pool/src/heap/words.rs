//! The words of a free piece.
//!
//! | word of the block | says |
//! | --- | --- |
//! | first | [`FIRST`]; neighbours among pieces of the same length; what is soiled, of up to three blocks |
//! | second | the two pieces below it in the tree |
//! | third, of four blocks and more | length, and where what is soiled begins |
//! | last, of three blocks and more | [`LAST`]; length, and where what is soiled ends |
//!
//! First and last word are found from the blocks beside the piece, which is how those that become free are
//! joined with it. A piece of one or two blocks has a word that is the last one besides, and says its length
//! in other bits. All other words have neither [`FIRST`] nor [`LAST`], and count for nothing.

use super::range::{Range, Soil};
use crate::pool::Heap;

/// The block is the first of a free piece.
pub(super) const FIRST: u64 = 1 << 63;
/// The block is the last of a free piece.
pub(super) const LAST: u64 = 1 << 62;
/// A link, a length, or a distance from the first block: index + 1 (0: none), so a heap has fewer than 2^28
/// blocks.
pub(super) const LINK: u64 = (1 << 28) - 1;
/// The bit at which the second number of a word begins.
pub(super) const SECOND: u32 = 28;
/// Both links of a word.
pub(super) const LINKS: u64 = LINK | LINK << SECOND;
/// The bit at which the length of pieces of up to three blocks begins, in first and last words.
const SHORT: u32 = 56;
/// The bit from which on the first word of such a piece says what of it is soiled.
const SHORT_SOIL: u32 = 58;

/// A free piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub first: u32,
    pub count: u32,
    pub soil: Soil,
    /// The next one of its length (link).
    pub next: u64,
    /// The one before it, which is in the tree, or behind that; 0: it is in the tree itself.
    pub prev: u64,
}

impl From<Piece> for Range {
    fn from(piece: Piece) -> Range {
        Range { first: piece.first, count: piece.count, soil: piece.soil }
    }
}

/// A word of a piece, and what it is to be.
pub(super) type Word = (u64, u64);

impl Piece {
    /// A piece that is in no list, from one block to another, of which those of `soil` are soiled.
    pub fn new(from: u32, to: u32, soil: Soil) -> Piece {
        Piece { first: from, count: to - from, soil: soil.within(from, to), next: 0, prev: 0 }
    }

    pub fn link(&self) -> u64 {
        u64::from(self.first) + 1
    }

    /// It has up to 2^(order + 1) - 1 blocks, 2^order at the least.
    pub fn order(&self) -> u32 {
        self.count.ilog2()
    }

    pub fn end(&self) -> u32 {
        self.first + self.count
    }

    /// The range of soiled blocks, counted from the first block; zeros if there are none.
    fn soil_in(&self) -> (u64, u64) {
        let Soil { from, to } = self.soil;
        let distance = |block: u32| u64::from(block.saturating_sub(self.first));
        if self.soil.is_empty() {
            (0, 0)
        } else {
            (distance(from), distance(to))
        }
    }

    /// The first word.
    pub fn head(&self) -> u64 {
        let links = self.next | self.prev << SECOND | FIRST;
        let (from, to) = self.soil_in();
        match self.count {
            0 | 4.. => links,
            count => {
                let last = if count == 1 { LAST } else { 0 };
                let soil = from << SHORT_SOIL | to << (SHORT_SOIL + 2);
                links | last | u64::from(count) << SHORT | soil
            }
        }
    }

    /// The second word, if there is one.
    pub fn fork(&self, children: u64) -> Option<u64> {
        match self.count {
            0 | 1 => None,
            2 => Some(children | LAST | 2 << SHORT),
            _ => Some(children),
        }
    }

    /// The third word and the last one, by their distance from the first block, as far as these are not the
    /// first or the second one.
    pub fn lengths(&self) -> [Option<Word>; 2] {
        let count = u64::from(self.count);
        let (from, to) = self.soil_in();
        match count {
            0..3 => [None, None],
            3 => [None, Some((2, LAST | count))],
            _ => [Some((2, count | from << SECOND)), Some((count - 1, LAST | count | to << SECOND))],
        }
    }
}

impl Heap {
    pub(super) fn word_offset(&self, block: u32) -> u64 {
        self.table + u64::from(block) * 8
    }

    /// The free piece that begins at a block, as `read` (offset) sees it, if all of it can be.
    pub(super) fn piece(&self, block: u32, read: impl Fn(u64) -> Option<u64>) -> Option<Piece> {
        if block >= self.count {
            return None;
        }
        let word = |distance: u32| read(self.word_offset(block) + u64::from(distance) * 8);
        let head = word(0)?;
        if head & FIRST == 0 {
            return None;
        }
        let room = self.count - block;
        let (count, from, to) = match (head >> SHORT & 3) as u32 {
            0 if room < 4 => return None,
            0 => {
                let third = word(2)?;
                let count = (third & LINK) as u32;
                if !(4..=room).contains(&count) {
                    return None;
                }
                (count, (third >> SECOND & LINK) as u32, (word(count - 1)? >> SECOND & LINK) as u32)
            }
            count => (count, (head >> SHORT_SOIL & 3) as u32, (head >> (SHORT_SOIL + 2) & 3) as u32),
        };
        let soil = Soil { from: block + from.min(count), to: block + to.min(count) };
        let piece = Piece { first: block, count, soil, next: head & LINK, prev: head >> SECOND & LINK };
        (count <= room).then_some(piece)
    }

    /// The free piece that ends before a block.
    pub(super) fn piece_before(&self, block: u32, read: impl Fn(u64) -> Option<u64>) -> Option<Piece> {
        let last = read(self.word_offset(block.checked_sub(1)?))?;
        if last & LAST == 0 {
            return None;
        }
        let count = match (last >> SHORT & 3) as u32 {
            0 => (last & LINK) as u32,
            count => count,
        };
        let piece = self.piece(block.checked_sub(count)?, read)?;
        (piece.count == count).then_some(piece)
    }

    /// The piece that a link leads to.
    pub(super) fn linked(&self, link: u64, read: impl Fn(u64) -> Option<u64>) -> Option<Piece> {
        self.piece(u32::try_from(link.checked_sub(1)?).ok()?, read)
    }

    /// The number of blocks of the piece of an order that a link leads to, for a search.
    pub(super) fn length(&self, order: u32, link: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u32> {
        let block = u32::try_from(link.checked_sub(1)?).ok()?;
        let count = match order {
            0 => 1,
            1 => read(self.word_offset(block))? >> SHORT & 3,
            _ => read(self.word_offset(block) + 16)? & LINK,
        };
        let fits = u64::from(block) + count <= self.count.into();
        (fits && count.checked_ilog2() == Some(order)).then_some(count as u32)
    }
}

// As docs/layout.md has it.
const _: () = {
    assert!(FIRST == 1 << 63 && LAST == 1 << 62 && LINK == 0xfff_ffff && SECOND == 28);
    assert!(SHORT == 56 && SHORT_SOIL == 58);
};
