//! How large this process was told that sets and segments are.
//!
//! `GETALL`, `SETALL` and `shmat` with `SHM_REMAP` have no length: the IPC object's own size says how far
//! they reach into the program. An object's size never changes, but in a pool a hostile member may write
//! another one. So what was told is remembered here, where no other process can change it, and nothing else
//! bounds a copy: what the program was not told of is refused.
//!
//! A program knows a size if it asked for exactly that (`semget`, `shmget`), or was told it (`IPC_STAT` and
//! its siblings). Where `*get` found more than was asked for, the size is noted but not known: the program
//! has not seen it. A part of a program that asked for less than another part knows may rely on the smaller
//! one, and be led to the larger IPC object by a member that gives it that one's id: from then on the size is
//! not known, until the program is told it by `IPC_STAT`.
//!
//! The first size counts, as long as the process lives: `IPC_STAT` with another one fails, since who asks for
//! a time or an owner does not look at the size again; and an id for which `*get` found two sizes is of no
//! use any more.
//!
//! Each pool has a table with a place for every index that an id can have: two IPC objects that exist at once
//! have different indices. A later object at the same index takes the place. What was told of the earlier one
//! goes into the index's history, if this process has not removed it: a member can bring its id back. There
//! is room in a history for every id of the index. An id that comes back with the same size is what it was.
//! With another one it may be a new object, for numbers begin anew after 8,192 objects: if `*get` finds it
//! so, or if the process never asked for it by `*get`, as a server that is given ids by its clients, then it
//! can be used, but has no size that is known.
//!
//! A place, and what a history has of an id, is one atomic word, so signals, threads and deaths do no harm;
//! all lies in private memory, so a child inherits what its parent was told. It comes page by page as it is
//! needed.

use crate::last_error::explain;
use crate::page::MAX_POOLS;
use crate::raw;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use vshmem_ipc::Errno;
use vshmem_pool::layout::{INDEX_BITS, SEQ_BITS};

/// Places in a page of a table.
const PLACES: usize = 512;
const PAGES: usize = (1 << INDEX_BITS) / PLACES;

#[repr(C)]
struct Page {
    places: [AtomicU64; PLACES],
    histories: [AtomicPtr<History>; PLACES],
}

/// By sequence number, the low half of the word that was in the place.
type History = [AtomicU32; 1 << SEQ_BITS];

/// A word is `id:32 | known:1 | less:1 | doubtful:1 | got:1 | size:28`, from the high end. No id that is ours
/// is 0, and neither is such a word.
const SIZE: u64 = (1 << 28) - 1;
/// In the place of a size: more than one was told, or one that is too large to be remembered. No IPC object
/// has it.
const NONE: u64 = SIZE;
/// This process has asked for it by its key, or made it.
const GOT: u64 = 1 << 28;
/// Two IPC objects may be meant.
const DOUBTFUL: u64 = 1 << 29;
/// The program asked for less, and was not told since.
const LESS: u64 = 1 << 30;
/// The program asked for exactly that, or was told it.
const KNOWN: u64 = 1 << 31;

/// What was told of the IPC objects of a kind, pool by pool.
pub struct Told([Table; MAX_POOLS]);

struct Table([AtomicPtr<Page>; PAGES]);

/// Of sets: semaphores.
pub static SETS: Told = Told::new();
/// Of segments: pages of 4096 bytes.
pub static SEGMENTS: Told = Told::new();

/// A pool was opened at a place: nothing was told of it.
pub fn forget_pool(pool: usize) {
    for told in [&SETS, &SEGMENTS] {
        told.clear(pool);
    }
}

fn name(id: i32) -> u64 {
    u64::from(id as u32) << 32
}

fn size_word(size: u64) -> u64 {
    size.min(NONE)
}

fn is_of(word: u64, id: i32) -> bool {
    word >> 32 == name(id) >> 32
}

/// The size in a word, if the program knows it.
fn known_size(word: u64) -> Option<u64> {
    let (size, is_known) = (word & SIZE, word & (KNOWN | DOUBTFUL) == KNOWN);
    (is_known && size != NONE).then_some(size)
}

