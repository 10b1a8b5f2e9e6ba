//! Checked access to a mapped pool.
//!
//! A pool's file is sparse, and touching what has no memory on a file system that is full ends the process.
//! What lies in the pool may lead anywhere, so a process remembers which pages it knows to have memory
//! ([`Sparse`]), and sees to it that a page has some before it looks at it for the first time. Such pages
//! keep their memory: only that of pages is ever given back where no structure can lie ([`Mem::below`]).

use crate::atomic::{self, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};
use core::ptr::NonNull;

/// Bytes in a page, the unit of segments.
pub const PAGE: u64 = 4096;

/// Types that may be overlaid on pool memory.
///
/// # Safety
/// Every bit pattern must be a valid value, every field that another process may write must be an atomic, and
/// the alignment must not exceed 128.
pub unsafe trait Shared: Sized {}

// SAFETY: atomics of integers accept every bit pattern.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}

/// A process's knowledge of the memory behind a sparse file.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    /// The number of pages with memory from each page of the mapping on; 0: that is not known. Zeros at
    /// first, and memory that nobody else shares.
    pub known: &'static [AtomicU8],
    /// Gives memory to whole pages of the mapping (address, bytes) and leaves what they hold; false if there
    /// is none.
    pub populate: fn(*mut u8, usize) -> bool,
}

impl Sparse {
    /// The number of pages from this one on that are known to have memory.
    ///
    /// # Safety
    /// It must be one of the mapping's.
    #[inline(always)]
    unsafe fn run(&self, page: u64) -> u64 {
        // SAFETY: there is a byte for each page of the mapping, which `Mem::sparse` has checked.
        u64::from(unsafe { self.known.get_unchecked(page as usize) }.load(Relaxed))
    }

    /// The number of steps in which so many pages are known to have memory; `None` if they are not.
    fn steps(&self, first: u64, count: u64) -> Option<u64> {
        let (mut page, mut steps) = (first, 0);
        while page < first + count {
            match self.known.get(page as usize)?.load(Relaxed) {
                0 => return None,
                run => (page, steps) = (page + u64::from(run), steps + 1),
            }
        }
        Some(steps)
    }

    fn remember(&self, first: u64, count: u64) {
        for page in first..first + count {
            if let Some(known) = self.known.get(page as usize) {
                let run = (first + count - page).min(u8::MAX.into());
                known.fetch_max(run as u8, Relaxed);
            }
        }
    }
}

/// A mapped pool: where it is in this process, and its length in bytes. Behind the structures it may go on
/// without being mapped.
///
/// All access is checked against the length. The maker of a `Mem` keeps the mapping alive.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    base: NonNull<u8>,
    len: usize,
    /// Bytes that are mapped.
    mapped: usize,
    /// The offset at which structures end: they are mapped.
    end: u64,
    sparse: Option<Sparse>,
}

// SAFETY: a `Mem` hands out references to atomics and raw copies only, both of which may be used from any
// thread.
unsafe impl Send for Mem {}
// SAFETY: as above.
unsafe impl Sync for Mem {}

impl Mem {
    /// Wraps `len` bytes at `base`.
    ///
    /// # Safety
    /// `base` must be aligned to 4096 and point to `len` bytes that stay readable and writable for as long as
    /// this value or a copy of it is used, and that are only accessed as atomics or by racing copies
    /// elsewhere.
    pub unsafe fn new(base: *mut u8, len: usize) -> Mem {
        debug_assert!(!base.is_null() && base as usize % 4096 == 0);
        // SAFETY: the caller passes a pointer to mapped memory, which is not null.
        let base = unsafe { NonNull::new_unchecked(base) };
        Mem { base, len, mapped: len, end: len as u64, sparse: None }
    }

    /// Takes the memory for the beginning of a pool of `len` bytes, the rest of which is not mapped.
    pub fn beginning_of(self, len: usize) -> Mem {
        Mem { len: len.max(self.mapped), ..self }
    }

    /// Lets only those pages be touched that are known to have memory.
    pub fn sparse(self, sparse: Sparse) -> Mem {
        assert!(sparse.known.len() >= self.mapped.div_ceil(PAGE as usize));
        Mem { sparse: Some(sparse), ..self }
    }

    /// Lets structures lie below `end` only.
    pub(crate) fn below(self, end: u64) -> Mem {
        Mem { end: end.min(self.mapped as u64), ..self }
    }

    /// The offset at which structures end.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The first byte of the mapping.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The pool's length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of its bytes that are mapped.
    pub fn mapped(&self) -> usize {
        self.mapped
    }

