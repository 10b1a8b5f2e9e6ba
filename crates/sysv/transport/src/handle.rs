//! An open pool: its memory, and what can be done with ranges of it.

use core::ffi::{c_void, CStr};
use core::time::Duration;

use vshmem_pool::atomic::AtomicU32;
use vshmem_pool::layout::PAGE;
use vshmem_pool::{Mem, Pool};

use crate::descriptor::{Descriptor, Identity, Owned};
use crate::driver::{self, Driver, Slept};
use crate::error::{JoinError, MapError, OpenError};
use crate::head;
use crate::liveness::{self, Heir, Liveness};
use crate::mapping;
use crate::maps::{self, Mapped};
use crate::member::Kernel;
use crate::pool_ref::Path;
use crate::reserve;
use crate::source::{self, Source};
use crate::sys::{self, Errno};

/// `f_type` of file systems, from `linux/magic.h`.
mod magic {
    pub const SYSFS: u64 = 0x6265_6572;
    pub const TMPFS: u64 = 0x0102_1994;
    /// File systems whose files other machines see without sharing their memory.
    pub const NOT_COHERENT: [u64; 9] = [
        0x0102_1997, // 9p
        0x6573_5546, // FUSE, virtiofs
        0x6969,      // NFS
        0x517b,      // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x00c3_6400, // Ceph
        0x5346_414f, // AFS
        0x0bd0_0bd0, // Lustre
    ];
}

/// What a pool's memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Pages of a file.
    File,
    /// Memory of a PCI device, there from the beginning to the end.
    Device,
    /// Memory of a DAX device: as that of a PCI device, and cached as that of a file.
    Dax,
}

/// What the file of a pool offers.
struct Offer {
    backing: Backing,
    driver: Option<Driver>,
    /// Where in the file the pool begins.
    begins: u64,
    /// The pool's length.
    size: Option<u64>,
    page_size: u64,
    /// The memory is that of a file on tmpfs.
    is_tmpfs: bool,
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
    /// Where in the file the pool begins.
    begins: u64,
    page_size: u64,
    can_futex: bool,
    is_tmpfs: bool,
}

impl Handle {
    /// Maps the whole of an open file and keeps its descriptor under a high number.
    pub(crate) fn set_up(file: &Owned, path: &Path) -> Result<Handle, OpenError> {
        let stat = sys::fstat(file.fd())?;
        let kind = sys::fstatfs(file.fd())?.f_type as u64;
        if magic::NOT_COHERENT.contains(&(kind & 0xffff_ffff)) {
            return Err(OpenError::NotCoherent);
        }
        let driver = match stat.st_mode & libc::S_IFMT {
            libc::S_IFCHR => Some(Driver::ask(file.fd())?),
            _ => None,
        };
        let backing = match driver.is_some() || kind == magic::SYSFS {
            true => Backing::Device,
            false => Backing::File,
        };
        let len = u64::try_from(stat.st_size).ok();
        let begins = match (backing, len) {
            (Backing::File, Some(len)) => head::length(file.fd(), len),
            _ => 0,
        };
        let offer = Offer {
            backing,
            driver,
            begins,
            size: driver.map_or(len.map(|len| len - begins), |driver| Some(driver.size)),
            page_size: mapping::page_size_of(file.fd()),
            // Devices in /dev are on one, too.
            is_tmpfs: backing == Backing::File && kind & 0xffff_ffff == magic::TMPFS,
        };
        Handle::map_whole(file, path, &stat, &offer)
    }

    /// The same for the file of a DAX device, which has this length and is mapped in pages of that size.
    pub(crate) fn set_up_dax(
        file: &Owned,
        path: &Path,
        size: u64,
        page_size: u64,
    ) -> Result<Handle, OpenError> {
        let (backing, driver, begins) = (Backing::Dax, None, 0);
        let offer = Offer { backing, driver, begins, size: Some(size), page_size, is_tmpfs: false };
        Handle::map_whole(file, path, &sys::fstat(file.fd())?, &offer)
    }