/// What is known of an id after a `*get` that asked for `asked` and found `found`. `old`: what was known
/// before; `is_back`: another id had its place meanwhile.
fn after_get(old: Option<u64>, is_back: bool, id: i32, asked: u64, found: u64) -> u64 {
    let size = if found < asked { NONE } else { size_word(found) };
    let old = old.unwrap_or(name(id) | size) | GOT;
    if old & SIZE != size {
        return name(id) | GOT | if is_back { DOUBTFUL | size } else { NONE };
    }
    match asked {
        _ if asked < found && asked > 0 => (old | LESS) & !KNOWN,
        _ if asked == found && old & LESS == 0 => old | KNOWN,
        _ => old,
    }
}

/// What is known of an id once the program is told by `IPC_STAT` that it has the size of the word `size`;
/// `None`: what was known before.
fn after_stat(old: Option<u64>, is_back: bool, id: i32, size: u64) -> Option<u64> {
    let old = old.unwrap_or(name(id) | size);
    if old & SIZE == size {
        return Some((old | KNOWN) & !LESS);
    }
    (is_back && old & GOT == 0).then_some(name(id) | DOUBTFUL | size)
}

impl Told {
    const fn new() -> Told {
        Told([const { Table([const { AtomicPtr::new(core::ptr::null_mut()) }; PAGES]) }; MAX_POOLS])
    }

    /// Where an id's index is looked after; `None`: nothing was told of it yet.
    fn page(&self, pool: usize, id: i32) -> Option<(&Page, usize)> {
        let (page, place) = Told::index(id);
        let page = self.0[pool].0[page].load(Acquire);
        // SAFETY: once published, a page stays mapped for the process's life.
        (!page.is_null()).then(|| unsafe { (&*page, place) })
    }

    fn index(id: i32) -> (usize, usize) {
        let index = id as usize & ((1 << INDEX_BITS) - 1);
        (index / PLACES, index % PLACES)
    }

    /// The same; the page is made if need be. `None`: there is no memory, so nothing will be known.
    fn page_for(&self, pool: usize, id: i32) -> Option<(&Page, usize)> {
        made(&self.0[pool].0[Told::index(id).0])?;
        self.page(pool, id)
    }

    /// The word of an id; 0: nothing was told of it.
    fn word(&self, pool: usize, id: i32) -> u64 {
        let Some((page, place)) = self.page(pool, id) else {
            return 0;
        };
        match page.places[place].load(Relaxed) {
            word if is_of(word, id) => word,
            _ => page.remembered(place, id).unwrap_or(0),
        }
    }

    /// Changes what is known of an id, from what its place or the history says. If another id has the place,
    /// that one's goes into the history; without memory for it nothing changes.
    fn change(&self, pool: usize, id: i32, new: impl Fn(Option<u64>, bool) -> Option<u64>) {
        let Some((page, place)) = self.page_for(pool, id) else {
            return;
        };
        let _ = page.places[place].fetch_update(Relaxed, Relaxed, |old| {
            if is_of(old, id) {
                return new(Some(old), false);
            }
            if old != 0 {
                page.remember(place, old)?;
            }
            new(page.remembered(place, id), true)
        });
    }

    /// A `*get` was asked for `asked` or more, and has found or made an IPC object of that size.
    pub fn got(&self, pool: usize, id: i32, asked: u64, found: u64) {
        self.change(pool, id, |old, is_back| Some(after_get(old, is_back, id, asked, found)));
    }

    /// The program is to be told by `IPC_STAT` that the IPC object is so large. EIDRM if it was found to be
    /// of another size before.
    pub fn stated(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        self.change(pool, id, |old, is_back| after_stat(old, is_back, id, size_word(size)));
        self.check(pool, id, size)
    }

    /// The same by `*_STAT`, which goes by index: it takes no place of another id.
    pub fn listed(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        let has_place = self.page(pool, id).is_none_or(|(page, place)| {
            let old = page.places[place].load(Relaxed);
            old == 0 || is_of(old, id)
        });
        if has_place {
            return self.stated(pool, id, size);
        }
        self.check(pool, id, size)
    }

