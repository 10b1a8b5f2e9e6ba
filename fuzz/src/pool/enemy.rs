//! What an enemy does: words that mean something more often than others, with values that are nearly right
//! more often than others; and lies that several words tell together.

use super::lies::{self, Lie};
use super::steps;
use crate::input::Input;
use std::sync::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, Root, Superblock, PAGE, POOL_LOG, ROOT};
use vshmem_pool::Mem;

/// What is done at once, at the most.
const MOST: usize = 12;

/// A word or a lie.
#[derive(Clone, Copy)]
pub enum Deed {
    /// One word.
    Write(Write),
    /// Several, which belong together.
    Lie(Lie),
}

impl Deed {
    /// What the input says is to be done.
    pub fn choose(mem: Mem, input: &mut Input) -> Deed {
        let what = input.byte();
        if what < 112 {
            Deed::Lie(Lie::choose(what, input))
        } else {
            Deed::Write(Write::choose(mem, what, input))
        }
    }

    /// Does it.
    pub fn carry_out(self, mem: Mem) {
        steps::count();
        match self {
            Deed::Write(write) => write.carry_out(mem),
            Deed::Lie(lie) => lies::tell(lie, mem),
        }
    }
}

/// One write.
#[derive(Clone, Copy)]
pub struct Write {
    at: u64,
    how: u8,
    number: u64,
}

/// Writes some words.
pub fn write_some(mem: Mem, input: &mut Input) {
    for _ in 0..input.below(MOST + 1) {
        Deed::choose(mem, input).carry_out(mem);
    }
}

impl Write {
    /// What the input says is to be written, at a place of such a kind.
    fn choose(mem: Mem, kind: u8, input: &mut Input) -> Write {
        let at = place(mem, kind, input).min(mem.len() as u64 - 8) & !7;
        let how = input.byte();
        let number = match how % 16 {
            0 => input.u64(),
            1..=4 => input.u32().into(),
            _ => input.byte().into(),
        };
        Write { at, how, number }
    }

    /// Writes it.
    fn carry_out(self, mem: Mem) {
        let Some(word) = mem.word(self.at) else {
            return;
        };
        let good = word.load(Relaxed);
        let (len, n) = (mem.len() as u64, self.number);
        let small = n as u8 as i8 as i64 as u64;
        let value = match self.how % 16 {
            0 | 1 => n,
            2 => good & !0xffff_ffff | n,
            3 => good & 0xffff_ffff | n << 32,
            4 => n << 16,
            5 => good.wrapping_add(small),
            6 => good.wrapping_add(small << 32),
            7 => good.wrapping_add(small.wrapping_mul(PAGE)),
            8 => good ^ 1 << (n % 64),
            9 => len.wrapping_add(small.wrapping_mul(8)),
            10 => self.at.wrapping_add(small.wrapping_mul(8)),
            11 => [0, u64::MAX, 1 << 63, 1 << 31, u32::MAX.into(), 1 << 30, 1 << 16, 0xffff][n as usize % 8],
            12 => n << 32 | n,
            13 => 1 << 31 | n,
            14 => n << (n % 57),
            // What stands somewhere else: an old value, or another IPC object's.
            _ => mem.word(n * 8 % 4096 + self.at / 4096 * 4096).map_or(0, |w| w.load(Relaxed)),
        };
        word.store(value, Relaxed);
    }
}

/// Where.
fn place(mem: Mem, kind: u8, input: &mut Input) -> u64 {
    let table = |i: u64| mem.word(32 + i * 16).map_or(0, |w| w.load(Relaxed));
    let word = |input: &mut Input, from: u64, len: u64| from.wrapping_add(u64::from(input.u16()) * 8 % len);
    match kind % 16 {
        0 => word(input, 0, size_of::<Superblock>() as u64),
        1 | 2 => word(input, ROOT, size_of::<Root>() as u64),
        3 => word(input, POOL_LOG, 64),
        4 => word(input, table(0), 64 * 4),
        5 => word(input, table(1), 128 * 6),
        6 => word(input, table(2), 256 * 8),
        7 => word(input, table(3), Kind::Shm.entry_size() * 3),
        8 => word(input, table(4), Kind::Sem.entry_size() * 3),
        9 | 10 => word(input, table(5), Kind::Msg.entry_size() * 4),
        11 => {
            let which = 6 + u64::from(input.byte() % 3);
            word(input, table(which), PAGE)
        }
        // Words of the heaps: geometry has three for each of them.
        12 => word(input, table(9), PAGE),
        // Blocks: cells of sets, rings, records, logs.
        13 | 14 => {
            let base = mem.word(32 + 19 * 8).map_or(0, |w| w.load(Relaxed));
            word(input, base, 1 << 18)
        }
        _ => u64::from(input.u32()) * 8 % mem.len() as u64,
    }
}
