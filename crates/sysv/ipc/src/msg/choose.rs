//! The message that a receiver gets.

use super::mark::{State, LONGEST};
use super::queue::Slow;
use super::ring::{Ring, CELL};
use super::scan::{all, consume_at, find, item, price, Item};

/// The messages that a receiver wants, as `convert_mode` in Linux has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The first.
    Any,
    /// The first of this type.
    Equal(i64),
    /// The first of any other type.
    Except(i64),
    /// The first of the lowest type that is not above this.
    UpTo(i64),
    /// The n-th, whatever it is (`MSG_COPY`).
    Number(i64),
}

impl Wanted {
    /// The message that the arguments of `msgrcv` ask for.
    #[inline]
    pub fn new(mtyp: i64, flg: i32) -> Wanted {
        if flg & super::MSG_COPY != 0 {
            Wanted::Number(mtyp)
        } else if mtyp == 0 {
            Wanted::Any
        } else if mtyp < 0 {
            Wanted::UpTo(mtyp.checked_neg().unwrap_or(i64::MAX))
        } else if flg & super::MSG_EXCEPT != 0 {
            Wanted::Except(mtyp)
        } else {
            Wanted::Equal(mtyp)
        }
    }

    /// Does a message of this type do?
    #[inline]
    pub fn accepts(self, kind: i64) -> bool {
        match self {
            Wanted::Any | Wanted::Number(_) => true,
            Wanted::Equal(t) => kind == t,
            Wanted::Except(t) => kind != t,
            Wanted::UpTo(t) => kind <= t,
        }
    }

    /// Is a message of this type at the head certainly the one?
    #[inline]
    pub fn takes_first(self, kind: i64) -> bool {
        match self {
            Wanted::UpTo(_) => kind == 1 && self.accepts(kind),
            Wanted::Number(_) => false,
            _ => self.accepts(kind),
        }
    }
}

/// The message that a receiver gets.
pub fn choose(slow: &Slow, ring: &Ring, wanted: Wanted) -> Option<Item> {
    let is_message = |item: Item| item.mark.state == State::Ready;
    match wanted {
        Wanted::UpTo(most) => choose_lowest(slow, ring, most),
        Wanted::Number(n) => {
            let mut messages = (0..).take_while(|i| *i <= n);
            find(slow, ring, |item| is_message(item) && messages.next() == Some(n))
        }
        _ => find(slow, ring, |item| is_message(item) && wanted.accepts(ring.kind(item.pos))),
    }
}

/// The first message of the lowest type up to `most`. Nearly always all there are have to be looked at, so
/// each costs as little as it can, and what was taken out between them is looked at once.
fn choose_lowest(slow: &Slow, ring: &Ring, most: i64) -> Option<Item> {
    let mut lowest = Lowest { most, at: None };
    let mut gap: Option<Item> = None;
    let (mut pos, mut left) = all(slow, ring);
    while left > 0 && !lowest.is_certain() {
        let short = lowest.look_at_short(ring, pos, left);
        slow.c.pay(short.into())?;
        if short > 0 {
            gap.take().into_iter().for_each(|gap| merge(ring, gap));
            (pos, left) = (pos.wrapping_add(short), left - short);
            continue;
        }
        let item = item(ring, pos, left)?;
        slow.c.pay(price(item))?;
        if item.mark.state == State::Consumed {
            let cells = gap.map_or(0, |gap| gap.cells) + item.cells;
            gap = Some(Item { cells, ..gap.unwrap_or(item) });
        } else {
            gap.take().into_iter().for_each(|gap| merge(ring, gap));
        }
        if item.mark.state == State::Ready {
            lowest.look_at(ring, pos);
        }
        (pos, left) = (pos.wrapping_add(item.cells), left - item.cells);
    }
    lowest.at.and_then(|pos| item(ring, pos, ring.cells()))
}