    /// What the program knows.
    pub fn known(&self, pool: usize, id: i32) -> Option<u64> {
        known_size(self.word(pool, id))
    }

    /// EIDRM if the IPC object, which is so large now, was found to be of another size before.
    pub fn check(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        let (word, size) = (self.word(pool, id), size_word(size));
        if word != 0 && (word & SIZE != size || size == NONE) {
            return Err(changed());
        }
        Ok(())
    }

    /// The program has no more to do with the IPC object.
    pub fn forget(&self, pool: usize, id: i32) {
        if let Some((page, place)) = self.page(pool, id) {
            page.forget(place, id);
            let _ = page.places[place].fetch_update(Relaxed, Relaxed, |old| is_of(old, id).then_some(0));
        }
    }

    fn clear(&self, pool: usize) {
        for page in &self.0[pool].0 {
            // SAFETY: as in `page`.
            if let Some(page) = unsafe { page.load(Acquire).as_ref() } {
                page.places.iter().for_each(|place| place.store(0, Relaxed));
                (0..PLACES)
                    .filter_map(|place| page.history(place))
                    .flatten()
                    .for_each(|word| word.store(0, Relaxed));
            }
        }
    }
}

impl Page {
    fn history(&self, place: usize) -> Option<&History> {
        // SAFETY: once published, a history stays mapped for the process's life.
        unsafe { self.histories[place].load(Acquire).as_ref() }
    }

    /// What the history has of an id, as a word of its place.
    fn remembered(&self, place: usize, id: i32) -> Option<u64> {
        let word = self.history(place)?[sequence(id)].load(Relaxed);
        (word != 0).then_some(name(id) | u64::from(word))
    }

    /// Puts a place's word into the history; `None`: there is no memory for it.
    fn remember(&self, place: usize, word: u64) -> Option<()> {
        made(&self.histories[place])?;
        self.history(place)?[sequence((word >> 32) as i32)].store(word as u32, Relaxed);
        Some(())
    }

    fn forget(&self, place: usize, id: i32) {
        if let Some(history) = self.history(place) {
            history[sequence(id)].store(0, Relaxed);
        }
    }
}

fn sequence(id: i32) -> usize {
    id as usize >> INDEX_BITS & ((1 << SEQ_BITS) - 1)
}

/// Sees to it that a pointer leads to zeros, in private memory. `None`: there is none. For types of which
/// zeros are a value.
fn made<T>(pointer: &AtomicPtr<T>) -> Option<()> {
    if !pointer.load(Acquire).is_null() {
        return Some(());
    }
    let fresh = raw::map_private(size_of::<T>());
    if fresh.is_null() {
        return None;
    }
    let null = core::ptr::null_mut();
    let published = pointer.compare_exchange(null, fresh.cast(), AcqRel, Relaxed);
    if published.is_err() {
        // SAFETY: nobody else has seen this one.
        unsafe { raw::unmap(fresh, size_of::<T>()) };
    }
    Some(())
}

/// The error for an IPC object whose size is not the one that the program knows.
#[cold]
pub fn changed() -> Errno {
    explain(format_args!(
        "the IPC object has another size than this process was told: a member of the pool rewrites it; remove it and make it anew"
    ));
    Errno::EIDRM
}

