//! Marks: the word beside a message's text that says in which state the message is.

/// The state of a position of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No message, since the marks were made or swept.
    Free = 6,
    /// Taken by a sender, which is named, and not finished. `len` counts cells.
    Reserved = 1,
    /// A message.
    Ready = 2,
    /// A message that is being copied out by the receiver that is named.
    Taken = 3,
    /// A message that was handed to a waiting receiver, which is named.
    Assigned = 4,
    /// A message that was copied out, or dropped. `len` counts cells.
    Consumed = 5,
    /// The place of a message whose sender, which is named, is at work in a ring that the queue has left.
    /// `len` counts cells.
    InRetired = 7,
}

/// A mark: `{state:4, lap:20, len:24, owner:16}`. It counts only in its own lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// State.
    pub state: State,
    /// Low 20 bits of the lap.
    pub lap: u32,
    /// Bytes of text, or cells.
    pub len: u32,
    /// Process slot + 1, 0: nobody.
    pub owner: u16,
}

/// Most bytes, or cells.
pub const LONGEST: u32 = (1 << 24) - 1;

/// The part of a lap that a mark keeps.
pub const LAP: u32 = (1 << 20) - 1;

impl Mark {
    /// The word.
    #[inline]
    pub const fn word(self) -> u64 {
        self.state as u64
            | ((self.lap & LAP) as u64) << 4
            | (self.len as u64 & LONGEST as u64) << 24
            | (self.owner as u64) << 48
    }

    /// Reads a word; `None` if no such state exists.
    #[inline]
    pub fn of(word: u64) -> Option<Mark> {
        let state = match word & 15 {
            6 => State::Free,
            1 => State::Reserved,
            2 => State::Ready,
            3 => State::Taken,
            4 => State::Assigned,
            5 => State::Consumed,
            7 => State::InRetired,
            _ => return None,
        };
        Some(Mark {
            state,
            lap: (word >> 4) as u32 & LAP,
            len: (word >> 24) as u32 & LONGEST,
            owner: (word >> 48) as u16,
        })
    }

    /// The mark of a free place, as of a lap. The word looks like nobody's data: a late comer must not
    /// mistake memory that became somebody else's for it.
    #[inline]
    pub const fn free(lap: u32) -> Mark {
        Mark { state: State::Free, lap: lap & LAP, len: 0xa5_5a69, owner: u16::MAX }
    }
}

// As docs/layout.md has it.
const _: () = {
    let mark = Mark { state: State::Reserved, lap: 0, len: 0, owner: 0 };
    assert!(mark.word() == 1 && Mark { lap: LAP, ..mark }.word() == 0xf_ffff << 4 | 1);
    assert!(Mark { len: 0xff_ffff, ..mark }.word() == 0xff_ffff << 24 | 1);
    assert!(Mark { owner: u16::MAX, ..mark }.word() == 0xffff << 48 | 1);
    assert!(State::Ready as u8 == 2 && State::Taken as u8 == 3 && State::Assigned as u8 == 4);
    assert!(State::Consumed as u8 == 5 && State::Free as u8 == 6 && State::InRetired as u8 == 7);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_packing() {
        for state in [
            State::Free,
            State::Reserved,
            State::Ready,
            State::Taken,
            State::Assigned,
            State::Consumed,
            State::InRetired,
        ] {
            let mark = Mark { state, lap: 0xabcde, len: 0x123456, owner: 65535 };
            assert_eq!(Mark::of(mark.word()), Some(mark));
        }
        assert_eq!(Mark::of(0), None);
        assert_eq!(Mark::of(Mark::free(7).word()), Some(Mark::free(7)));
    }
}
