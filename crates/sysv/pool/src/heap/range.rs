//! Ranges of blocks, and what of them may not read as zeros.

/// Blocks that may not read as zeros: all that don't are among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soil {
    /// The first one.
    pub from: u32,
    /// The one behind the last one.
    pub to: u32,
}

impl Soil {
    /// All read as zeros.
    pub const NONE: Soil = Soil { from: 0, to: 0 };

    /// Any may not.
    pub const ALL: Soil = Soil { from: 0, to: u32::MAX };

    /// Do all read as zeros?
    pub fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// Blocks.
    pub fn count(self) -> u32 {
        self.to.saturating_sub(self.from)
    }

    /// The union with others, and with what is in between.
    pub(super) fn with(self, other: Soil) -> Soil {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Soil { from: self.from.min(other.from), to: self.to.max(other.to) },
        }
    }

    /// The blocks of these from one to another.
    pub fn within(self, from: u32, to: u32) -> Soil {
        let part = Soil { from: self.from.max(from), to: self.to.min(to) };
        if part.is_empty() {
            Soil::NONE
        } else {
            part
        }
    }
}

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub first: u32,
    /// Blocks.
    pub count: u32,
    /// The blocks among them that may not read as zeros.
    pub soil: Soil,
}

impl Range {
    /// All of it may not read as zeros, or none of it.
    pub fn new(first: u32, count: u32, soiled: bool) -> Range {
        let all = Soil { from: first, to: first.saturating_add(count) };
        Range { first, count, soil: if soiled { all } else { Soil::NONE } }
    }
}
