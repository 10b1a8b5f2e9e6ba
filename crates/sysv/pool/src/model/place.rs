//! The place of an operation, and the change that it makes.

/// Bytes in a word.
pub const WORD: usize = 8;

/// The place of an operation.
#[derive(Clone, Copy)]
pub struct Place {
    /// The address.
    pub at: usize,
    /// Bytes, a word at the most.
    pub len: usize,
}

impl Place {
    /// The address at which its word begins.
    pub fn word(self) -> usize {
        self.at & !(WORD - 1)
    }
    fn shift(self) -> u32 {
        (self.at % WORD * 8) as u32
    }
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.len)
    }
    /// The part of a word's value that is meant.
    pub fn part(self, word: u64) -> u64 {
        word >> self.shift() & self.mask()
    }
    /// The word with another part.
    pub fn with(self, word: u64, part: u64) -> u64 {
        let mask = self.mask() << self.shift();
        word & !mask | part << self.shift() & mask
    }
}

/// A change of a value.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Into this one.
    Swap(u64),
    /// From the first to the second, if it is the first.
    Replace(u64, u64),
    /// By adding.
    Add(u64),
    /// Bit by bit.
    And(u64),
    /// Bit by bit.
    Or(u64),
    /// Into the larger one.
    Max(u64),
}

impl Change {
    /// Applies the change to a value; `None`: it is not changed.
    pub fn apply(self, old: u64) -> Option<u64> {
        Some(match self {
            Change::Swap(new) => new,
            Change::Replace(expected, new) if expected == old => new,
            Change::Replace(..) => return None,
            Change::Add(value) => old.wrapping_add(value),
            Change::And(value) => old & value,
            Change::Or(value) => old | value,
            Change::Max(value) => old.max(value),
        })
    }
}
