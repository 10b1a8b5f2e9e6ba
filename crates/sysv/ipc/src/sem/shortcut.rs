//! Shortcuts to sets: a process remembers a set, so that its next P or V need not find and judge it again.
//!
//! A pool is untrusted: what a shortcut leads to was checked when it was made, and it is compared with what
//! the entry says now. An entry that says the same of id, mode, maker, size and place is the same set, or one
//! that differs from it in nothing that matters here; so an id that comes back after all sequence numbers
//! leads nowhere else. The semaphore lies in what was checked, even if the entry says otherwise now.

use super::fast::store_time;
use super::set::{my_pid, value, with_value, Beside, Set, SLOW};
use super::{Sembuf, SEMVMX};
use crate::perm::{self, Granted};
use crate::Ctx;
use vshmem_pool::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use vshmem_pool::layout::{Kind, Sem, HEAD_DYING};
use vshmem_pool::pair::Pair;

/// A set that the caller may change, as it was found.
#[derive(Clone, Copy)]
pub struct Shortcut([u64; WORDS]);

/// Words of a [`Shortcut`].
pub const WORDS: usize = 7;

/// The word that is the address of the entry.
const ENTRY: usize = 0;
/// The word that is the address of the semaphores, which all lie in the pool and have memory.
const FIRST: usize = 1;
/// The word that is the number of semaphores.
const NSEMS: usize = 2;
/// The word that is the semaphores' offset.
const CELLS: usize = 3;
const MODE: usize = 4;
/// The word that is the user who made the set: what stays granted is granted to the maker, or to all.
const CUID: usize = 5;
/// The word that is the caller's pid, as semaphores keep it.
const PID: usize = 6;

/// The entry at an address.
///
/// # Safety
/// It is a word of a shortcut, made in this process, whose pool is still mapped.
#[inline(always)]
unsafe fn entry_at(address: u64) -> &'static Sem {
    // SAFETY: the address of a reference, as the caller vouches.
    unsafe { &*core::ptr::with_exposed_provenance(address as usize) }
}

/// A semaphore that was found to lie in the pool.
///
/// # Safety
/// As of [`entry_at`], and there are so many.
#[inline(always)]
unsafe fn cell_at<'a>(first: u64, num: u64) -> &'a Pair {
    let first = core::ptr::with_exposed_provenance::<Pair>(first as usize);
    // SAFETY: as the caller vouches.
    unsafe { &*first.add(num as usize) }
}

/// Does the id still name the set, and does the entry say of it what it said in `word`? Asked after the value
/// was read, see [`super::fast`].
#[inline(always)]
fn is_same(entry: &Sem, id: i32, word: impl Fn(usize) -> u64) -> bool {
    let head = &entry.head;
    head.id.load(Acquire) == id as u32
        && head.mode.load(Relaxed) == word(MODE) as u32
        && head.cuid.load(Relaxed) == word(CUID) as u32
        && head.flags.load(Relaxed) & HEAD_DYING == 0
        && entry.nsems.load(Relaxed) == word(NSEMS)
        && entry.cells.load(Relaxed) == word(CELLS)
}

/// One P or V, if nothing stands in its way and `id` still names the set. `None` says nothing. The time has
/// to be recorded yet. Step by step, each with few values to keep: so few registers have to be saved.
///
/// # Safety
/// Each of the words is one of a shortcut, made in this process, whose pool is still mapped; and they are all
/// of the same one if `are_of_one` says so after they were read.
#[inline(always)]
pub unsafe fn op(
    words: &[AtomicU64; WORDS],
    are_of_one: impl FnOnce() -> bool,
    id: i32,
    num: u16,
    op: impl FnOnce() -> i16,
) -> Option<Performed> {
    let word = |i: usize| words[i].load(Relaxed);
    if u64::from(num) >= word(NSEMS) {
        return None;
    }
    // SAFETY: as the caller vouches.
    let entry = unsafe { entry_at(word(ENTRY)) };
    let first = word(FIRST);
    if !are_of_one() {
        return None;
    }
    // SAFETY: as the caller vouches; all words are of one shortcut.
    let cell = unsafe { cell_at(first, num.into()) };
    let (lo, hi) = cell.load();
    let op = op();
    let new = value(lo) + i32::from(op);
    // SEMVMX is all ones: a negative number is above it, too.
    let may = op != 0 && hi == 0 && lo & SLOW == 0 && new as u32 <= SEMVMX as u32;
    let new = with_value(lo, new, word(PID));
    let done = may && is_same(entry, id, word) && cell.cas_low(lo, new);
    done.then_some(Performed(entry))
}