    /// Whether `len` bytes at `offset` lie inside the pool, mapped or not.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len as u64)
    }

    /// Whether the mapping has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This process's knowledge of the mapping's memory ([`Sparse::known`]), if that is not all there.
    pub fn known(&self) -> Option<&'static [AtomicU8]> {
        self.sparse.map(|sparse| sparse.known)
    }

    /// The `T` at `offset`, if it lies where structures do, is aligned, and there is memory for it.
    #[inline]
    pub fn at<T: Shared>(&self, offset: u64) -> Option<&'static T> {
        let len = size_of::<T>() as u64;
        let fits = offset.checked_add(len)? <= self.end && offset % align_of::<T>() as u64 == 0;
        // What is aligned to its size lies in one page.
        let one_page = size_of::<T>() <= align_of::<T>();
        // SAFETY: it fits into the mapping.
        (fits && unsafe { self.has_memory(offset, len, one_page) }).then(|| {
            // SAFETY: it was checked that the whole of T is inside the mapping, which begins on a page, and T
            // is aligned there; T accepts every bit pattern and is made of atomics; the mapping outlives
            // every use by the contract of `new`.
            unsafe { &*self.address(offset).cast::<T>() }
        })
    }

    /// The address of `len` bytes at `offset`, if they lie where structures do and there is memory for them.
    #[inline]
    pub fn bytes(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: they lie inside the mapping.
        let has_memory = || len == 0 || unsafe { self.has_memory(offset, len, false) };
        (end <= self.end && has_memory()).then(|| self.address(offset))
    }

    /// The address of `len` bytes at `offset`, if they are mapped. Nothing is known of their memory.
    pub fn range(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= self.mapped as u64).then(|| self.address(offset))
    }

    #[inline]
    fn address(&self, offset: u64) -> *mut u8 {
        // Callers have checked the offset; wrapping is for the sake of safety only.
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// Is there memory for these bytes, one at the least, so that touching them can't fail? Where that
    /// is not known, they are given some.
    ///
    /// # Safety
    /// They must lie inside the mapping. Where they begin and end on the same page for certain, say so.
    #[inline(always)]
    pub(crate) unsafe fn has_memory(&self, offset: u64, len: u64, one_page: bool) -> bool {
        let Some(sparse) = &self.sparse else {
            return true;
        };
        let first = offset / PAGE;
        // SAFETY: the caller vouches for it.
        let run = unsafe { sparse.run(first) };
        let more = || {
            if one_page {
                0
            } else {
                (offset + len - 1) / PAGE - first
            }
        };
        // What is no longer than a page lies in two at the most.
        let is_known = run > 1 && len <= PAGE || run > more();
        is_known || self.populate(sparse, offset, len)
    }

    /// Has bytes get memory, if they are not known to have it.
    #[cold]
    #[inline(never)]
    fn populate(&self, sparse: &Sparse, offset: u64, len: u64) -> bool {
        let first = offset / PAGE;
        let count = (offset + len - 1) / PAGE - first + 1;
        let steps = sparse.steps(first, count);
        let bytes = (count * PAGE) as usize;
        if steps.is_none() && !(sparse.populate)(self.address(first * PAGE), bytes) {
            return false;
        }
        if steps.is_none_or(|steps| steps > count.div_ceil(u8::MAX.into())) {
            sparse.remember(first, count);
        }
        true
    }

    /// The 64-bit word at `offset`; `None` if it is outside of where structures lie, not aligned, or there is
    /// no memory for it.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&'static AtomicU64> {
        self.at(offset)
    }

    /// The `count` words at an offset, under the conditions of [`Mem::at`].
    pub fn words(&self, offset: u64, count: u64) -> Option<&'static [AtomicU64]> {
        let first = self.bytes(offset, count.checked_mul(8)?)?.cast::<AtomicU64>();
        // SAFETY: `bytes` checked that all of them are inside the mapping, which outlives the slice; atomics
        // accept every bit pattern.
        first.is_aligned().then(|| unsafe { core::slice::from_raw_parts(first, count as usize) })
    }

    /// The 64-bit word at `offset`, wherever that is in what is mapped. Nothing is known of its memory.
    pub fn word_anywhere(&self, offset: u64) -> Option<&'static AtomicU64> {
        let word = self.range(offset, 8)?.cast::<AtomicU64>();
        // SAFETY: it was checked to lie inside the mapping, which outlives every use by the contract of
        // `new`.
        word.is_aligned().then(|| unsafe { &*word })
    }

    /// Fills `len` bytes at `offset` with zeros; false if they are not all mapped. What is not a
    /// structure's must have been given memory.
    pub fn zero(&self, offset: u64, len: u64) -> bool {
        let among_structures = self.end.saturating_sub(offset).min(len);
        let has_memory = among_structures == 0 || self.bytes(offset, among_structures).is_some();
        match self.range(offset, len).filter(|_| has_memory) {
            // SAFETY: the range was checked; others may race, which costs them their data but not us.
            Some(p) => unsafe {
                atomic::zero(p, len as usize);
                true
            },
            None => false,
        }
    }
}
