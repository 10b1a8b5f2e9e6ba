//! A set and its semaphores in the pool.

use crate::directory as dir;
use crate::waiters::Queue;
use crate::{short_pid_word, Ctx, Errno, ProcId};
use vshmem_pool::atomic::AtomicU64;
use vshmem_pool::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::budget::LOOK;
use vshmem_pool::layout::{Kind, Sem};
use vshmem_pool::pair::Pair;

/// The bit in the low word by which fast paths keep off.
pub const SLOW: u64 = 1 << 16;
const VALUE: u64 = 0xffff;
const FLAGS: u64 = 0xffff_0000;

/// The value in a low word.
#[inline]
pub fn value(lo: u64) -> i32 {
    (lo & VALUE) as u16 as i16 as i32
}

/// A low word with another value and pid, of which it has room for the lower half.
#[inline]
pub const fn with_value(lo: u64, value: i32, pid: u64) -> u64 {
    lo & FLAGS | (value as u64 & VALUE) | pid << 32
}

/// An adjustment beside a semaphore: whose, and how much. Word 0: nobody's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// The process that has it.
    pub owner: ProcId,
    /// The number that is added when the owner dies.
    pub adjust: i32,
}

impl Beside {
    /// Reads a high word.
    #[inline]
    pub fn of(hi: u64) -> Option<Beside> {
        let slot = (hi as u32 & 0xffff).checked_sub(1)?;
        let owner = ProcId { slot, generation: (hi >> 16) as u16 };
        Some(Beside { owner, adjust: (hi >> 32) as u16 as i16 as i32 })
    }

    /// The high word.
    #[inline]
    pub const fn word(self) -> u64 {
        if self.adjust == 0 {
            return 0;
        }
        (self.owner.slot as u64 + 1) & 0xffff
            | (self.owner.generation as u64) << 16
            | (self.adjust as u16 as u64) << 32
    }
}

// As docs/layout.md has it.
const _: () = {
    assert!(with_value(0, 0x7fff, 0xffff_ffff) == 0xffff_ffff << 32 | 0x7fff && SLOW == 1 << 16);
    assert!(with_value(FLAGS, 0, 0) == 0xffff << 16 && size_of::<Pair>() == 16 && align_of::<Pair>() == 16);
    let beside = Beside { owner: ProcId { slot: 0xfffe, generation: 0xffff }, adjust: -1 };
    assert!(beside.word() == 0xffff_ffff_ffff);
};

/// A set that was found: what its entry said, checked.
#[derive(Clone, Copy)]
pub struct Set {
    /// The entry.
    pub entry: &'static Sem,
    /// The entry's index.
    pub index: u32,
    /// The id by which it was found.
    pub id: i32,
    /// Semaphores.
    pub nsems: u32,
    /// Offset of the first.
    pub cells: u64,
}

impl Set {
    /// Finds a set by id.
    #[inline]
    pub fn find(c: &Ctx, id: i32) -> Result<Set, Errno> {
        let (index, _) = dir::lookup(c, Kind::Sem, id)?;
        let set = Set::at(c, index)?;
        Ok(Set { id, ..set })
    }

    /// The set at an index, in whatever state it is.
    #[inline]
    pub fn at(c: &Ctx, index: u32) -> Result<Set, Errno> {
        let entry = c.pool.sem(index).ok_or(Errno::EINVAL)?; // unpaid
        let id = entry.head.id.load(Acquire) as i32;
        let (nsems, cells) = (entry.nsems.load(Relaxed), entry.cells.load(Relaxed));
        if nsems > 65535 || cells % 16 != 0 || c.pool.mem().bytes(cells, nsems * 16).is_none() {
            return Err(Errno::EINVAL);
        }
        Ok(Set { entry, index, id, nsems: nsems as u32, cells })
    }

    /// A semaphore.
    pub fn cell(&self, c: &Ctx, num: u32) -> Result<&'static Pair, Errno> {
        c.pay(LOOK).ok_or(Errno::EIDRM)?;
        self.only_cell(c, num)
    }

    /// A semaphore, for a fast path, which looks at no other one and pays nothing.
    #[inline]
    pub fn only_cell(&self, c: &Ctx, num: u32) -> Result<&'static Pair, Errno> {
        if num >= self.nsems {
            return Err(Errno::EFBIG);
        }
        c.pool.mem().at(self.cells + num as u64 * 16).ok_or(Errno::EINVAL) // unpaid
    }

    /// All semaphores' words, two each, to be looked at in order.
    pub fn words(&self, c: &Ctx) -> Result<&'static [AtomicU64], Errno> {
        c.words(self.cells, u64::from(self.nsems) * 2).ok_or(Errno::EIDRM)
    }

    /// Offset of a semaphore's low word.
    pub fn lo(&self, num: u32) -> u64 {
        self.cells + num as u64 * 16
    }

    /// Keeps fast paths off a semaphore.
    pub fn freeze(&self, c: &Ctx, num: u32) -> Result<(), Errno> {
        let cell = self.cell(c, num)?;
        if cell.lo.load(Relaxed) & SLOW == 0 {
            cell.lo.fetch_or(SLOW, AcqRel);
        }
        Ok(())
    }

    /// Lets fast paths use a semaphore again.
    pub fn thaw(&self, c: &Ctx, num: u32) {
        if let Ok(cell) = self.cell(c, num) {
            cell.lo.fetch_and(!SLOW, AcqRel);
        }
    }

    /// The queue of waiters.
    pub fn queue(&self) -> Queue {
        Queue { first: &self.entry.first_waiter, last: &self.entry.last_waiter }
    }

    /// Does anybody wait?
    pub fn has_waiters(&self) -> bool {
        self.entry.first_waiter.load(Relaxed) != 0
    }

    /// The reference by which processes remember the set.
    pub fn reference(&self) -> u32 {
        Kind::Sem.reference(self.index)
    }

    /// Is it still the set that was found?
    pub fn still(&self) -> bool {
        dir::still(&self.entry.head, self.id)
    }
}

/// The caller's pid as a semaphore keeps it.
#[inline]
pub fn my_pid(c: &Ctx) -> u64 {
    short_pid_word(c.member, c.pid)
}
