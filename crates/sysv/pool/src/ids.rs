//! Ids of IPC objects: their bits are the index of the entry, and a sequence number.
//!
//! Of the 30 bits below [`ID_BIT`] the low ones are the index: 17 in most pools, and up to 20 in one whose
//! tables are larger, as many as its largest table needs. The others are the sequence number, by which one
//! use of an entry differs from the next: 13 bits, or as many fewer.
//!
//! # How soon an id comes back
//! When its entry has been used as often as there are sequence numbers. Where these are fewer, an entry has
//! to wait longer before it is used again: of the free entries, of which the last one to become free is the
//! first, the [`Ids::waits`]-th is used, and before there are so many a fresh one. So an entry is used again
//! only when so many have become free since it was used before, itself included, and its id comes back after
//! 2^13 removals at the earliest, in every pool: only where all entries of a table are in use but a few, the
//! last of these few is used. Nothing breaks when an id comes back: what processes remember of an IPC object
//! has more than the id, and is compared. It is programs that take a new one for an old one then, as they do
//! on Linux.

use crate::layout::{ID_BIT, LEAST_INDEX_BITS, MOST_INDEX_BITS, SEQ_BITS};

/// The rule by which a pool's ids are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The bits of the index.
    mask: u32,
}

impl Ids {
    /// Ids with as few bits of index as most pools have.
    pub const USUAL: Ids = Ids { mask: (1 << LEAST_INDEX_BITS) - 1 };

    /// Ids with so many bits of index, if a pool can have them.
    pub fn new(bits: u32) -> Option<Ids> {
        (LEAST_INDEX_BITS..=MOST_INDEX_BITS).contains(&bits).then(|| Ids { mask: (1 << bits) - 1 })
    }

    /// Ids with as many bits of index as tables need of which none has more than so many entries.
    pub(crate) fn for_entries(most: u32) -> Ids {
        let bits = most.next_power_of_two().trailing_zeros();
        let bits = bits.clamp(LEAST_INDEX_BITS, MOST_INDEX_BITS);
        Ids { mask: (1 << bits) - 1 }
    }

    /// Bits of the index.
    pub const fn bits(self) -> u32 {
        self.mask.trailing_ones()
    }

    /// Bits of the index that only pools with large tables have.
    const fn more_bits(self) -> u32 {
        self.bits() - LEAST_INDEX_BITS
    }

    /// The index in an id.
    #[inline(always)]
    pub const fn index(self, id: i32) -> u32 {
        id as u32 & self.mask
    }

    /// The sequence number in an id.
    pub const fn sequence(self, id: i32) -> u32 {
        (id as u32 & !ID_BIT) >> self.bits()
    }

    /// The sequence number after this one.
    pub const fn next(self, sequence: u32) -> u32 {
        (sequence + 1) & ((1 << (SEQ_BITS - self.more_bits())) - 1)
    }

    /// The id of the IPC object in an entry.
    pub const fn id(self, index: u32, sequence: u32) -> i32 {
        (ID_BIT | sequence << self.bits() | index) as i32
    }

    /// The place of the free entry that is used next: 1 is the last to become free, 2 the one before it.
    pub const fn waits(self) -> u32 {
        1 << self.more_bits()
    }

    /// A number of [`SEQ_BITS`] bits that tells an IPC object from others that had its memory before: it
    /// differs from use to use of an entry, and as a rule between entries that are used in turn.
    pub const fn instance(self, id: i32) -> u32 {
        self.sequence(id) << self.more_bits() | id as u32 & (self.waits() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::MAX_ENTRIES;

    #[test]
    fn an_id_has_room_for_every_index_and_the_sequence_number_for_the_rest() {
        for (most, bits) in [
            (1, 17),
            (1 << 17, 17),
            ((1 << 17) + 1, 18),
            (1 << 18, 18),
            (500_000, 19),
            (1_000_000, 20),
            (MAX_ENTRIES, 20),
        ] {
            let ids = Ids::for_entries(most);
            assert_eq!((ids.bits(), Ids::new(bits)), (bits, Some(ids)));
            for index in [0, 1, 77, most - 1] {
                let mut sequence = 0;
                for uses in 1u32.. {
                    let id = ids.id(index, sequence);
                    assert!(id >= 1 << 30);
                    assert_eq!((ids.index(id), ids.sequence(id)), (index, sequence));
                    assert!(ids.instance(id) < 1 << SEQ_BITS);
                    sequence = ids.next(sequence);
                    if sequence == 0 {
                        assert_eq!(uses * ids.waits(), 1 << SEQ_BITS);
                        break;
                    }
                }
            }
        }
        for bits in [0, 16, 21, 30, u32::MAX] {
            assert_eq!(Ids::new(bits), None);
        }
    }

    #[test]
    fn no_two_of_the_entries_that_are_used_in_turn_are_alike() {
        for bits in LEAST_INDEX_BITS..=MOST_INDEX_BITS {
            let ids = Ids::new(bits).unwrap();
            let all = 0..1 << (30 - bits);
            let instances = all.flat_map(|sequence| {
                (40..40 + ids.waits()).map(move |index| ids.instance(ids.id(index, sequence)))
            });
            let mut seen = [false; 1 << SEQ_BITS];
            for instance in instances {
                assert!(!core::mem::replace(&mut seen[instance as usize], true));
            }
            assert!(seen.iter().all(|seen| *seen));
        }
    }
}
