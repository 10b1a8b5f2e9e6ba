//! What a process remembers of a set, so that its next P or V need not find and judge the set again.
//!
//! A pool is untrusted: what a shortcut leads to was checked when it was made, and it is compared with what
//! the entry says now. An entry that says the same of id, mode, maker, size and place is the same set, or one
//! that differs from it in nothing that matters here; so an id that comes back after all sequence numbers
//! leads nowhere else. Whatever the entry says, the semaphore lies in what was checked.

use super::fast::store_time;
use super::set::{my_pid, value, with_value, Beside, Set, SLOW};
use super::{Sembuf, SEMVMX};
use crate::perm::{self, Granted};
use crate::Ctx;
use core::ptr::NonNull;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Sem, HEAD_DYING, MAX_ENTRIES};
use vshmem_pool::pair::Pair;

/// A set that the caller may change, as it was found.
#[derive(Clone, Copy)]
pub struct Shortcut {
    entry: &'static Sem,
    /// The semaphores, which all lie in the pool and have memory.
    first: NonNull<Pair>,
    /// Their offset.
    cells: u64,
    /// `{mode:32, the caller's pid as semaphores keep it:32}`.
    rest: u64,
    nsems: u64,
    /// Who has made it: what stays granted is granted to the maker, or to all.
    cuid: u32,
}

/// Words of a [`Shortcut`].
pub const WORDS: usize = 5;

impl Shortcut {
    /// To a set that the caller may change, and whoever else may do so as long as the shortcut leads there.
    pub fn to(c: &Ctx, id: i32) -> Option<(Shortcut, Granted)> {
        let Set { entry, cells, nsems, .. } = Set::find(c, id).ok()?;
        let mode = entry.head.mode.load(Relaxed);
        let cuid = entry.head.cuid.load(Relaxed);
        let granted = perm::stays_granted(c, cuid, mode, perm::WRITE)?;
        let first = c.pool.mem().bytes(cells, u64::from(nsems) * size_of::<Pair>() as u64)?; // unpaid
        let first = NonNull::new(first.cast())?;
        let rest = u64::from(mode) << 32 | my_pid(c);
        Some((Shortcut { entry, first, cells, rest, nsems: nsems.into(), cuid }, granted))
    }

    /// As words that [`Shortcut::of_words`] reads.
    pub fn words(&self) -> [u64; WORDS] {
        let entry = core::ptr::from_ref(self.entry).expose_provenance() as u64;
        let first = self.first.as_ptr().expose_provenance() as u64;
        [entry, first, self.cells, self.rest, u64::from(self.cuid) << 32 | self.nsems]
    }

    /// Reads words.
    ///
    /// # Safety
    /// They are those of one shortcut, made in this process, whose pool is still mapped.
    #[inline(always)]
    pub unsafe fn of_words([entry, first, cells, rest, sizes]: [u64; WORDS]) -> Shortcut {
        // SAFETY: addresses of references, as the caller vouches.
        unsafe {
            Shortcut {
                entry: &*core::ptr::with_exposed_provenance(entry as usize),
                first: NonNull::new_unchecked(core::ptr::with_exposed_provenance_mut(first as usize)),
                cells,
                rest,
                nsems: sizes & 0xffff_ffff,
                cuid: (sizes >> 32) as u32,
            }
        }
    }

    /// The semaphore of that number, if the entry says of all of them what it said.
    #[inline(always)]
    fn cell(&self, num: u16) -> Option<&Pair> {
        let num = u64::from(num);
        if num >= self.nsems
            || self.entry.nsems.load(Relaxed) != self.nsems
            || self.entry.cells.load(Relaxed) != self.cells
        {
            return None;
        }
        // SAFETY: one of those that were found to lie in the pool.
        Some(unsafe { &*self.first.as_ptr().add(num as usize) })
    }

    /// Does the id still name the set, and does the head say what it said? Asked after the value was read,
    /// see [`super::fast::try_fast`].
    #[inline(always)]
    fn is_same(&self, id: i32) -> bool {
        let head = &self.entry.head;
        head.id.load(Acquire) == id as u32
            && head.mode.load(Relaxed) == (self.rest >> 32) as u32
            && head.cuid.load(Relaxed) == self.cuid
            && head.flags.load(Relaxed) & HEAD_DYING == 0
    }

    /// One P or V, if nothing stands in its way and `id` still names the set. `None` says nothing. The time
    /// has to be recorded yet.
    #[inline(always)]
    pub fn op(&self, id: i32, sop: Sembuf) -> Option<Performed> {
        // Step by step, each with few values to keep: so no register has to be saved.
        let cell = self.cell(sop.num)?;
        let (lo, hi) = cell.load();
        if hi != 0 || lo & SLOW != 0 || !self.is_same(id) {
            return None;
        }
        let new = value(lo) + i32::from(sop.op);
        // SEMVMX is all ones: a negative number is above it, too.
        (new as u32 <= SEMVMX as u32 && cell.cas_low(lo, with_value(lo, new, self.rest)))
            .then_some(Performed(self.entry))
    }

