//! The free pieces by length: the shortest one that is long enough is found in as many steps as a length has
//! bits, and so is the place of any.
//!
//! There is a tree for each order: the pieces of 2^order to 2^(order + 1) - 1 blocks. It is a digital one: in
//! it a piece's place is found by the bits of its length below the highest, from the highest on, where 0
//! leads to the first child and 1 to the second one. Wherever a piece stands on this way, all below it agree
//! with it in the bits so far, and in nothing else. So no tree is deeper than its order, whatever comes and
//! goes, and nothing has to be balanced; what takes the place of a piece that is taken out is any leaf below
//! it. Pieces of the same length stand in a list behind the one that is in the tree.

use super::words::{Piece, LINK, LINKS, SECOND};
use super::Heap;
use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::layout::ORDERS;
use crate::log::{Full, Txn};
use crate::pool::Pool;

/// A link in the pool: the offset of its word, its lowest bit, and what the word is.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    shift: u32,
    word: u64,
    /// The number of bits of a length that are left below it.
    bits: u32,
}

impl Place {
    fn link(self) -> u64 {
        self.word >> self.shift & LINK
    }

    fn set(self, txn: &mut Txn, link: u64) -> Result<(), Full> {
        txn.set(self.at, self.word & !(LINK << self.shift) | link << self.shift)
    }
}

/// An item that a walk meets: the link to it, the link to what is before it in its list, and the piece, if
/// it is one that belongs there.
pub(super) struct Met {
    pub link: u64,
    pub before: u64,
    pub piece: Option<Piece>,
}

