//! Segments: memory that processes share.
//!
//! Others write it at any time, so there are no references to plain values in it. What is safe reads and
//! writes whole aligned words of eight bytes atomically: no two accesses of different size meet, and any bits
//! are a value.

use crate::error::{checked, Error, Result};
use crate::pool::during_a_call;
use crate::sys;
use libc::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::{null, NonNull};
use std::sync::atomic::{fence, AtomicU64, Ordering};

/// A segment of the current pool, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    id: c_int,
}

impl Segment {
    /// The segment of a key.
    pub fn open(key: i32) -> Result<Segment> {
        Segment::get(key, 0, 0)
    }

    /// The segment of a key; it is made, of `size` bytes and with the permissions `mode`, if there is none.
    pub fn create(key: i32, size: usize, mode: u32) -> Result<Segment> {
        Segment::get(key, size, libc::IPC_CREAT | mode as c_int & 0o777)
    }

    /// A new segment; an error if the key has one.
    pub fn create_new(key: i32, size: usize, mode: u32) -> Result<Segment> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL;
        Segment::get(key, size, flags | mode as c_int & 0o777)
    }

    /// A new segment that only its id names.
    pub fn private(size: usize, mode: u32) -> Result<Segment> {
        Segment::create(libc::IPC_PRIVATE, size, mode)
    }

    /// The segment of an id.
    pub fn from_id(id: i32) -> Segment {
        Segment { id }
    }

    fn get(key: i32, size: usize, flags: c_int) -> Result<Segment> {
        let _call = during_a_call();
        // SAFETY: plain numbers.
        checked(unsafe { sys::vshm_shmget(key, size, flags) }).map(Segment::from_id)
    }

    /// Its id, which other processes may be told.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Maps it for reading and writing.
    pub fn attach(&self) -> Result<Attachment> {
        self.map(0)
    }

    /// Maps it for reading, which its mode may allow where writing is not.
    pub fn attach_readonly(&self) -> Result<ReadOnly> {
        self.map(libc::SHM_RDONLY).map(ReadOnly)
    }

    fn map(&self, flags: c_int) -> Result<Attachment> {
        let _call = during_a_call();
        // SAFETY: the library chooses a free range of addresses.
        let at = unsafe { sys::vshm_shmat(self.id, null(), flags) };
        if at as isize == -1 {
            return Err(Error::last());
        }
        let start = NonNull::new(at.cast()).ok_or_else(Error::last)?;
        // From here on it is detached if anything fails.
        let mut attachment = Attachment { start, len: 0 };
        let size = self.size()?;
        // Other members of the pool may write anything there.
        if size > mapped_from(start.as_ptr() as usize) {
            return Err(Error::new(libc::EIDRM, "the segment was changed while it was attached"));
        }
        attachment.len = size;
        Ok(attachment)
    }

    /// The size that the pool tells.
    fn size(&self) -> Result<usize> {
        let mut status = MaybeUninit::<libc::shmid_ds>::zeroed();
        // SAFETY: room for what IPC_STAT writes.
        checked(unsafe { sys::vshm_shmctl(self.id, libc::IPC_STAT, status.as_mut_ptr()) })?;
        // SAFETY: numbers, which may have any bits.
        Ok(unsafe { status.assume_init() }.shm_segsz)
    }

    /// Marks it to be removed: it goes when the last process detaches it.
    pub fn remove(&self) -> Result<()> {
        let _call = during_a_call();
        // SAFETY: IPC_RMID takes no buffer.
        checked(unsafe { sys::vshm_shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) }).map(|_| ())
    }
}

/// How many bytes are mapped from an address on.
fn mapped_from(address: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter_map(|line| line.split(' ').next()?.split_once('-'))
        .filter_map(|(begin, end)| {
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(begin)?..number(end)?)
        })
        .find(|range| range.contains(&address))
        .map_or(0, |range| range.end - address)
}

/// A segment in this process's memory, until it is dropped.
///
/// Access ends the process by SIGBUS if the pool is taken away from a machine, or its file is cut off.
#[derive(Debug)]
pub struct Attachment {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory, which any thread may reach; what is safe of it is atomic.
unsafe impl Send for Attachment {}
// SAFETY: as above.
unsafe impl Sync for Attachment {}

impl Attachment {
    /// Its first byte. Others write this memory at any time: to use it other than atomically is a data race,
    /// unless a barrier or a semaphore keeps all others away.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)] // no segment is empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// All whole words of eight bytes in it.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Relaxed;
    /// let segment = vshmem::Segment::private(4096, 0o600)?;
    /// let attachment = segment.attach()?;
    /// segment.remove()?; // goes with the last attachment
    /// let values = attachment.values::<f64>();
    /// values[3].store(2.5, Relaxed);
    /// assert_eq!(values[3].load(Relaxed), 2.5);
    /// # Ok::<(), vshmem::Error>(())
    /// ```
    pub fn values<T: Word>(&self) -> &[Shared<T>] {
        // SAFETY: mapped at a page's start, this far, as long as `self` lives, and for writing, but where
        // `ReadOnly` only reads; a `Shared` is an AtomicU64, which is valid whatever bits others write, and
        // all that is safe reaches the memory by those alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / 8) }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: attached there, and nothing borrows from it any more. It keeps its pool open until it is
        // detached.
        unsafe { sys::vshm_shmdt(self.start.as_ptr().cast::<c_void>()) };
    }
}

/// A segment in this process's memory that it can't write, until it is dropped.
#[derive(Debug)]
pub struct ReadOnly(Attachment);

impl ReadOnly {
    /// Its first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)] // no segment is empty
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads one of its words of eight bytes. What its writer wrote before it stored the word with `Release`
    /// is seen from then on.
    ///
    /// # Panics
    /// Where it ends before that word.
    pub fn load<T: Word>(&self, index: usize) -> T {
        // On memory that can't be written only relaxed loads are sure to be mere loads.
        let value = self.0.values::<T>()[index].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }
}

/// A value of eight bytes, any bits of which are valid: `u64`, `i64` or `f64`.
pub trait Word: Copy + sealed::Sealed {
    /// Its bits.
    fn to_word(self) -> u64;
    /// The value of these bits.
    fn of_word(word: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for i64 {}
    impl Sealed for f64 {}
}

impl Word for u64 {
    fn to_word(self) -> u64 {
        self
    }
    fn of_word(word: u64) -> u64 {
        word
    }
}

impl Word for i64 {
    fn to_word(self) -> u64 {
        self as u64
    }
    fn of_word(word: u64) -> i64 {
        word as i64
    }
}

impl Word for f64 {
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    fn of_word(word: u64) -> f64 {
        f64::from_bits(word)
    }
}

/// A value in shared memory, read and written atomically. That of a `u64` is an [`AtomicU64`] with all its
/// methods.
#[repr(transparent)]
#[derive(Debug)]
pub struct Shared<T> {
    word: AtomicU64,
    kind: PhantomData<T>,
}

impl<T: Word> Shared<T> {
    /// Reads it.
    pub fn load(&self, order: Ordering) -> T {
        T::of_word(self.word.load(order))
    }

    /// Writes it.
    pub fn store(&self, value: T, order: Ordering) {
        self.word.store(value.to_word(), order);
    }
}

impl Deref for Shared<u64> {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.word
    }
}