    /// One P or V with `SEM_UNDO`, likewise, if the adjustment finds its place beside the semaphore.
    #[inline]
    pub fn op_undone(&self, c: &Ctx, id: i32, sop: Sembuf) -> Option<Performed> {
        let entry = self.entry;
        let cell = self.cell(sop.num)?;
        let (lo, hi) = cell.load();
        if lo & SLOW != 0 || !self.is_same(id) {
            return None;
        }
        // The process may have turned to another pool since the shortcut was read: the slot is one of `c`'s.
        let index = id as u32 & (MAX_ENTRIES - 1);
        if !c.pool.known_sem(index).is_some_and(|known| core::ptr::eq(known, entry)) {
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
        let new_lo = with_value(lo, new.into(), self.rest);
        let new_hi = Beside { owner: c.me, adjust: adjust.into() }.word();
        cell.cas((lo, hi), (new_lo, new_hi)).is_ok().then_some(Performed(entry))
    }
}

/// An operation whose time is not recorded yet.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Performed(&'static Sem);

impl Performed {
    /// Records it.
    #[inline(always)]
    pub fn at(self, now: i64) {
        store_time(&self.0.otime, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem::{self, SEM_UNDO};
    use crate::testing::World;
    use crate::{Cred, IPC_PRIVATE};

    fn plain(num: u16, op: i16) -> Sembuf {
        Sembuf { num, op, flg: 0 }
    }

    fn to(c: &Ctx, id: i32) -> Shortcut {
        let (shortcut, _) = Shortcut::to(c, id).unwrap();
        // SAFETY: of one shortcut, of this process.
        unsafe { Shortcut::of_words(shortcut.words()) }
    }

    #[test]
    fn it_does_what_the_call_does_or_nothing() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 3, 0o600).unwrap();
        let set = to(c, id);
        assert!(set.op(id, plain(2, 5)).is_some() && set.op(id, plain(2, -4)).is_some());
        set.op(id, plain(2, 1)).unwrap().at(77);
        assert_eq!((sem::getval(c, id, 2), sem::getpid(c, id, 2)), (Ok(2), Ok(process.pid())));
        assert_eq!(sem::stat(c, id).unwrap().otime, 77);
        for too_much in [plain(2, -3), plain(2, sem::SEMVMX as i16), plain(3, 1), plain(u16::MAX, 1)] {
            assert!(set.op(id, too_much).is_none(), "{too_much:?}");
        }
        sem::op(c, id, &[Sembuf { flg: SEM_UNDO, ..plain(0, 1) }], None).unwrap();
        assert!(set.op(id, plain(0, 1)).is_none(), "somebody may be dead");
        sem::setval(c, id, 1, 7).unwrap();
        sem::remove(c, id).unwrap();
        assert!(set.op(id, plain(1, 1)).is_none(), "it is removed");
    }

    #[test]
    fn an_adjustment_of_the_process_stays_beside_the_semaphore() {
        let world = World::new(1 << 20);
        let (process, other) = (world.process(), world.process());
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 2, 0o600).unwrap();
        let (set, others) = (to(c, id), to(&other.ctx(), id));
        let undone = |op| Sembuf { flg: SEM_UNDO, ..plain(0, op) };
        assert!(set.op_undone(c, id, undone(5)).is_some() && set.op_undone(c, id, undone(-2)).is_some());
        assert!(set.op_undone(c, id, undone(-4)).is_none(), "a value in the way");
        assert!(others.op_undone(&other.ctx(), id, undone(1)).is_none(), "another's is there");
        assert_eq!(sem::getval(c, id, 0), Ok(3));
        assert!(set.op_undone(c, id, undone(-3)).is_some());
        assert!(others.op_undone(&other.ctx(), id, undone(1)).is_some(), "there is none any more");
        assert!(set.op_undone(c, id, undone(1)).is_none());
        other.kill();
        // Whoever is in need finds it dead.
        assert_eq!(
            sem::op(c, id, &[Sembuf { flg: crate::IPC_NOWAIT as i16, ..plain(0, -1) }], None),
            Err(crate::Errno::EAGAIN)
        );
        assert_eq!(sem::getval(c, id, 0), Ok(0));
        for bad in [0, 1, u64::MAX] {
            let entry = c.pool.sem(id as u32 & (MAX_ENTRIES - 1)).unwrap(); // unpaid
            let good = entry.nsems.swap(bad, Relaxed);
            assert!(set.op_undone(c, id, Sembuf { num: 2, ..undone(1) }).is_none());
            entry.nsems.store(good, Relaxed);
        }
        assert!(world.is_untouched_outside());
    }