    fn map_whole(file: &Owned, path: &Path, stat: &libc::stat, offer: &Offer) -> Result<Handle, OpenError> {
        let Offer { backing, driver, begins, size, page_size, is_tmpfs } = *offer;
        let len = checked_length(size, page_size)?;
        // What a program attaches is mapped without it: there an access to what is gone raises SIGBUS.
        let beginning = driver.map_or(begins, |driver| driver.beginning());
        let (base, mapped) = match backing {
            Backing::File => mapping::as_far_as_fits(file, beginning, len)?,
            Backing::Device | Backing::Dax => (mapping::whole(file.fd(), beginning, len)?, len),
        };
        // SAFETY: so many bytes were mapped at `base` for reading and writing, aligned to pages. They stay
        // mapped until `close`, whose caller vouches that nobody uses them.
        let mem = unsafe { Mem::new(base.cast(), mapped) }.beginning_of(len);
        let mem = match backing {
            Backing::Device | Backing::Dax => mem,
            Backing::File => match reserve::sparse(mapped) {
                Ok(sparse) => {
                    sys::memcheck::hide(base as usize, mapped);
                    // The kernel is asked about its first word.
                    sys::memcheck::show(base as usize, PAGE as usize);
                    mem.sparse(sparse)
                }
                Err(error) => {
                    // SAFETY: nobody else knows of the mapping.
                    unsafe { sys::unmap(base as usize, mapped) };
                    return Err(error.into());
                }
            },
        };
        Ok(Handle {
            mem,
            descriptor: Descriptor::keep(file, Identity::of(stat), path),
            backing,
            driver,
            begins,
            page_size,
            // SAFETY: the pool's first word is mapped.
            can_futex: unsafe { sys::futex_works(base.cast()) },
            is_tmpfs,
        })
    }

    /// As the process ends: it does not look at the pool any more. Of what is still excepted from its checks
    /// then, valgrind's memcheck warns.
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

    /// What tells this kernel from others that use the pool.
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

    /// Where a word lies in the pool, if it does.
    fn offset_of(&self, word: &AtomicU32) -> Option<u64> {
        let offset = (word.as_ptr() as usize).checked_sub(self.mem.base() as usize)?;
        (offset < self.mem.mapped()).then_some(offset as u64)
    }

    /// Whether whole pages read as zeros after [`Handle::release`].
    pub fn zeroes_on_release(&self) -> bool {
        let file = (self.backing == Backing::File).then(|| self.descriptor.get());
        // Tried behind the end, where nothing is.
        let end = self.begins + self.mem.len() as u64;
        file.flatten().is_some_and(|file| reserve::punch_file(file.fd(), end, self.page_size, self.page_size))
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

    /// Maps `len` bytes from `offset` on for the program, with protection `prot` (`PROT_READ` and so on).
    ///
    /// Without `addr` anywhere; with it exactly there, if nothing is mapped there.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn map(
        &self,
        offset: u64,
        len: usize,
        addr: Option<usize>,
        prot: i32,
    ) -> Result<*mut c_void, MapError> {
        if let Some(mapped) = self.map_by(None, offset, len, addr, prot)? {
            return Ok(mapped);
        }
        let from = self.mem.range(offset, len as u64).ok_or(MapError::NoMemory)?;
        match mapping::duplicate(from as usize, len, addr, prot) {
            // What the kernel says to duplicating the memory of a device, or huge pages; the range was
            // checked above.
            Err(Errno(libc::EFAULT | libc::EINVAL)) => Err(MapError::Lost),
            outcome => outcome.map_err(|error| MapError::at(addr, prot, error)),
        }
    }

