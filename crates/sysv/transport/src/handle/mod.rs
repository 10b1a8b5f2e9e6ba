//! An open pool: its memory, and what can be done with ranges of it.

mod ranges;
mod set_up;

use core::ffi::CStr;
use core::time::Duration;

use vshmem_pool::atomic::AtomicU32;
use vshmem_pool::{Mem, Pool};

use crate::descriptor::Descriptor;
use crate::driver::{self, Driver, Slept};
use crate::error::JoinError;
use crate::liveness::{self, Heir, Liveness};
use crate::maps::{self, Mapped};
use crate::member::Kernel;
use crate::reserve;
use crate::source::{self, Source};
use crate::sys;

/// The memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Pages of a file.
    File,
    /// Memory of a PCI device, there from the beginning to the end.
    Device,
    /// Memory of a DAX device: as that of a PCI device, and cached as that of a file.
    Dax,
}

/// An open pool. Plain data that can live in a static; nothing happens when it is dropped, see
/// [`Handle::close`].
///
/// Every method works in signal handlers, after `fork` of a threaded process, and when the program has closed
/// the pool's descriptor, changed its root directory or its user, unless it says otherwise.
#[derive(Debug)]
pub struct Handle {
    mem: Mem,
    descriptor: Descriptor,
    backing: Backing,
    driver: Option<Driver>,
    /// The offset in the file at which the pool begins.
    begins: u64,
    page_size: u64,
    can_futex: bool,
    is_tmpfs: bool,
}

impl Handle {
    /// Says that the process ends, so does not look at the pool any more. Of what is still excepted from its
    /// checks then, valgrind's memcheck warns.
    pub fn expect_no_access(&self) {
        sys::memcheck::forget(self.mem.base() as usize, self.mem.mapped());
    }

    /// The process looks at the pool all the same.
    pub fn expect_access(&self) {
        if self.backing == Backing::File {
            sys::memcheck::ignore(self.mem.base() as usize, self.mem.mapped());
        }
    }

    /// Unmaps the pool and closes its descriptor. Mapped ranges and liveness locks are not touched.
    ///
    /// # Safety
    /// Nobody may use the pool's [`Mem`], or pointers into it, from now on.
    pub unsafe fn close(self) {
        // SAFETY: the caller vouches that the mapping is not in use.
        unsafe { sys::unmap(self.mem.base() as usize, self.mem.mapped()) };
        sys::memcheck::forget(self.mem.base() as usize, self.mem.mapped());
        if let Some(known) = self.mem.known() {
            // SAFETY: `set_up` mapped it, and it is used by the `Mem` only.
            unsafe { sys::unmap(known.as_ptr() as usize, size_of_val(known)) };
        }
        self.descriptor.close();
    }

    /// The pool's memory.
    pub fn mem(&self) -> Mem {
        self.mem
    }

    /// The path by which the file was opened: that of the driver's device file, where the driver has the
    /// device.
    pub fn path(&self) -> &CStr {
        self.descriptor.path()
    }

    /// The granularity of the pool's memory in bytes: the machine's page size, that of huge pages on
    /// hugetlbfs, or a DAX device's alignment. Addresses, offsets and lengths of ranges that are mapped or
    /// released are multiples of it.
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Whether the pool's memory is that of a PCI device. Then all of it has memory at all times, and it
    /// can't be mapped once neither the descriptor nor the path is left.
    pub fn is_device(&self) -> bool {
        self.backing != Backing::File
    }

    /// Whether the device may be taken away while the pool is in use. Then the pool reads as zeros.
    pub fn may_go(&self) -> bool {
        self.backing == Backing::Device
    }

    /// Whether threads can sleep on words of the pool by futex. Not so in the memory of a PCI device.
    pub fn can_futex(&self) -> bool {
        self.can_futex
    }

    /// Whether the processor's caches may hold the memory: that of a file or a DAX device, and that of a PCI
    /// device which the driver vshmem.ko maps.
    pub fn is_cached(&self) -> bool {
        self.driver.map_or(self.backing != Backing::Device, |driver| driver.cached)
    }

    /// The identity of this kernel among those that use the pool.
    fn kernel(&self) -> Kernel {
        match (self.driver, self.backing) {
            (Some(driver), _) => Kernel::Known(driver.identity),
            (None, Backing::File) => Kernel::HOST,
            (None, Backing::Device | Backing::Dax) => Kernel::ByFile,
        }
    }