/// The error where the program knows no size.
#[cold]
pub fn unknown(ask: &str) -> Errno {
    explain(format_args!(
        "this process was not told how large the IPC object is, or it has asked for less since, so where the program's memory ends is not known; ask with {ask} first"
    ));
    Errno::EIDRM
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: i32 = 0x4000_0007;
    /// A later IPC object at the same index.
    const LATER: i32 = ID + (1 << INDEX_BITS);

    #[test]
    fn what_was_asked_for_is_known() {
        let told = Told::new();
        assert_eq!(told.known(0, ID), None, "nothing was told");
        assert_eq!(told.check(0, ID, 5), Ok(()), "nothing was told");
        told.got(0, ID, 5, 5);
        assert_eq!(told.known(0, ID), Some(5));
        for other in [0, 4, 6, 65535, NONE, 1 << 40] {
            assert_eq!(told.check(0, ID, other), Err(Errno::EIDRM));
        }
        assert_eq!(told.known(1, ID), None, "in another pool");
        assert_eq!(told.known(0, LATER), None);
        assert_eq!(told.stated(0, ID, 6), Err(Errno::EIDRM));
        assert_eq!(told.known(0, ID), Some(5), "the first size counts");
        assert_eq!(told.listed(0, ID, 6), Err(Errno::EIDRM));
        assert_eq!(told.known(0, ID), Some(5));
        told.forget(0, LATER);
        assert_eq!(told.known(0, ID), Some(5));
        told.forget(0, ID);
        assert_eq!(told.known(0, ID), None);
    }

    #[test]
    fn what_was_found_is_known_once_it_is_told() {
        let told = Told::new();
        for (asked, id) in [(0, ID), (3, ID + 1)] {
            told.got(0, id, asked, 5);
            assert_eq!(told.known(0, id), None, "the program has not seen it");
            assert_eq!(told.check(0, id, 6), Err(Errno::EIDRM), "but it counts");
            assert_eq!(told.stated(0, id, 5), Ok(()));
            assert_eq!(told.known(0, id), Some(5));
            told.got(0, id, 0, 5);
            assert_eq!(told.known(0, id), Some(5));
        }
        told.got(0, ID + 2, 5, 4);
        assert_eq!(told.known(0, ID + 2), None, "less than was asked for");
        for size in [4, 5, NONE] {
            assert_eq!(told.check(0, ID + 2, size), Err(Errno::EIDRM));
        }
    }

    #[test]
    fn two_sizes_are_none() {
        let told = Told::new();
        for asked in [0, 5, 6] {
            let id = ID + asked as i32;
            told.got(0, id, 5, 5);
            told.got(0, id, asked, 6);
            assert_eq!(told.known(0, id), None);
            for size in [5, 6, NONE] {
                assert_eq!(told.stated(0, id, size), Err(Errno::EIDRM));
                assert_eq!(told.known(0, id), None);
            }
            told.got(0, id, 5, 5);
            assert_eq!(told.known(0, id), None);
            told.got(0, id + (1 << INDEX_BITS), 5, 5);
            assert_eq!(told.known(0, id + (1 << INDEX_BITS)), Some(5));
        }
        told.got(0, LATER, 1 << 40, 1 << 40);
        assert_eq!(told.known(0, LATER), None, "too large to be remembered");
        assert_eq!(told.check(0, LATER, 1 << 40), Err(Errno::EIDRM));
    }

    #[test]
    fn who_asked_for_less_relies_on_less() {
        let told = Told::new();
        // Two keys, which a member leads to one id: in either order, whatever comes between.
        for (i, asked) in [(0, [1000, 4]), (1, [4, 1000])] {
            told.got(0, ID + i, asked[0], 1000);
            told.got(0, ID + i, asked[1], 1000);
            for again in [0, 4, 1000] {
                assert_eq!(told.known(0, ID + i), None);
                assert_eq!(told.check(0, ID + i, 1000), Ok(()), "all else goes on");
                told.got(0, ID + i, again, 1000);
            }
            assert_eq!(told.stated(0, ID + i, 1000), Ok(()));
            assert_eq!(told.known(0, ID + i), Some(1000), "it was told");
        }
        // A program that asks for less and looks knows; not if it asks for less again and does not look.
        let id = ID + 2;
        for _ in 0..3 {
            told.got(0, id, 1, 5);
            assert_eq!(told.known(0, id), None);
            assert_eq!(told.stated(0, id, 5), Ok(()));
            assert_eq!(told.known(0, id), Some(5));
        }
        told.got(0, id, 0, 5);
        assert_eq!(told.known(0, id), Some(5), "who asks for nothing relies on nothing");
    }

    #[test]
    fn nothing_is_forgotten_for_another() {
        let told = Told::new();
        let all = || (0..1 << INDEX_BITS).map(|index| 0x4000_0000 | index);
        for id in all() {
            told.got(7, id, 2, 2);
        }
        assert!(all().all(|id| told.known(7, id) == Some(2)));
        assert_eq!(told.listed(7, LATER, 65535), Ok(()));
        assert_eq!(told.known(7, LATER), None, "a list takes no place");
        // All later IPC objects of the index, and some of them again.
        let later = |n: i32| 0x4000_0000 | (ID + (n << INDEX_BITS)) & 0x3fff_ffff;
        for round in 0..2 {
            for n in (1..1 << SEQ_BITS).step_by(1 + 6 * round) {
                told.got(7, later(n), 3, 3);
                assert_eq!(told.known(7, later(n)), Some(3));
            }
        }
        assert_eq!(told.known(7, ID), Some(2));
        assert!((1..1 << SEQ_BITS).all(|n| told.known(7, later(n)) == Some(3)));
        for size in [1, 3, 1000] {
            assert_eq!(told.stated(7, ID, size), Err(Errno::EIDRM));
            assert_eq!(told.known(7, ID), Some(2));
        }
        told.forget(7, later(5));
        assert_eq!((told.known(7, later(5)), told.known(7, later(6))), (None, Some(3)));
        assert_eq!(told.known(7, ID + 1024), Some(2));
        assert_eq!(told.stated(7, i32::MAX, NONE - 1), Ok(()));
        assert_eq!(told.known(7, i32::MAX), Some(NONE - 1));
        told.clear(7);
        assert!(all().all(|id| told.known(7, id).is_none()));
        assert!((1..1 << SEQ_BITS).all(|n| told.known(7, later(n)).is_none()));
    }

    #[test]
    fn an_id_that_was_only_told_counts_when_it_comes_back() {
        for tell in [Told::stated, Told::listed] {
            let told = Told::new();
            assert_eq!(tell(&told, 0, ID, 4), Ok(()));
            told.got(0, LATER, 5, 5);
            assert_eq!(told.known(0, ID), Some(4));
            // It may be new, so it can be used; but the program's memory may be the old one's.
            assert_eq!(told.stated(0, ID, 1000), Ok(()));
            assert_eq!(told.check(0, ID, 1000), Ok(()));
            assert_eq!(told.known(0, ID), None);
            for size in [4, 1001] {
                assert_eq!(tell(&told, 0, ID, size), Err(Errno::EIDRM));
            }
            assert_eq!(told.known(0, LATER), Some(5));
            told.forget(0, ID);
            assert_eq!(tell(&told, 0, ID, 6), Ok(()));
        }
    }

    #[test]
    fn an_id_that_comes_back_with_another_size_can_be_used() {
        let told = Told::new();
        told.got(0, ID, 4, 4);
        told.got(0, LATER, 5, 5);
        told.got(0, ID, 1000, 1000);
        for _ in 0..2 {
            assert_eq!(told.known(0, ID), None, "but the first may be meant");
            assert_eq!(told.check(0, ID, 1000), Ok(()));
            assert_eq!(told.check(0, ID, 4), Err(Errno::EIDRM));
            assert_eq!(told.stated(0, ID, 1000), Ok(()));
            told.got(0, LATER, 5, 5);
            told.got(0, ID, 1000, 1000);
        }
        told.got(0, LATER, 5, 5);
        assert_eq!(told.known(0, LATER), Some(5));
    }

    #[test]
    fn a_raw_fork_inherits_what_was_told() {
        SETS.got(6, ID, 3, 3);
        // SAFETY: the child makes raw calls only and leaves at once.
        unsafe {
            let child = raw::syscall!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
            if child == 0 {
                let inherited = SETS.known(6, ID) == Some(3);
                SETS.forget(6, ID);
                raw::syscall!(libc::SYS_exit_group, i32::from(!inherited));
            }
            let mut status = 0;
            libc::waitpid(child as i32, &mut status, 0);
            assert_eq!(status, 0);
        }
        assert_eq!(SETS.known(6, ID), Some(3), "the child has its own");
    }
}