    #[test]
    fn it_ends_where_the_set_becomes_another() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 3, 0o600).unwrap();
        let set = to(c, id);
        sem::set(c, id, 1000, 1000, 0o400).unwrap();
        assert!(set.op(id, plain(0, 1)).is_none(), "another mode");
        sem::set(c, id, 1000, 1000, 0o600).unwrap();
        assert!(set.op(id, plain(0, 1)).is_some());
        let entry = c.pool.sem(id as u32 & (MAX_ENTRIES - 1)).unwrap(); // unpaid

        // As with an id that has come back after all others.
        entry.cells.fetch_add(16, Relaxed);
        assert!(set.op(id, plain(0, 1)).is_none(), "another place");
        entry.cells.fetch_sub(16, Relaxed);
        entry.nsems.store(2, Relaxed);
        assert!(set.op(id, plain(0, 1)).is_none(), "another size");
        entry.nsems.store(3, Relaxed);
        assert!(set.op(id, plain(0, 1)).is_some());
    }

    #[test]
    fn it_is_for_the_maker_or_for_all() {
        let world = World::new(1 << 20);
        let (process, other) = (world.process(), world.process());
        let (c, stranger) = (&process.ctx(), &other.ctx());
        other.set_cred(Cred { uid: 2000, gid: 2000, caps: 0 });
        let granted = |c: &Ctx, id| Shortcut::to(c, id).map(|(_, granted)| granted);
        let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        assert_eq!((granted(c, id), granted(stranger, id)), (Some(Granted::User(1000)), None));
        sem::set(c, id, 2000, 1000, 0o600).unwrap();
        assert_eq!((granted(c, id), granted(stranger, id)), (Some(Granted::User(1000)), None), "for now");
        sem::set(c, id, 1000, 1000, 0o666).unwrap();
        assert_eq!((granted(c, id), granted(stranger, id)), (Some(Granted::All), Some(Granted::All)));
        sem::set(c, id, 1000, 1000, 0o466).unwrap();
        assert_eq!((granted(c, id), granted(stranger, id)), (None, None));
    }

    #[test]
    fn it_never_leads_out_of_what_was_checked() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 2, 0o600).unwrap();
        let set = to(c, id);
        let entry = c.pool.sem(id as u32 & (MAX_ENTRIES - 1)).unwrap(); // unpaid
        let len = c.pool.mem().len() as u64;
        for bad in [0, 1, len, len - 8, u64::MAX, 1 << 63] {
            for word in [&entry.nsems, &entry.cells] {
                let good = word.swap(bad, Relaxed);
                for num in [0, 1, 2, 3, u16::MAX] {
                    assert!(set.op(id, plain(num, 1)).is_none());
                }
                word.store(good, Relaxed);
            }
        }
        assert!(set.op(id, plain(1, 1)).is_some() && world.is_untouched_outside());
    }

    #[test]
    fn an_adjustment_names_a_process_of_its_own_pool() {
        let (world, other) = (World::new(1 << 20), World::new(1 << 20));
        let (process, elsewhere) = (world.process(), other.process());
        let (c, e) = (&process.ctx(), &elsewhere.ctx());
        let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        assert_eq!(sem::get(e, IPC_PRIVATE, 1, 0o600).unwrap(), id);
        let undone = Sembuf { flg: SEM_UNDO, ..plain(0, 1) };
        assert!(to(c, id).op_undone(e, id, undone).is_none());
        assert!(to(c, id).op_undone(c, id, undone).is_some());
    }

    #[test]
    fn an_id_that_another_user_has_by_now_leads_nowhere() {
        let world = World::new(1 << 20);
        let (process, victim) = (world.process(), world.process());
        victim.set_cred(Cred { uid: 2000, gid: 2000, caps: 0 });
        let (c, v) = (&process.ctx(), &victim.ctx());
        let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        let set = to(c, id);
        sem::remove(c, id).unwrap();
        for _ in 0..8191 {
            let other = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
            assert_ne!(other, id);
            sem::remove(c, other).unwrap();
        }
        let theirs = sem::get(v, IPC_PRIVATE, 1, 0o600).unwrap();
        assert_eq!(theirs, id);
        assert_eq!(sem::op(c, id, &[plain(0, 1)], None), Err(crate::Errno::EACCES));
        assert!(set.op(id, plain(0, 1)).is_none(), "another user's set was changed");
    }
}