    /// Finds this kernel's entry among the members of the pool that lies in this memory, or makes one.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&self, pool: &Pool) -> Result<u16, JoinError> {
        self.kernel().join(&self.descriptor, pool)
    }

    /// This kernel's entry, if it has one.
    pub fn find_member(&self, pool: &Pool) -> Option<u16> {
        self.kernel().find(&self.descriptor, pool)
    }

    /// Whether threads can sleep on words of the pool in the driver vshmem.ko.
    pub fn has_driver(&self) -> bool {
        self.driver.is_some()
    }

    /// The peer that this kernel is: other kernels ring its doorbell by this number through the pool's
    /// device, and it can ring theirs.
    pub fn peer(&self) -> Option<u16> {
        self.driver?.peer
    }

    /// Sleeps in the driver while a word of the pool is `expected`. `None`: that can't be done, for this word
    /// or at all.
    pub fn sleep(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Option<Slept> {
        self.driver?;
        driver::sleep(&self.descriptor, self.offset_of(word)?, expected, timeout)
    }

    /// Wakes threads of this kernel that sleep in the driver on a word of the pool; returns how many. `None`:
    /// that can't be done.
    pub fn wake(&self, word: &AtomicU32, count: u32) -> Option<u32> {
        self.driver?;
        match self.offset_of(word) {
            Some(offset) => driver::wake(&self.descriptor, offset, count),
            None => Some(0),
        }
    }

    /// Rings a peer's doorbell: has that kernel look at the words that its threads sleep on. False if the
    /// peer can't be reached from here.
    pub fn ring_doorbell(&self, peer: u16) -> bool {
        self.peer().is_some() && driver::ring(&self.descriptor, peer)
    }

    /// The offset of a word in the pool, if it lies there.
    fn offset_of(&self, word: &AtomicU32) -> Option<u64> {
        let offset = (word.as_ptr() as usize).checked_sub(self.mem.base() as usize)?;
        (offset < self.mem.mapped()).then_some(offset as u64)
    }

    /// Free bytes of the file system that the pool lies on. `None` if it has no limit of its own, or can't be
    /// asked.
    pub fn free_memory(&self) -> Option<u64> {
        if self.is_device() {
            return None;
        }
        let stat = sys::fstatfs(self.descriptor.get()?.fd()).ok()?;
        // A tmpfs without a limit reports no blocks at all.
        (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_bsize as u64))
    }

    /// Whether the pool keeps all of its memory ([`crate::reserve_local`]). Where that can't be asked, the
    /// answer is yes.
    pub fn is_reserved(&self) -> bool {
        let stat = self.descriptor.get().map(|file| sys::fstat(file.fd()));
        !matches!(stat, Some(Ok(stat)) if stat.st_mode & reserve::KEPT == 0)
    }

    /// Whether the pool's file is shorter than the pool, since somebody has truncated it.
    pub fn is_truncated(&self) -> bool {
        let ends = self.begins + self.mem.len() as u64;
        let stat = self.descriptor.get().map(|file| sys::fstat(file.fd()));
        !self.is_device() && matches!(stat, Some(Ok(stat)) if (stat.st_size as u64) < ends)
    }

    /// Bytes of memory that the pool has and could get, taken together. `None` as [`Handle::free_memory`].
    pub fn available_memory(&self) -> Option<u64> {
        let free = self.free_memory()?;
        let stat = sys::fstat(self.descriptor.get()?.fd()).ok()?;
        // Always in units of 512 bytes.
        Some(free.saturating_add(stat.st_blocks.max(0) as u64 * 512))
    }

    /// Takes the liveness lock of a process slot for the calling process image. `None`: it is held by
    /// somebody, or no description of the pool's file can be had.
    ///
    /// A thread that forks at this very moment by other means than the caller's knowledge may pass the lock
    /// on to its child, which then keeps the slot alive until it ends or execs: serialise this with `fork`.
    pub fn claim_liveness(&self, slot: u32) -> Option<Liveness> {
        liveness::claim(&self.descriptor, self.page_size, slot, Heir::Nobody)
    }

    /// Takes the liveness lock of a process slot for the child that the calling thread is about to fork.
    /// Afterwards the parent calls [`Liveness::end`] and the child [`Liveness::keep_in_child`].
    pub fn claim_liveness_for_child(&self, slot: u32) -> Option<Liveness> {
        liveness::claim(&self.descriptor, self.page_size, slot, Heir::Child)
    }

    /// Calls `each` with every part of the pool that this process has mapped, in the order of addresses.
    /// `None`: that can't be told.
    pub fn each_mapped(&self, each: &mut dyn FnMut(Mapped)) -> Option<()> {
        let base = self.mem.base() as usize;
        maps::each(&(base..base + self.mem.mapped()), self.begins, each)
    }

    /// Opens a source, by which this process maps what it attaches.
    pub fn open_source(&self) -> Option<Source> {
        Source::open(&self.descriptor)
    }

    /// Closes a source of this process's, or one that it has inherited: what is mapped by it stays.
    pub fn close_source(&self, source: &Source) {
        source.close(&self.descriptor);
    }

    /// Whether anything is mapped by the source with this number, in this kernel. `None`: that can't be told
    /// from here.
    pub fn is_mapped(&self, source: u64) -> Option<bool> {
        source::is_mapped(&self.descriptor, source)
    }

    /// Whether a process holds the liveness lock of a slot, in this kernel. `None`: that can't be told from
    /// here.
    pub fn alive(&self, slot: u32) -> Option<bool> {
        liveness::alive(&self.descriptor, slot)
    }
}
