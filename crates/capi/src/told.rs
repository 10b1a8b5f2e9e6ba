//! How large this process was told that sets and segments are.
//!
//! `GETALL`, `SETALL` and `shmat` with `SHM_REMAP` have no length: the construct's own size says how far they reach into the program. A
//! construct's size never changes, but in a pool a hostile member may write another one. So what was told is remembered here, where no
//! other process can change it, and nothing else bounds a copy: what the program was not told of is refused.
//!
//! A program knows a size if it asked for exactly that (`semget`, `shmget`), or was told it (`IPC_STAT` and its siblings). Where `*get` found
//! more than was asked for, the size is noted but not known: the program has not seen it. The first size counts, as long as the process
//! lives: `IPC_STAT` with another one fails, since who asks for a time or an owner does not look at the size again; and an id for which
//! `*get` found two sizes is of no use any more.
//!
//! Each pool has a table with a place for every index that an id can have, so no id is forgotten for another that lives: two
//! constructs that exist at once have different indices. A later construct at the same index takes the place, and the earlier one is
//! unknown then. A place is one atomic word, so signals, threads and deaths do no harm; the table lies in private memory, so
//! a child inherits what its parent was told. It comes page by page as places are needed, in the order in which indices are given out.

use crate::page::MAX_POOLS;
use crate::raw;
use crate::text::explain;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use vshmem_ipc::Errno;
use vshmem_pool::layout::INDEX_BITS;

/// Places in a page of a table.
const PLACES: usize = 512;
type Page = [AtomicU64; PLACES];
const PAGES: usize = (1 << INDEX_BITS) / PLACES;

/// A word is `id:32 | known:1 | size:31`, from the high end. No id that is ours is 0, and neither is such a word.
const SIZE: u64 = (1 << 31) - 1;
const KNOWN: u64 = 1 << 31;
/// In the place of a size: more than one was told, or one that is too large to be remembered. No construct has it.
const NONE: u64 = SIZE;

/// What was told of the constructs of a kind, pool by pool.
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
    word & !(KNOWN | SIZE) == name(id)
}

impl Told {
    const fn new() -> Told {
        Told([const { Table([const { AtomicPtr::new(core::ptr::null_mut()) }; PAGES]) }; MAX_POOLS])
    }

    /// The word of an id; `None`: its page isn't there.
    fn place(&self, pool: usize, id: i32) -> Option<&AtomicU64> {
        let (page, place) = Told::index(id);
        let page = self.0[pool].0[page].load(Acquire);
        // SAFETY: once published, a page stays mapped for the process's life.
        (!page.is_null()).then(|| unsafe { &(*page)[place] })
    }

    fn index(id: i32) -> (usize, usize) {
        let index = id as usize & ((1 << INDEX_BITS) - 1);
        (index / PLACES, index % PLACES)
    }

    /// The same; its page is made if need be. `None`: there is no memory, so nothing will be known.
    fn place_for(&self, pool: usize, id: i32) -> Option<&AtomicU64> {
        let existing = self.place(pool, id);
        if existing.is_some() {
            return existing;
        }
        let fresh = raw::map_private(size_of::<Page>());
        let page = &self.0[pool].0[Told::index(id).0];
        let null = core::ptr::null_mut();
        if !fresh.is_null()
            && page
                .compare_exchange(null, fresh.cast(), AcqRel, Relaxed)
                .is_err()
        {
            // SAFETY: nobody else has seen this one.
            unsafe { raw::unmap(fresh, size_of::<Page>()) };
        }
        self.place(pool, id)
    }

    fn change(&self, pool: usize, id: i32, new: impl Fn(u64) -> Option<u64>) {
        if let Some(place) = self.place_for(pool, id) {
            let _ = place.fetch_update(Relaxed, Relaxed, new);
        }
    }

    /// A `*get` was asked for `asked` or more, and has found or made a construct of that size.
    pub fn got(&self, pool: usize, id: i32, asked: u64, found: u64) {
        let size = if found < asked {
            NONE
        } else {
            size_word(found)
        };
        let known = if found == asked { KNOWN } else { 0 };
        self.change(pool, id, |old| {
            Some(match () {
                () if !is_of(old, id) => name(id) | known | size,
                () if old & SIZE != size => name(id) | NONE,
                () => old | known,
            })
        });
    }

