//! Places for shortcuts, by which a process remembers IPC objects for its next call.
//!
//! Threads and signal handlers may read and write a place at any time: a reader takes nothing that was
//! changed meanwhile, and a writer that finds another at work leaves it alone. A writer that a handler never
//! lets go on leaves its place unused, which is slower, and no more.

use core::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};

/// A place for the words of a shortcut. Zeros: there is none.
#[repr(C, align(64))]
pub struct Place<const WORDS: usize> {
    /// The pool and IPC object that it leads to, and the permit for that (see [`crate::thread::permit`]); 0:
    /// none, or it is being written.
    key: AtomicU64,
    /// The number of times that a writer has begun.
    version: AtomicU32,
    /// Whether a writer is at work.
    busy: AtomicBool,
    /// The number of times that it did not lead to the IPC object that was looked for.
    missed: AtomicU8,
    words: [AtomicU64; WORDS],
}

/// Places for IPC objects of a kind, by the low bits of their ids.
pub type Places<const WORDS: usize> = [Place<WORDS>; 32];

/// The place of an id.
#[inline(always)]
pub fn place<const WORDS: usize>(places: &Places<WORDS>, id: i32) -> &Place<WORDS> {
    &places[id as u32 as usize % places.len()]
}

impl<const WORDS: usize> Place<WORDS> {
    /// The words of the shortcut, if it is that of `key`.
    #[inline(always)]
    pub fn read(&self, key: u64) -> Option<[u64; WORDS]> {
        let (words, are_of_one) = self.look(key)?;
        let words = core::array::from_fn(|i| words[i].load(Ordering::Relaxed));
        are_of_one().then_some(words)
    }

    /// The words of the shortcut, if it is that of `key`, to be read one by one; and a function that then
    /// says whether they are of one shortcut.
    #[inline(always)]
    pub fn look(&self, key: u64) -> Option<(&[AtomicU64; WORDS], impl FnOnce() -> bool + '_)> {
        let version = self.version.load(Ordering::Acquire);
        let are_of_one = move || {
            fence(Ordering::Acquire);
            self.version.load(Ordering::Relaxed) == version
        };
        (self.key.load(Ordering::Acquire) == key).then_some((&self.words, are_of_one))
    }

    /// Is it time for another shortcut? Where IPC objects share a place, or none can be made, only now and
    /// then: to try costs more than to do without.
    #[inline]
    pub fn may_be_written(&self) -> bool {
        const SELDOM: u8 = 16;
        let missed = self.missed.load(Ordering::Relaxed);
        self.missed.store(missed.wrapping_add(1), Ordering::Relaxed);
        missed % SELDOM == 0
    }

    /// Puts a shortcut there, unless another writer is at work.
    pub fn write(&self, key: u64, words: &[u64; WORDS]) {
        if self.busy.swap(true, Ordering::Acquire) {
            return;
        }
        // A reader of the version before it changes finds it changed; a later one finds no key until
        // all is written.
        self.key.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.version.store(self.version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, from) in self.words.iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        self.key.store(key, Ordering::Release);
        self.busy.store(false, Ordering::Release);
    }

    /// Forgets the shortcut. A writer that is at work may put one there yet.
    pub fn forget(&self) {
        self.key.store(0, Ordering::Relaxed);
        self.missed.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::vec::Vec;

    fn places() -> Places<5> {
        // SAFETY: zeros are a value of every field.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn what_was_written_is_read_under_its_key_until_it_is_forgotten() {
        let places = places();
        let place = place(&places, 33);
        assert!(core::ptr::eq(place, &places[1]) && place.may_be_written());
        place.write(7, &[1, 2, 3, 4, 5]);
        assert_eq!(place.read(7), Some([1, 2, 3, 4, 5]));
        assert_eq!((place.read(0), place.read(8)), (None, None));
        assert_eq!((0..64).filter(|_| place.may_be_written()).count(), 4);
        place.forget();
        assert_eq!(place.read(7), None);
        assert!(place.may_be_written());
    }

    #[test]
    fn what_can_not_be_remembered_is_seldom_tried() {
        let places = places();
        let place = place(&places, 33);
        let tried = (0..64).filter(|_| place.may_be_written());
        assert_eq!(tried.collect::<Vec<_>>(), [0, 16, 32, 48]);
        place.forget();
        assert!(place.may_be_written());
    }

    #[test]
    fn nobody_reads_a_part_of_one_and_a_part_of_another() {
        let places = places();
        let place = &places[0];
        thread::scope(|scope| {
            for writer in 0..2 {
                scope.spawn(move || {
                    for n in (writer..20_000).step_by(2) {
                        place.write(1, &[n; 5]);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let read = place.read(1);
                    assert!(read.is_none_or(|words| words == [words[0]; 5]), "{read:?}");
                }
            });
        });
    }
}
