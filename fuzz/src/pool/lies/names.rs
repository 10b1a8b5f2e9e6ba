//! Where things are in a pool, and what they are called: what lies are made of.

use crate::input::Input;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use vshmem_pool::layout::*;
use vshmem_pool::Mem;

/// Of all that has an index, few are in use.
pub const FEW: u64 = 6;
/// So many words of a kind are forged one by one.
pub const SOME: u64 = 64;
/// Of a lock's word: somebody holds it.
const HELD: u32 = 1 << 30;

/// A lie, and what it is about.
#[derive(Clone, Copy)]
pub struct Lie {
    pub kind: u8,
    pub a: u8,
    pub b: u8,
    pub c: u8,
}

impl Lie {
    /// One that the input makes up.
    pub fn choose(kind: u8, input: &mut Input) -> Lie {
        let (a, b, c) = (input.byte(), input.byte(), input.byte());
        Lie { kind, a, b, c }
    }

    /// The index of a thing that is chosen by a byte: as a rule one that is in use.
    pub fn one(of: u8) -> u64 {
        u64::from(of) % FEW
    }
}

/// Where things are, as the pool says, which the enemy may have changed as well.
pub struct Names {
    /// The pool.
    pub mem: Mem,
}

impl Names {
    /// As it is now.
    pub fn of(mem: Mem) -> Names {
        Names { mem }
    }

    pub fn word(&self, at: u64) -> Option<&'static AtomicU64> {
        self.mem.word(at)
    }

    pub fn put(&self, at: u64, value: u64) -> Option<()> {
        self.word(at)?.store(value, Relaxed);
        Some(())
    }

    pub fn geometry(&self, i: u64) -> u64 {
        self.word(32 + i * 8).map_or(0, |w| w.load(Relaxed))
    }

    pub fn table(&self, i: u64, index: u64, each: u64) -> u64 {
        self.geometry(i * 2).wrapping_add(index * each)
    }

    pub fn proc(&self, slot: u64) -> Option<&'static Proc> {
        self.mem.at(self.table(1, slot, 128))
    }

    pub fn waiter(&self, index: u64) -> Option<&'static Waiter> {
        self.mem.at(self.table(2, index, 256))
    }

    pub fn shm(&self, index: u64) -> Option<&'static Shm> {
        self.mem.at(self.table(3, index, Kind::Shm.entry_size()))
    }

    pub fn sem(&self, index: u64) -> Option<&'static Sem> {
        self.mem.at(self.table(4, index, Kind::Sem.entry_size()))
    }

    pub fn msg(&self, index: u64) -> Option<&'static Msg> {
        self.mem.at(self.table(5, index, Kind::Msg.entry_size()))
    }

    pub fn root(&self) -> Option<&'static Root> {
        self.mem.at(ROOT)
    }

    pub fn kind(a: u8) -> Kind {
        Kind::ALL[usize::from(a) % 3]
    }

    pub fn head(&self, kind: Kind, index: u64) -> Option<&'static Head> {
        let i = 3 + kind as u64;
        self.mem.at(self.table(i, index, kind.entry_size()))
    }

    /// Blocks of the small heap that nobody has as a rule, with room for `each` times a power of two, which
    /// is `most` or less.
    pub fn ground(&self, part: u64, each: u64, most: u64) -> (u64, u64) {
        let (base, len) = (self.geometry(19), self.geometry(20) * BLOCK);
        let room = len / part / each;
        let count = if room == 0 { 1 } else { 1 << room.ilog2() };
        (base.wrapping_add(len / part), count.min(most))
    }

    /// Has very much forged, as no enemy could while an input is played: adjustments and marks on all that
    /// ground, of those who live.
    pub fn prepare(&self) -> Option<()> {
        let (cells, count) = self.ground(4, 16, 1 << 16);
        for num in 0..count {
            let (slot, generation) = self.process(num as u8 % 5);
            self.put(cells + num * 16 + 8, (slot + 1) | generation << 16 | 1 << 32)?;
        }
        let (ring, count) = self.ground(2, 128, 1 << 20);
        (0..count).try_for_each(|i| self.put(ring + i * 32, mark(self, i as u8 & 4, i)))?;
        for kind in Kind::ALL {
            for index in FEW..self.geometry(7 + 2 * kind as u64) {
                let head = self.head(kind, index)?;
                head.id.store(ID_BIT | index as u32, Relaxed);
            }
        }
        Some(())
    }

    /// The slot of a process, and its generation: of one that lives, stands still or is dead, of another
    /// time, or of none.
    pub fn process(&self, which: u8) -> (u64, u64) {
        let slot = u64::from(which) % 8;
        let ident = self.proc(slot).map_or(0, |p| p.ident.load(Relaxed));
        (slot, (ident >> 48).wrapping_add(u64::from(which >> 6 == 3)))
    }

    /// Its name, as records have it.
    pub fn owner(&self, which: u8) -> u64 {
        let (slot, generation) = self.process(which);
        (slot + 1) | (generation & 0xffff) << 32
    }

    /// The same, as locks have it.
    pub fn holder(&self, which: u8) -> u32 {
        let (slot, generation) = self.process(which);
        HELD | (generation as u32 & 0x3fff) << 16 | slot as u32
    }

    pub fn lock(&self, which: u8) -> Option<&'static AtomicU32> {
        let index = u64::from(which >> 2) % 2;
        match which % 4 {
            0 => Some(&self.root()?.lock),
            1 => Some(&self.sem(index)?.lock),
            _ => Some(&self.msg(index)?.lock),
        }
    }

    /// The offset of a lock, and two owners.
    pub fn flutter(&self, input: &mut Input) -> (u64, [u32; 2]) {
        let (which, one, other) = (input.byte(), input.byte(), input.byte());
        let base = self.mem.base() as u64;
        let at = self.lock(which).map_or(0, |word| word.as_ptr() as u64 - base);
        (at, [self.holder(one), self.holder(other)])
    }
}

/// The mark of somebody who is at work on a message.
pub fn mark(n: &Names, which: u8, lap: u64) -> u64 {
    let state = [1, 3, 4, 7, 2, 5, 6, 1][usize::from(which >> 3) % 8];
    let lap = if which & 128 == 0 { 0 } else { lap };
    state | lap << 4 | 1 << 24 | (n.process(which).0 + 1) << 48
}