    /// Maps a range as [`Handle::map`] does, by a source. `None`: the source was closed, or there is none and
    /// no descriptor.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn map_by(
        &self,
        source: Option<&Source>,
        offset: u64,
        len: usize,
        addr: Option<usize>,
        prot: i32,
    ) -> Result<Option<*mut c_void>, MapError> {
        self.check_range(offset, len as u64)?;
        if let Some(addr) = addr {
            self.check_address(addr, len)?;
        }
        let at = self.begins + offset;
        let outcome = mapping::by_file(&self.descriptor, source, at, len, addr, prot);
        outcome.transpose().map_err(|error| MapError::at(addr, prot, error))
    }

    /// Maps a range as [`Handle::map`] does, to be moved to `addr` by [`Handle::move_over`]: anywhere but
    /// there. `None`: the source was closed.
    ///
    /// # Errors
    /// See [`MapError`]; also those of an address that nothing can be moved to.
    pub fn map_beside(
        &self,
        source: Option<&Source>,
        offset: u64,
        len: usize,
        addr: usize,
        prot: i32,
    ) -> Result<Option<*mut c_void>, MapError> {
        self.check_address(addr, len)?;
        let mapped = match source {
            Some(_) => self.map_by(source, offset, len, None, prot)?,
            None => Some(self.map(offset, len, None, prot)?),
        };
        let Some(at) = mapped else { return Ok(None) };
        if (at as usize) >= addr + len || at as usize + len <= addr {
            return Ok(Some(at));
        }
        // It keeps the next one from lying there. No more than two of its length can.
        let next = self.map_beside(source, offset, len, addr, prot);
        // SAFETY: mapped above, and nobody knows of it.
        unsafe { self.unmap(at, len) };
        next
    }

    /// Moves a mapped range to `addr`, over what is mapped there. If that fails, the range stays where it is,
    /// and as a rule so does what was mapped at `addr`.
    ///
    /// # Safety
    /// The range must have been mapped by [`Handle::map_beside`] for that address, and nobody may use it, or
    /// what is at the address.
    ///
    /// # Errors
    /// See [`MapError`].
    pub unsafe fn move_over(&self, range: *mut c_void, len: usize, addr: usize) -> Result<(), MapError> {
        // SAFETY: the caller vouches for both ranges.
        unsafe { sys::relocate(range as usize, len, addr) }
            .map_err(|error| MapError::at(Some(addr), 0, error))
    }

    /// Takes a mapped range away again.
    ///
    /// # Safety
    /// The range must have been mapped by [`Handle::map`], and nobody may use it any more.
    pub unsafe fn unmap(&self, addr: *mut c_void, len: usize) {
        // SAFETY: the caller vouches for the range.
        unsafe { sys::unmap(addr as usize, len) };
    }

    /// Backs a range with memory now, so that no access to it can fail later for want of memory. What it
    /// holds is kept. `false`: there is no room; then part of the range may have been backed.
    pub fn reserve(&self, offset: u64, len: u64) -> bool {
        if self.check_range_inside(offset, len).is_none() {
            return false;
        }
        if self.is_device() || len == 0 {
            return true;
        }
        // Before the file is asked: others can keep that busy, and a call that waits for it can't be ended.
        self.reserve_mapped(offset, len).unwrap_or_else(|| {
            let at = self.begins + offset;
            let in_file = |fd| reserve::in_file(fd, at, len, self.page_size);
            self.descriptor.get().is_some_and(|file| in_file(file.fd()))
        })
    }

    /// Fills a range that has memory with zeros, piece by piece, if it is not mapped whole. `false`: it is,
    /// or can't be mapped.
    pub fn zero(&self, offset: u64, len: u64) -> bool {
        const PIECE: u64 = 16 << 20;
        if self.mem.range(offset, len).is_some() {
            return false;
        }
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let from = at / self.page_size * self.page_size;
            let to = end.min(from + PIECE.max(self.page_size));
            let whole = (to - from).next_multiple_of(self.page_size) as usize;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let Ok(piece) = self.map(from, whole, None, prot) else { return false };
            // SAFETY: mapped just now; it is unmapped after its last use.
            unsafe {
                Mem::new(piece.cast(), whole).zero(at - from, to - at);
                self.unmap(piece, whole);
            }
            at = to;
        }
        true
    }

    /// Gives the memory of the whole pages in a range back. `true` if all of the range reads as zeros from
    /// now on; else (a device's memory, a reserved pool, a range with parts of pages, a file system that
    /// can't) some of it may be as it was.
    pub fn release(&self, offset: u64, len: u64) -> bool {
        if self.check_range_inside(offset, len).is_none() || self.is_device() || self.is_reserved() {
            return false;
        }
        let page = self.page_size;
        // No overflow: the range lies inside the pool, whose length is a multiple of the page size.
        let (from, to) = (offset.div_ceil(page) * page, (offset + len) / page * page);
        if from >= to {
            return len == 0;
        }
        let punched = self.punch(from, to - from);
        // A process that reserves the pool at this moment may have passed this range before the hole was
        // there.
        if self.is_reserved() {
            self.reserve(from, to - from);
        }
        punched && (from, to) == (offset, offset + len)
    }

    /// How many bytes of a range have memory. `None`: that can't be told, as of a device, or by Linux before
    /// 6.5. Only files of tmpfs are asked: `cachestat` of a file with DAX is a fault of the kernel's in Linux
    /// 6.12, which ends the process.
    pub fn backed(&self, offset: u64, len: u64) -> Option<u64> {
        self.check_range_inside(offset, len).filter(|()| self.is_tmpfs)?;
        let file = self.descriptor.get()?;
        let pages = sys::cached_pages(file.fd(), self.begins + offset, len).ok()?;
        // A thread that closes what it finds may have put another file in place.
        self.descriptor.is_still(&file).then(|| pages.saturating_mul(sys::page_size()))
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

    /// Checks that a range to be mapped lies inside the pool and is whole pages.
    fn check_range(&self, offset: u64, len: u64) -> Result<(), MapError> {
        if len == 0 || self.check_range_inside(offset, len).is_none() {
            return Err(MapError::OutOfRange);
        }
        if offset % self.page_size != 0 || len % self.page_size != 0 {
            return Err(MapError::Misaligned);
        }
        Ok(())
    }

    /// Checks that a range lies inside the pool.
    fn check_range_inside(&self, offset: u64, len: u64) -> Option<()> {
        self.mem.contains(offset, len).then_some(())
    }

    /// Checks that a range may be mapped at an address: aligned, and not over the pool's own mapping.
    fn check_address(&self, addr: usize, len: usize) -> Result<(), MapError> {
        if addr as u64 % self.page_size != 0 {
            return Err(MapError::Misaligned);
        }
        let end = addr.checked_add(len).ok_or(MapError::NoMemory)?;
        let base = self.mem.base() as usize;
        if addr < base + self.mem.mapped() && base < end {
            return Err(MapError::AddressInUse);
        }
        Ok(())
    }

    /// Backs a range by the pool's mapping. `None`: the kernel can't be asked.
    fn reserve_mapped(&self, offset: u64, len: u64) -> Option<bool> {
        let from = offset / self.page_size * self.page_size;
        let len = offset + len - from;
        let at = self.mem.range(from, len)?;
        // SAFETY: the range lies inside the pool's mapping.
        unsafe { reserve::in_mapping(at as usize, len as usize) }
    }

    /// Punches a hole of whole pages inside the pool.
    fn punch(&self, offset: u64, len: u64) -> bool {
        let Some(at) = self.mem.range(offset, len).map(|at| at as usize) else {
            let in_file = |fd| reserve::punch_file(fd, self.begins + offset, len, self.page_size);
            return self.descriptor.get().is_some_and(|file| in_file(file.fd()));
        };
        // Through the mapping rather than the descriptor: this can't hit another file whatever other threads
        // do. SAFETY: the range lies inside the pool's mapping, and the caller gives its contents up.
        let attempt = || unsafe { reserve::punch_mapping(at, len as usize) };
        if attempt() {
            return true;
        }
        // The program has called `mlockall`, and the kernel does not empty locked mappings.
        sys::unlock(self.mem.base() as usize, self.mem.mapped());
        attempt()
    }
}

/// The length of a pool's file, if it can be that of a pool.
fn checked_length(size: Option<u64>, page_size: u64) -> Result<usize, OpenError> {
    let size = size.ok_or(OpenError::TooSmall)?;
    if size < vshmem_pool::MIN_POOL {
        return Err(OpenError::TooSmall);
    }
    if size % page_size != 0 {
        return Err(OpenError::Uneven);
    }
    if size >= crate::LIVENESS_BASE {
        return Err(OpenError::TooLarge);
    }
    usize::try_from(size).map_err(|_| OpenError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_pools() {
        let page = sys::page_size();
        assert_eq!(checked_length(None, page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(Some(0), page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(Some((1 << 20) - 1), page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(Some(1 << 20), page), Ok(1 << 20));
        assert_eq!(checked_length(Some((1 << 20) + 1), page), Err(OpenError::Uneven));
        assert_eq!(checked_length(Some(3 << 20), 2 << 20), Err(OpenError::Uneven));
        assert_eq!(checked_length(Some(1 << 61), page), Err(OpenError::TooLarge));
    }
}