impl Shortcut {
    /// A shortcut to a set that the caller may change, and who else may, as long as it leads there.
    pub fn to(c: &Ctx, id: i32) -> Option<(Shortcut, Granted)> {
        let Set { entry, cells, nsems, .. } = Set::find(c, id).ok()?;
        let mode = entry.head.mode.load(Relaxed);
        let cuid = entry.head.cuid.load(Relaxed);
        let granted = perm::stays_granted(c, cuid, mode, perm::WRITE)?;
        let first = c.pool.mem().bytes(cells, u64::from(nsems) * size_of::<Pair>() as u64)?; // unpaid
        let mut words = [0; WORDS];
        words[ENTRY] = core::ptr::from_ref(entry).expose_provenance() as u64;
        words[FIRST] = first.expose_provenance() as u64;
        words[NSEMS] = nsems.into();
        words[CELLS] = cells;
        words[MODE] = mode.into();
        words[CUID] = cuid.into();
        words[PID] = my_pid(c);
        Some((Shortcut(words), granted))
    }

    /// The shortcut as words, which [`Shortcut::of_words`] reads.
    pub fn words(&self) -> [u64; WORDS] {
        self.0
    }

    /// The shortcut that words are.
    ///
    /// # Safety
    /// They are those of one shortcut, made in this process, whose pool is still mapped.
    pub unsafe fn of_words(words: [u64; WORDS]) -> Shortcut {
        Shortcut(words)
    }

    fn entry(&self) -> &'static Sem {
        // SAFETY: words of one shortcut, as the caller of `of_words` vouched.
        unsafe { entry_at(self.0[ENTRY]) }
    }

    fn cell(&self, num: u16) -> Option<&Pair> {
        let num = u64::from(num);
        // SAFETY: as above; there are so many.
        (num < self.0[NSEMS]).then(|| unsafe { cell_at(self.0[FIRST], num) })
    }

    fn is_same(&self, id: i32) -> bool {
        is_same(self.entry(), id, |i| self.0[i])
    }

    /// Is the value enough for a P or V, or does it become so while the caller `may` wait for it, round by
    /// round?
    pub fn awaits_value(&self, sop: Sembuf, may: impl Fn(u32) -> bool) -> bool {
        let Some(cell) = self.cell(sop.num) else { return false };
        let mut rounds = 0;
        loop {
            let lo = cell.lo.load(Relaxed);
            if lo & SLOW == 0 && value(lo) + i32::from(sop.op) >= 0 {
                return true;
            }
            if lo & SLOW != 0 || !may(rounds) {
                return false;
            }
            rounds += 1;
        }
    }

    /// One P or V with `SEM_UNDO`, if the adjustment finds its place beside the semaphore.
    #[inline]
    pub fn op_undone(&self, c: &Ctx, id: i32, sop: Sembuf) -> Option<Performed> {
        let entry = self.entry();
        let cell = self.cell(sop.num)?;
        let (lo, hi) = cell.load();
        if lo & SLOW != 0 || !self.is_same(id) {
            return None;
        }
        // The process may have turned to another pool since the shortcut was read: the slot is one of `c`'s.
        let index = c.pool.ids().index(id);
        let found = c.pool.sem(index); // unpaid
        if !found.is_some_and(|found| core::ptr::eq(found, entry)) {
            return None;
        }
        let before = match Beside::of(hi) {
            None if entry.undo.load(Acquire) == 0 => {
                c.pool.touch(c.me, Kind::Sem.reference(index));
                0
            }
            Some(beside) if beside.owner == c.me => beside.adjust,
            _ => return None,
        };
        let (new, adjust) = (value(lo) + i32::from(sop.op), before - i32::from(sop.op));
        let new = u16::try_from(new).ok().filter(|new| i32::from(*new) <= SEMVMX)?;
        let adjust = i16::try_from(adjust).ok()?;
        let new_lo = with_value(lo, new.into(), self.0[PID]);
        let new_hi = Beside { owner: c.me, adjust: adjust.into() }.word();
        cell.cas((lo, hi), (new_lo, new_hi)).is_ok().then_some(Performed(entry))
    }
}

/// An operation whose time is not recorded yet.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Performed(&'static Sem);

impl Performed {
    /// Records the time of the operation.
    #[inline(always)]
    pub fn at(self, now: i64) {
        store_time(&self.0.otime, now);
    }
}

#[cfg(test)]
mod tests;
