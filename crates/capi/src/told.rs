//! How large this process was told that sets and segments are.
//!
//! A program has buffers and addresses for as many semaphores and bytes as it was told of: by `*get`, `IPC_STAT` or `shmat`. A
//! construct's size never changes, but in a pool a hostile member may write another one: then `GETALL` would write beyond the program's
//! array, and `shmat` with `SHM_REMAP` over what lies behind the segment. So what was told is remembered here, where no other process can change
//! it, and another size is as good as a removed construct.
//!
//! The first size that was told counts: a program that asks again, for a time or an owner, need not look at the size again. Only `*get` tells
//! anew, since an id may come again, for another construct, when very many were made at its place.
//!
//! A construct that this process was never told of is taken as it is. Each place is that of an index, and the last construct there counts: of
//! more than a thousand constructs some are not remembered.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vshmem_ipc::Errno;

const PLACES: usize = 1024;
/// The part of an id that tells one construct from others: all but bit 30, which is always set.
const ID_BITS: u32 = 30;
const SIZE_BITS: u32 = 28;

/// What was told of the constructs of a kind: the pool's place + 1, the id and the size, from the high end.
pub struct Told([AtomicU64; PLACES]);

/// Of sets: semaphores.
pub static SETS: Told = Told::new();
/// Of segments: pages of 4096 bytes.
pub static SEGMENTS: Told = Told::new();

impl Told {
    const fn new() -> Told {
        Told([const { AtomicU64::new(0) }; PLACES])
    }

    fn place(&self, id: i32) -> &AtomicU64 {
        &self.0[id as usize % PLACES]
    }

    fn name(pool: usize, id: i32) -> u64 {
        (pool as u64 + 1) << ID_BITS | (id as u64 & ((1 << ID_BITS) - 1))
    }

    /// The program is told that the construct is so large, whatever it was told before.
    pub fn note(&self, pool: usize, id: i32, size: u64) {
        if size >> SIZE_BITS == 0 {
            let word = Told::name(pool, id) << SIZE_BITS | size;
            self.place(id).store(word, Relaxed);
        }
    }

    /// What the program was told, if it was.
    pub fn of(&self, pool: usize, id: i32) -> Option<u64> {
        let word = self.place(id).load(Relaxed);
        (word >> SIZE_BITS == Told::name(pool, id)).then_some(word & ((1 << SIZE_BITS) - 1))
    }

    /// Is the construct, which is so large, the one that the program was told of?
    pub fn check(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        match self.of(pool, id) {
            Some(told) if told != size => Err(Errno::EIDRM),
            _ => Ok(()),
        }
    }

    /// The program is about to be told once more how large the construct is: EIDRM if it was told something else.
    pub fn repeat(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        self.check(pool, id, size)?;
        self.note(pool, id, size);
        Ok(())
    }

    /// The program has no more to do with the construct.
    pub fn forget(&self, pool: usize, id: i32) {
        if self.of(pool, id).is_some() {
            self.place(id).store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_counts() {
        let told = Told::new();
        let id = 0x4000_0007;
        assert_eq!(told.check(0, id, 5), Ok(()), "nothing was told");
        told.note(0, id, 5);
        assert_eq!(told.check(0, id, 5), Ok(()));
        for other in [0, 4, 6, 1 << 40] {
            assert_eq!(told.check(0, id, other), Err(Errno::EIDRM));
        }
        assert_eq!(told.repeat(0, id, 6), Err(Errno::EIDRM));
        assert_eq!(told.repeat(0, id, 5), Ok(()));
        assert_eq!(told.check(1, id, 6), Ok(()), "in another pool");
        assert_eq!(told.check(0, id + (1 << 17), 6), Ok(()), "a later one");
        told.note(0, id, 6);
        assert_eq!(told.check(0, id, 6), Ok(()), "told anew");
        told.forget(0, id + (1 << 17));
        assert_eq!(told.of(0, id), Some(6));
        told.forget(0, id);
        assert_eq!(told.of(0, id), None);
        let all = (1 << SIZE_BITS) - 1;
        told.note(7, i32::MAX, all);
        assert_eq!(told.of(7, i32::MAX), Some(all));
        told.note(7, i32::MAX, all + 1);
        assert_eq!(told.of(7, i32::MAX), Some(all), "not to be remembered");
    }
}