    /// The program was told by `IPC_STAT` that the construct is so large, which [`Told::check`] had nothing against.
    pub fn stated(&self, pool: usize, id: i32, size: u64) {
        self.change(pool, id, |old| {
            let another = is_of(old, id) && old & SIZE != size_word(size);
            (!another).then_some(name(id) | KNOWN | size_word(size))
        });
    }

    /// The same by `*_STAT`, which goes by index: whatever the pool says of others, what was told of an id is not forgotten for them.
    pub fn listed(&self, pool: usize, id: i32, size: u64) {
        let place = self.place_for(pool, id);
        if place
            .is_some_and(|place| matches!(place.load(Relaxed), old if old == 0 || is_of(old, id)))
        {
            self.stated(pool, id, size);
        }
    }

    /// What the program knows.
    pub fn known(&self, pool: usize, id: i32) -> Option<u64> {
        let word = self.place(pool, id)?.load(Relaxed);
        let size = word & SIZE;
        (is_of(word, id) && word & KNOWN != 0 && size != NONE).then_some(size)
    }

    /// EIDRM if the construct, which is so large now, was found to be of another size before.
    pub fn check(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        let word = self.place(pool, id).map_or(0, |place| place.load(Relaxed));
        let size = size_word(size);
        if is_of(word, id) && (word & SIZE != size || size == NONE) {
            return Err(changed());
        }
        Ok(())
    }

    /// The program has no more to do with the construct.
    pub fn forget(&self, pool: usize, id: i32) {
        if let Some(place) = self.place(pool, id) {
            let _ = place.fetch_update(Relaxed, Relaxed, |old| is_of(old, id).then_some(0));
        }
    }

    fn clear(&self, pool: usize) {
        for page in &self.0[pool].0 {
            // SAFETY: as in `place`.
            if let Some(page) = unsafe { page.load(Acquire).as_ref() } {
                page.iter().for_each(|place| place.store(0, Relaxed));
            }
        }
    }
}

/// The error where a construct has not the size that the program knows.
#[cold]
pub fn changed() -> Errno {
    explain(format_args!(
        "the construct has another size than this process was told: a member of the pool rewrites it; remove it and make it anew"
    ));
    Errno::EIDRM
}

/// The error where the program knows no size.
#[cold]
pub fn unknown(ask: &str) -> Errno {
    explain(format_args!(
        "this process was not told how large the construct is, so where the program's memory ends is not known; ask with {ask} first"
    ));
    Errno::EIDRM
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: i32 = 0x4000_0007;
    /// A later construct at the same index.
    const LATER: i32 = ID + (1 << INDEX_BITS);

    #[test]
    fn what_was_asked_for_is_known() {
        let told = Told::new();
        assert_eq!(told.known(0, ID), None, "nothing was told");
        assert_eq!(told.check(0, ID, 5), Ok(()), "nothing was told");
        told.got(0, ID, 5, 5);
        assert_eq!(told.known(0, ID), Some(5));
        for other in [0, 4, 6, 65535, SIZE, 1 << 40] {
            assert_eq!(told.check(0, ID, other), Err(Errno::EIDRM));
        }
        assert_eq!(told.known(1, ID), None, "in another pool");
        assert_eq!(told.known(0, LATER), None);
        told.stated(0, ID, 6);
        assert_eq!(told.known(0, ID), Some(5), "the first size counts");
        told.listed(0, ID, 6);
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
            told.stated(0, id, 5);
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
                assert_eq!(told.check(0, id, size), Err(Errno::EIDRM));
                told.stated(0, id, size);
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
    fn only_a_later_construct_at_the_same_index_takes_the_place() {
        let told = Told::new();
        let all = || (0..1 << INDEX_BITS).map(|index| 0x4000_0000 | index);
        for id in all() {
            told.got(7, id, 2, 2);
        }
        assert!(all().all(|id| told.known(7, id) == Some(2)));
        told.listed(7, LATER, 65535);
        assert_eq!(told.known(7, ID), Some(2), "a list takes no place");
        told.got(7, LATER, 3, 3);
        assert_eq!((told.known(7, ID), told.known(7, LATER)), (None, Some(3)));
        assert_eq!(told.known(7, ID + 1024), Some(2));
        told.stated(7, i32::MAX, SIZE - 1);
        assert_eq!(told.known(7, i32::MAX), Some(SIZE - 1));
        told.clear(7);
        assert!(all().all(|id| told.known(7, id).is_none()));
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
