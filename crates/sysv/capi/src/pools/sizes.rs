//! The sizes of sets and segments that this process was told.
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
//! The first size counts, as long as the process lives: `IPC_STAT` with another one fails, since a program
//! that asks for a time or an owner does not look at the size again; and an id for which `*get` found two
//! sizes is of no use any more.
//!
//! Each pool has a table with a place for every index that its ids can have: two IPC objects that exist at
//! once have different indices. A later object at the same index takes the place. What was told of the
//! earlier one goes into the index's history, if this process has not removed it: a member can bring its id
//! back. There is room in a history for every id of the index. An id that comes back with the same size is
//! what it was. With another one it may be a new object, for numbers begin anew after 8,192 removals: if
//! `*get` finds it so, or if the process never asked for it by `*get`, as a server that is given ids by its
//! clients, then it can be used, but has no size that is known.
//!
//! A place, and what a history has of an id, is one atomic word, so signals, threads and deaths do no harm;
//! all lies in private memory, so a child inherits what its parent was told. It comes page by page as it is
//! needed.

use crate::process::page::MAX_POOLS;
use crate::process::raw;
use crate::thread::last_error::explain;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use vshmem_ipc::Errno;
use vshmem_pool::layout::{LEAST_INDEX_BITS, MAX_ENTRIES, SEQ_BITS};
use vshmem_pool::Ids;

/// Places in a page of a table.
const PLACES: usize = 512;
const PAGES: usize = MAX_ENTRIES as usize / PLACES;

#[repr(C)]
struct Page {
    places: [AtomicU64; PLACES],
    histories: [AtomicPtr<History>; PLACES],
}

/// The low half of the word that was in the place, by sequence number.
type History = [AtomicU32; 1 << SEQ_BITS];

/// A word is `id:32 | known:1 | less:1 | doubtful:1 | got:1 | size:28`, from the high end. No id that is ours
/// is 0, and neither is such a word.
const SIZE: u64 = (1 << 28) - 1;
/// The size of an IPC object of which more than one was told, or one that is too large to be remembered. No
/// IPC object has it.
const NONE: u64 = SIZE;
/// Flag: this process has asked for the IPC object by its key, or made it.
const GOT: u64 = 1 << 28;
/// Flag: two IPC objects may be meant.
const DOUBTFUL: u64 = 1 << 29;
/// Flag: the program asked for less, and was not told the size since.
const LESS: u64 = 1 << 30;
/// Flag: the program asked for exactly this size, or was told it.
const KNOWN: u64 = 1 << 31;

/// The sizes of the IPC objects of a kind, pool by pool.
pub struct Sizes([Table; MAX_POOLS]);

struct Table {
    /// Bits of the index in the pool's ids.
    index_bits: AtomicU32,
    pages: AtomicPtr<Pages>,
}

/// The pages of a table, by the high bits of the index.
type Pages = [AtomicPtr<Page>; PAGES];

/// The sizes of sets, in semaphores.
pub static SETS: Sizes = Sizes::new();
/// The sizes of segments, in pages of 4096 bytes.
pub static SEGMENTS: Sizes = Sizes::new();