/// The lowest type that was seen, and what is still looked for.
struct Lowest {
    /// The highest type that is lower, or as low as is wanted.
    most: i64,
    /// The first message of that type.
    at: Option<u32>,
}

impl Lowest {
    #[inline]
    fn look_at(&mut self, ring: &Ring, pos: u32) {
        let kind = ring.kind(pos);
        if kind <= self.most {
            *self = Lowest { most: kind.saturating_sub(1), at: Some(pos) };
        }
    }

    /// There is no lower type.
    fn is_certain(&self) -> bool {
        self.most < 1
    }

    /// Looks at messages of one cell, in a row; returns how many.
    #[inline]
    fn look_at_short(&mut self, ring: &Ring, pos: u32, left: u32) -> u32 {
        for i in 0..left {
            let pos = pos.wrapping_add(i);
            if self.is_certain() || ring.ready(pos).is_none_or(|len| len > CELL) {
                return i;
            }
            self.look_at(ring, pos);
        }
        left
    }
}

/// Makes one item of what is used up in a row, from an item on over so many cells. Both ends are frozen, so
/// nobody stands in between.
fn merge(ring: &Ring, gap: Item) {
    if gap.cells > gap.mark.len && gap.cells <= LONGEST {
        consume_at(ring, gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use crate::tests::msg::{queue, receive, send};
    use crate::Ctx;
    use crate::{msg::queue::Queue, IPC_NOWAIT};
    use std::vec::Vec;
    use vshmem_pool::lock::SignalsBlocked;

    fn items(c: &Ctx, id: i32) -> Vec<(State, u32)> {
        let queue = Queue::find(c, id).unwrap();
        let signals = SignalsBlocked::new(c.kernel);
        let slow = queue.lock(c, &signals).unwrap();
        let mut all = Vec::new();
        find(&slow, &queue.ring(c).unwrap(), |item| {
            all.push((item.mark.state, item.cells));
            false
        });
        all
    }

    #[test]
    fn what_was_taken_out_is_walked_over_at_once() {
        let world = World::new(1 << 20);
        let p = world.process();
        let c = &p.ctx();
        let id = queue(c);
        for (kind, len) in [(9, 1), (1, 1), (2, 100), (3, 64), (8, 1)] {
            send(c, id, kind, &std::vec![0; len]).unwrap();
        }
        for kind in 1..=3 {
            assert_eq!(receive(c, id, 100, -7, IPC_NOWAIT).unwrap().0, kind);
        }
        assert!(receive(c, id, 100, -7, IPC_NOWAIT).is_err());
        assert_eq!(items(c, id), [(State::Ready, 1), (State::Consumed, 4), (State::Ready, 1)]);
        for (wanted, kind) in [(0, 9), (0, 8)] {
            assert_eq!(receive(c, id, 100, wanted, IPC_NOWAIT).unwrap().0, kind);
        }
        assert_eq!(items(c, id), []);
    }

    /// The first of the lowest type, as a look at all of them finds it, over many laps of the ring.
    #[test]
    fn the_lowest_type_is_found_among_all() {
        let world = World::new(4 << 20);
        let p = world.process();
        let c = &p.ctx();
        let id = queue(c);
        let (mut there, mut seed) = (Vec::<(i64, usize)>::new(), 1u32);
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for _ in 0..20_000 {
            if there.len() < 40 && random(2) == 0 {
                let (kind, len) = (i64::from(random(9)) + 1, random(300) as usize);
                send(c, id, kind, &std::vec![0; len]).unwrap();
                there.push((kind, len));
                continue;
            }
            let most = i64::from(random(10)) + 1;
            let lowest = there.iter().map(|m| m.0).filter(|kind| *kind <= most).min();
            let place = there.iter().position(|m| Some(m.0) == lowest);
            let got = receive(c, id, 300, -most, IPC_NOWAIT).ok().map(|(kind, text)| (kind, text.len()));
            assert_eq!(got, place.map(|place| there.remove(place)));
        }
    }
}