impl Heap {
    fn tree<'p>(&self, pool: &'p Pool, order: u32) -> Option<&'p AtomicU64> {
        let root = pool.root();
        let trees = if self.pages { &root.page_free } else { &root.small_free };
        trees.get(order as usize)
    }

    /// The link to what stands first on all ways of an order.
    fn top(&self, txn: &Txn, order: u32) -> Result<Place, Full> {
        let tree = self.tree(txn.pool(), order).ok_or(Full)?;
        let at = txn.pool().offset_of(tree);
        Ok(Place { at, shift: 0, word: txn.get(at).ok_or(Full)?, bits: order })
    }

    /// The link below a place, on the way to a length.
    fn below(&self, txn: &Txn, place: Place, count: u32) -> Result<Place, Full> {
        let bits = place.bits.checked_sub(1).ok_or(Full)?;
        // The second word of the piece.
        let at = self.word_offset(place.link() as u32);
        let shift = if count >> bits & 1 == 0 { 0 } else { SECOND };
        Ok(Place { at, shift, word: txn.get(at).ok_or(Full)?, bits })
    }

    fn children(&self, txn: &Txn, piece: &Piece) -> Result<u64, Full> {
        match piece.count {
            1 => Ok(0),
            _ => Ok(txn.get(self.word_offset(piece.first + 1)).ok_or(Full)? & LINKS),
        }
    }

    /// The shortest piece of at least `count` blocks.
    pub(super) fn shortest(&self, txn: &Txn, count: u32) -> Option<Piece> {
        let mut orders = (count.ilog2()..ORDERS as u32).filter(|order| !self.is_bare(txn, *order));
        let link = orders.find_map(|order| self.shortest_of(txn, order, count.max(1 << order)))?;
        let read = |at| txn.get(at);
        let first = self.linked(link, read)?;
        // To take one out of the list is less work.
        let second = self.linked(first.next, read).filter(|p| p.count == first.count && p.prev == link);
        Some(second.unwrap_or(first))
    }

    /// Is a tree known to be empty? That costs less than to look for something in it.
    fn is_bare(&self, txn: &Txn, order: u32) -> bool {
        !txn.has_changes() && self.tree(txn.pool(), order).is_none_or(|tree| tree.load(Relaxed) == 0)
    }

    /// The shortest piece of an order that has at least `count` blocks (link): it is on the way to that
    /// length, or leftmost in the last tree to the right of that way.
    fn shortest_of(&self, txn: &Txn, order: u32, count: u32) -> Option<u64> {
        let read = |at| txn.get(at);
        let mut found: Option<(u32, u64)> = None;
        let mut offer = |length: u32, link| {
            if length >= count && found.is_none_or(|(shortest, _)| length < shortest) {
                found = Some((length, link));
            }
        };
        let (mut link, mut longer) = (self.top(txn, order).ok()?.link(), 0);
        for bits in (0..=order).rev() {
            let Some(length) = self.length(order, link, read) else {
                break;
            };
            offer(length, link);
            if length == count || bits == 0 {
                break;
            }
            let (left, right) = self.fork(txn, link);
            if count >> (bits - 1) & 1 == 1 {
                link = right;
            } else {
                link = left;
                longer = if right == 0 { longer } else { right };
            }
        }
        for _ in 0..order {
            let Some(length) = self.length(order, longer, read) else {
                break;
            };
            offer(length, longer);
            let (left, right) = self.fork(txn, longer);
            longer = if left == 0 { right } else { left };
        }
        found.map(|(_, link)| link)
    }

    /// The children of the piece that a link leads to, of two blocks at the least.
    fn fork(&self, txn: &Txn, link: u64) -> (u64, u64) {
        let word = txn.get(self.word_offset(link as u32)).unwrap_or(0);
        (word & LINK, word >> SECOND & LINK)
    }

    /// Puts a piece that has no links yet among the others: behind the first one of its length, or at the end
    /// of its way.
    pub(super) fn insert(&self, txn: &mut Txn, mut piece: Piece) -> Result<(), Full> {
        let order = piece.order();
        let mut place = self.top(txn, order)?;
        loop {
            let link = place.link();
            if link == 0 {
                place.set(txn, piece.link())?;
                return self.write(txn, &piece, 0);
            }
            let length = self.length(order, link, |at| txn.get(at)).ok_or(Full)?;
            if length == piece.count {
                let mut first = self.linked(link, |at| txn.get(at)).ok_or(Full)?;
                (piece.prev, piece.next) = (link, first.next);
                first.next = piece.link();
                self.write_head(txn, &first)?;
                if let Some(mut second) = self.linked(piece.next, |at| txn.get(at)) {
                    second.prev = piece.link();
                    self.write_head(txn, &second)?;
                }
                return self.write(txn, &piece, 0);
            }
            place = self.below(txn, place, piece.count)?;
        }
    }

    /// Has another piece, with blocks in common, take the place of one: in the tree, if that is on its way.
    pub(super) fn replace(&self, txn: &mut Txn, old: &Piece, new: Piece) -> Result<(), Full> {
        let is_alone = old.next == 0 && old.prev == 0;
        if is_alone && old.order() == new.order() {
            let place = self.place_of(txn, old)?;
            if old.count >> place.bits == new.count >> place.bits {
                let begins_as_before = old.first == new.first && old.count.min(new.count) >= 4;
                let children = if begins_as_before { 0 } else { self.children(txn, old)? };
                if old.end() != new.end() {
                    txn.set(self.word_offset(old.end() - 1), 0)?;
                }
                if begins_as_before {
                    return self.write_lengths(txn, &new);
                }
                if old.first != new.first {
                    place.set(txn, new.link())?;
                    txn.set(self.word_offset(old.first), 0)?;
                }
                return self.write(txn, &new, children);
            }
        }
        self.remove(txn, old)?;
        self.insert(txn, new)
    }

    /// Takes a piece out, which is none any more then.
    pub(super) fn remove(&self, txn: &mut Txn, piece: &Piece) -> Result<(), Full> {
        let next = self.linked(piece.next, |at| txn.get(at));
        if let Some(mut before) = self.linked(piece.prev, |at| txn.get(at)) {
            before.next = piece.next;
            self.write_head(txn, &before)?;
            if let Some(mut next) = next {
                next.prev = piece.prev;
                self.write_head(txn, &next)?;
            }
        } else {
            let place = self.place_of(txn, piece)?;
            let heir = match next.filter(|next| next.count == piece.count) {
                Some(mut next) => {
                    next.prev = 0;
                    self.write_head(txn, &next)?;
                    Some(next)
                }
                None => self.take_leaf(txn, place, piece)?,
            };
            if let Some(heir) = &heir {
                let children = self.children(txn, piece)?;
                self.write_fork(txn, heir, children)?;
            }
            place.set(txn, heir.map_or(0, |heir| heir.link()))?;
        }
        txn.set(self.word_offset(piece.first), 0)?;
        match piece.count {
            1 => Ok(()),
            _ => txn.set(self.word_offset(piece.end() - 1), 0),
        }
    }

    /// The link that leads from the tree to a piece.
    fn place_of(&self, txn: &Txn, piece: &Piece) -> Result<Place, Full> {
        let mut place = self.top(txn, piece.order())?;
        while place.link() != piece.link() {
            if place.link() == 0 || place.link() > u64::from(self.count) {
                return Err(Full);
            }
            place = self.below(txn, place, piece.count)?;
        }
        Ok(place)
    }

    /// Takes a leaf out that is below a piece, if there is one.
    fn take_leaf(&self, txn: &mut Txn, place: Place, piece: &Piece) -> Result<Option<Piece>, Full> {
        let mut leaf = None;
        let mut place = place;
        let mut children = self.children(txn, piece)?;
        while children != 0 {
            let bits = place.bits.checked_sub(1).ok_or(Full)?;
            // Any way.
            let count = u32::from(children >> SECOND != 0) << bits;
            place = self.below(txn, place, count)?;
            let below = self.linked(place.link(), |at| txn.get(at)).ok_or(Full)?;
            children = self.children(txn, &below)?;
            leaf = Some(below);
        }
        if leaf.is_some() {
            place.set(txn, 0)?;
        }
        Ok(leaf)
    }

    pub(super) fn write_head(&self, txn: &mut Txn, piece: &Piece) -> Result<(), Full> {
        txn.set(self.word_offset(piece.first), piece.head())
    }

    fn write_fork(&self, txn: &mut Txn, piece: &Piece, children: u64) -> Result<(), Full> {
        match piece.fork(children) {
            Some(word) => txn.set(self.word_offset(piece.first + 1), word),
            None => Ok(()),
        }
    }

    /// Writes the words of a piece that say its length, and what of it is soiled.
    pub(super) fn write_lengths(&self, txn: &mut Txn, piece: &Piece) -> Result<(), Full> {
        for (distance, word) in piece.lengths().into_iter().flatten() {
            txn.set(self.word_offset(piece.first) + distance * 8, word)?;
        }
        Ok(())
    }

    /// All words of a piece.
    fn write(&self, txn: &mut Txn, piece: &Piece, children: u64) -> Result<(), Full> {
        self.write_head(txn, piece)?;
        self.write_fork(txn, piece, children)?;
        self.write_lengths(txn, piece)
    }

    /// Calls `each` with all that the tree of an order leads to, until it returns false: `most` links are
    /// followed.
    pub(super) fn walk(&self, pool: &Pool, order: u32, most: u32, mut each: impl FnMut(Met) -> bool) {
        let read = |at| pool.mem.word(at).map(|w| w.load(Relaxed));
        let root = self.tree(pool, order).map_or(0, |tree| tree.load(Relaxed));
        // Links, how many bits of lengths are left there, and those that all below have in common.
        let mut stack = [(0, 0, 0); ORDERS + 2];
        stack[0] = (root & LINK, order, 1);
        let (mut len, mut left) = (1, most);
        while len > 0 {
            len -= 1;
            let (top, bits, common) = stack[len];
            let (mut link, mut before, mut count) = (top, 0, None);
            while link != 0 {
                if left == 0 {
                    return;
                }
                left -= 1;
                let belongs =
                    |p: &Piece| p.count >> bits == common && count.is_none_or(|count| count == p.count);
                let piece = self.linked(link, read).filter(belongs);
                // It may be taken out of the list.
                let children = match piece {
                    Some(piece) if before == 0 && piece.count > 1 => read(self.word_offset(piece.first + 1)),
                    _ => None,
                };
                if !each(Met { link, before, piece }) {
                    return;
                }
                let Some(piece) = piece else { break };
                let children = children.unwrap_or(0) & LINKS;
                for (side, child) in [(1, children >> SECOND), (0, children & LINK)] {
                    if child != 0 && bits > 0 && len < stack.len() {
                        stack[len] = (child, bits - 1, common << 1 | side);
                        len += 1;
                    }
                }
                (before, link, count) = (link, piece.next, Some(piece.count));
            }
        }
    }
}