/// Begins with a pool of such ids, which was opened at a place: nothing was told of it.
pub fn begin_pool(pool: usize, ids: Ids) {
    for sizes in [&SETS, &SEGMENTS] {
        sizes.clear(pool);
        sizes.0[pool].index_bits.store(ids.bits(), Relaxed);
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

/// The word of an id after a `*get` that asked for `asked` and found `found`. `old`: the word before;
/// `is_back`: another id had its place meanwhile.
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

/// The word of an id after `IPC_STAT` has told the program that it has the size of the word `size`; `None`:
/// the word before.
fn after_stat(old: Option<u64>, is_back: bool, id: i32, size: u64) -> Option<u64> {
    let old = old.unwrap_or(name(id) | size);
    if old & SIZE == size {
        return Some((old | KNOWN) & !LESS);
    }
    (is_back && old & GOT == 0).then_some(name(id) | DOUBTFUL | size)
}

impl Table {
    const fn new() -> Table {
        Table { index_bits: AtomicU32::new(LEAST_INDEX_BITS), pages: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn ids(&self) -> Ids {
        Ids::new(self.index_bits.load(Relaxed)).unwrap_or(Ids::USUAL)
    }

    fn pages(&self) -> Option<&Pages> {
        // SAFETY: once published, they stay mapped for the process's life.
        unsafe { self.pages.load(Acquire).as_ref() }
    }
}

impl Sizes {
    const fn new() -> Sizes {
        Sizes([const { Table::new() }; MAX_POOLS])
    }

    /// The place of an id; `None`: nothing was told of its index yet.
    fn place(&self, pool: usize, id: i32) -> Option<Place<'_>> {
        let table = &self.0[pool];
        let ids = table.ids();
        let index = ids.index(id) as usize;
        // SAFETY: once published, a page stays mapped for the process's life.
        let page = unsafe { table.pages()?[index / PLACES].load(Acquire).as_ref() }?;
        let (word, history) = (&page.places[index % PLACES], &page.histories[index % PLACES]);
        Some(Place { word, history, id, ids })
    }

    /// The place of an id, made if need be. `None`: there is no memory, so nothing will be known.
    fn place_for(&self, pool: usize, id: i32) -> Option<Place<'_>> {
        let table = &self.0[pool];
        raw::map_once(&table.pages, |_| {})?;
        raw::map_once(&table.pages()?[table.ids().index(id) as usize / PLACES], |_| {})?;
        self.place(pool, id)
    }

    /// The word of an id; 0: nothing was told of it.
    fn word(&self, pool: usize, id: i32) -> u64 {
        let Some(place) = self.place(pool, id) else {
            return 0;
        };
        match place.word.load(Relaxed) {
            word if is_of(word, id) => word,
            _ => place.remembered().unwrap_or(0),
        }
    }

    /// Changes the word of an id, from the one that its place or the history has. If another id has the
    /// place, that one's goes into the history; without memory for it nothing changes.
    fn change(&self, pool: usize, id: i32, new: impl Fn(Option<u64>, bool) -> Option<u64>) {
        let Some(place) = self.place_for(pool, id) else {
            return;
        };
        let _ = place.word.fetch_update(Relaxed, Relaxed, |old| {
            if is_of(old, id) {
                return new(Some(old), false);
            }
            if old != 0 {
                place.remember(old)?;
            }
            new(place.remembered(), true)
        });
    }

    /// Notes that a `*get` which asked for `asked` or more has found or made an IPC object of the size
    /// `found`.
    pub fn got(&self, pool: usize, id: i32, asked: u64, found: u64) {
        self.change(pool, id, |old, is_back| Some(after_get(old, is_back, id, asked, found)));
    }

    /// Notes a size of which `IPC_STAT` is to tell the program. EIDRM if the IPC object was found to be of
    /// another one before.
    pub fn stated(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        self.change(pool, id, |old, is_back| after_stat(old, is_back, id, size_word(size)));
        self.check(pool, id, size)
    }

    /// Notes a size of which `*_STAT` is to tell the program. That goes by index, and takes no place of
    /// another id.
    pub fn listed(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        let has_place = self.place(pool, id).is_none_or(|place| {
            let old = place.word.load(Relaxed);
            old == 0 || is_of(old, id)
        });
        if has_place {
            return self.stated(pool, id, size);
        }
        self.check(pool, id, size)
    }

    /// The size that the program knows.
    pub fn known(&self, pool: usize, id: i32) -> Option<u64> {
        known_size(self.word(pool, id))
    }

    /// Compares an IPC object's size now with the one before; EIDRM if it is another.
    pub fn check(&self, pool: usize, id: i32, size: u64) -> Result<(), Errno> {
        let (word, size) = (self.word(pool, id), size_word(size));
        if word != 0 && (word & SIZE != size || size == NONE) {
            return Err(changed());
        }
        Ok(())
    }

    /// Forgets an IPC object, which the program has removed.
    pub fn forget(&self, pool: usize, id: i32) {
        if let Some(place) = self.place(pool, id) {
            place.forget();
            let _ = place.word.fetch_update(Relaxed, Relaxed, |old| is_of(old, id).then_some(0));
        }
    }

    fn clear(&self, pool: usize) {
        for page in self.0[pool].pages().into_iter().flatten() {
            // SAFETY: as in `place`.
            if let Some(page) = unsafe { page.load(Acquire).as_ref() } {
                page.places.iter().for_each(|place| place.store(0, Relaxed));
                let histories = page.histories.iter().filter_map(history);
                histories.flatten().for_each(|word| word.store(0, Relaxed));
            }
        }
    }
}

/// The place of an id.
struct Place<'a> {
    word: &'a AtomicU64,
    history: &'a AtomicPtr<History>,
    id: i32,
    ids: Ids,
}

fn history(pointer: &AtomicPtr<History>) -> Option<&History> {
    // SAFETY: once published, a history stays mapped for the process's life.
    unsafe { pointer.load(Acquire).as_ref() }
}

impl Place<'_> {
    /// The history's word for another id of the index, or for this one.
    fn past(&self, id: i32) -> Option<&AtomicU32> {
        history(self.history)?.get(self.ids.sequence(id) as usize)
    }

    /// The history's word for this id, as a word of its place.
    fn remembered(&self) -> Option<u64> {
        let word = self.past(self.id)?.load(Relaxed);
        (word != 0).then_some(name(self.id) | u64::from(word))
    }

    /// Puts the place's word into the history; `None`: there is no memory for it.
    fn remember(&self, word: u64) -> Option<()> {
        raw::map_once(self.history, |_| {})?;
        self.past((word >> 32) as i32)?.store(word as u32, Relaxed);
        Some(())
    }

    fn forget(&self) {
        if let Some(past) = self.past(self.id) {
            past.store(0, Relaxed);
        }
    }
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
mod tests;
