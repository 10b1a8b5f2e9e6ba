//! An open pool: its memory, and what can be done with ranges of it.

use core::ffi::c_void;

use vshmem_pool::Mem;

use crate::descriptor::{Descriptor, Identity, Owned};
use crate::error::{MapError, OpenError};
use crate::life::{self, Heir, Life};
use crate::pool_ref::Path;
use crate::sys::{self, Errno, Outcome};

/// Most that is reserved by one call: short enough to get done between two signals of a profiler.
const RESERVE_STEP: u64 = 4 << 20;

/// `f_type` of file systems, from `linux/magic.h`.
mod magic {
    pub const HUGETLBFS: u64 = 0x9584_58f6;
    pub const SYSFS: u64 = 0x6265_6572;
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
}

/// An open pool. Plain data that can live in a static; nothing happens when it is dropped, see [`Handle::close`].
///
/// Every method works in signal handlers, after `fork` of a threaded process, and when the program has closed the
/// pool's descriptor, changed its root directory or its user, unless it says otherwise.
#[derive(Debug)]
pub struct Handle {
    mem: Mem,
    descriptor: Descriptor,
    backing: Backing,
    page_size: u64,
    can_futex: bool,
    can_punch: bool,
}

impl Handle {
    /// Maps the whole of an open file and keeps its descriptor under a high number.
    pub(crate) fn set_up(file: &Owned, path: &Path) -> Result<Handle, OpenError> {
        let stat = sys::fstat(file.fd())?;
        let kind = sys::fstatfs(file.fd())?.f_type as u64;
        if magic::NOT_COHERENT.contains(&(kind & 0xffff_ffff)) {
            return Err(OpenError::NotCoherent);
        }
        let page_size = page_size_of(file.fd());
        let len = checked_length(stat.st_size, page_size)?;
        let base = map_whole(file.fd(), len)?;
        // SAFETY: `len` bytes were mapped at `base` for reading and writing, aligned to pages. They stay mapped until
        // `close`, whose caller vouches that nobody uses them.
        let mem = unsafe { Mem::new(base.cast(), len) };
        let backing = if kind == magic::SYSFS {
            Backing::Device
        } else {
            Backing::File
        };
        Ok(Handle {
            mem,
            descriptor: Descriptor::keep(file, Identity::of(&stat), path),
            backing,
            page_size,
            // SAFETY: the pool's first word is mapped.
            can_futex: unsafe { sys::futex_works(base.cast()) },
            can_punch: backing == Backing::File && punches(file.fd(), len as u64, page_size),
        })
    }

    /// Unmaps the pool and closes its descriptor. Mapped ranges and life locks are not touched.
    ///
    /// # Safety
    /// Nobody may use the pool's [`Mem`], or pointers into it, from now on.
    pub unsafe fn close(self) {
        // SAFETY: the caller vouches that the mapping is not in use.
        unsafe { sys::unmap(self.mem.base() as usize, self.mem.len()) };
        self.descriptor.close();
    }

    /// The pool's memory.
    pub fn mem(&self) -> Mem {
        self.mem
    }

    /// The granularity of the pool's memory in bytes: the machine's page size, or that of huge pages on hugetlbfs.
    /// Offsets and lengths of ranges that are mapped or released are multiples of it.
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Whether threads can sleep on words of the pool by futex. Not so in the memory of a PCI device.
    pub fn can_futex(&self) -> bool {
        self.can_futex
    }

    /// Whether whole pages read as zeros after [`Handle::release`].
    pub fn zeroes_on_release(&self) -> bool {
        self.can_punch
    }

    /// Free bytes of the file system that the pool is on. `None` if it has no limit of its own, or can't be asked.
    pub fn statfs_room(&self) -> Option<u64> {
        if self.backing == Backing::Device {
            return None;
        }
        let stat = sys::fstatfs(self.descriptor.get()?.fd()).ok()?;
        // A tmpfs without a limit reports no blocks at all.
        (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_bsize as u64))
    }

    /// Maps `len` bytes from `offset` on for the program, with protection `prot` (`PROT_READ` and so on).
    ///
    /// Without `addr` anywhere; with it exactly there, over whatever is mapped there if `replace`, else only if nothing
    /// is. The pool's own mapping is never replaced.
    ///
    /// # Errors
    /// See [`MapError`]. With `replace`, what was at `addr` may be gone after an error.
    pub fn map(
        &self,
        offset: u64,
        len: usize,
        addr: Option<usize>,
        replace: bool,
        prot: i32,
    ) -> Result<*mut c_void, MapError> {
        self.check_range(offset, len as u64)?;
        if let Some(addr) = addr {
            self.check_address(addr, len)?;
        }
        if let Some(outcome) = self.map_by_descriptor(offset, len, addr, replace, prot) {
            return outcome.map_err(MapError::from);
        }
        match self.map_again(offset, len, addr, replace, prot) {
            // What the kernel says to duplicating the memory of a device, or huge pages; the range was checked above.
            Err(Errno(libc::EFAULT | libc::EINVAL)) => Err(MapError::Lost),
            outcome => outcome.map_err(MapError::from),
        }
    }

    /// Takes a mapped range away again.
    ///
    /// # Safety
    /// The range must have been mapped by [`Handle::map`], and nobody may use it any more.
    pub unsafe fn unmap(&self, addr: *mut c_void, len: usize) {
        // SAFETY: the caller vouches for the range.
        unsafe { sys::unmap(addr as usize, len) };
    }

    /// Backs a range with memory now, so that no access to it can fail later for want of memory. What it holds is kept.
    /// `false`: there is no room; then part of the range may have been backed.
    pub fn reserve(&self, offset: u64, len: u64) -> bool {
        if self.check_range_inside(offset, len).is_none() {
            return false;
        }
        if self.backing == Backing::Device || len == 0 {
            return true;
        }
        match self.descriptor.get() {
            Some(file) => reserve_in_file(file.fd(), offset, len, self.page_size),
            None => self.reserve_by_writing(offset, len),
        }
    }

    /// Gives the memory of the whole pages in a range back. `true` if all of the range reads as zeros from now on;
    /// else (a device's memory, a range with parts of pages, a file system that can't) some of it may be as it was.
    pub fn release(&self, offset: u64, len: u64) -> bool {
        if self.check_range_inside(offset, len).is_none() || !self.can_punch {
            return false;
        }
        let page = self.page_size;
        // No overflow: the range lies inside the pool, whose length is a multiple of the page size.
        let (from, to) = (offset.div_ceil(page) * page, (offset + len) / page * page);
        if from >= to {
            return len == 0;
        }
        self.punch(from, to - from) && (from, to) == (offset, offset + len)
    }

    /// Takes the life lock of a process slot for the calling process image. `None`: it is held by somebody, or no
    /// description of the pool's file can be had.
    ///
    /// A thread that forks at this very moment by other means than the caller's knowledge may pass the lock on to its
    /// child, which then keeps the slot alive until it ends or execs: serialise this with `fork`.
    pub fn claim_life(&self, slot: u32) -> Option<Life> {
        life::claim(&self.descriptor, slot, Heir::Nobody)
    }

    /// Takes the life lock of a process slot for the child that the calling thread is about to fork. Afterwards the
    /// parent calls [`Life::drop_in_parent`] and the child [`Life::keep_in_child`].
    pub fn claim_life_for_child(&self, slot: u32) -> Option<Life> {
        life::claim(&self.descriptor, slot, Heir::Child)
    }

    /// Whether a process holds the life lock of a slot, in this kernel. `None`: that can't be told from here.
    pub fn alive(&self, slot: u32) -> Option<bool> {
        life::alive(&self.descriptor, slot)
    }

    /// Checks that a range to be mapped lies inside the pool and begins on a page.
    fn check_range(&self, offset: u64, len: u64) -> Result<(), MapError> {
        if len == 0 || self.check_range_inside(offset, len).is_none() {
            return Err(MapError::OutOfRange);
        }
        if offset % self.page_size != 0 {
            return Err(MapError::Misaligned);
        }
        Ok(())
    }

    /// Checks that a range lies inside the pool.
    fn check_range_inside(&self, offset: u64, len: u64) -> Option<()> {
        self.mem.bytes(offset, len).map(|_| ())
    }

    /// Checks that a range may be mapped at an address: aligned, and not over the pool's own mapping.
    fn check_address(&self, addr: usize, len: usize) -> Result<(), MapError> {
        if addr as u64 % self.page_size != 0 {
            return Err(MapError::Misaligned);
        }
        let end = addr.checked_add(len).ok_or(MapError::NoMemory)?;
        let base = self.mem.base() as usize;
        if addr < base + self.mem.len() && base < end {
            return Err(MapError::AddressInUse);
        }
        Ok(())
    }

    /// Maps a range through the descriptor. `None` if there is none, or it was lost in the midst.
    fn map_by_descriptor(
        &self,
        offset: u64,
        len: usize,
        addr: Option<usize>,
        replace: bool,
        prot: i32,
    ) -> Option<Outcome<*mut c_void>> {
        let file = self.descriptor.get()?;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | placing(addr, replace);
        // SAFETY: only with `replace` can this hit something that is mapped, as the caller of `map` asked for; the
        // pool's own mapping is out of reach, as `check_address` saw to.
        let at = match unsafe { sys::map(addr.unwrap_or(0), len, prot, flags, file.fd(), offset) } {
            // Closed by another thread since it was checked.
            Err(Errno(libc::EBADF)) => return None,
            Err(error) => return Some(Err(error)),
            Ok(at) => at,
        };
        if addr.is_some_and(|addr| addr != at as usize) {
            // A kernel that takes the address for a hint.
            // SAFETY: mapped above, and nobody knows of it.
            unsafe { sys::unmap(at as usize, len) };
            return Some(Err(Errno(libc::EEXIST)));
        }
        if !self.descriptor.is_still(&file) {
            // SAFETY: as above.
            unsafe { sys::unmap(at as usize, len) };
            return None;
        }
        Some(Ok(at))
    }

    /// Maps a range without a descriptor: by duplicating part of the pool's own mapping.
    fn map_again(
        &self,
        offset: u64,
        len: usize,
        addr: Option<usize>,
        replace: bool,
        prot: i32,
    ) -> Outcome<*mut c_void> {
        let from = self.mem.base() as usize + offset as usize;
        let fixed = if addr.is_some() {
            libc::MREMAP_FIXED
        } else {
            0
        };
        if let (Some(addr), false) = (addr, replace) {
            hold_place(addr, len)?;
        }
        let flags = libc::MREMAP_MAYMOVE | fixed;
        // SAFETY: what is at `addr` is either the place held above, or to be replaced; the pool's own mapping is out
        // of reach, as `check_address` saw to.
        let at = match unsafe { sys::remap_again(from, len, flags, addr.unwrap_or(0)) } {
            Ok(at) => at,
            Err(error) => {
                if let (Some(addr), false) = (addr, replace) {
                    // SAFETY: the place held above.
                    unsafe { sys::unmap(addr, len) };
                }
                return Err(error);
            }
        };
        // SAFETY: mapped above, and nobody knows of it yet.
        unsafe {
            if let Err(error) = sys::protect(at as usize, len, prot) {
                sys::unmap(at as usize, len);
                return Err(error);
            }
            // The duplicate inherits the advice that keeps the pool out of core dumps.
            let _ = sys::advise(at as usize, len, libc::MADV_DODUMP);
        }
        Ok(at)
    }

    /// Backs a range without a descriptor: as if every page were written.
    fn reserve_by_writing(&self, offset: u64, len: u64) -> bool {
        let page = self.page_size;
        let from = offset / page * page;
        let len = offset + len - from;
        // SAFETY: the range lies inside the pool's mapping; contents don't change.
        unsafe {
            let at = self.mem.base() as usize + from as usize;
            sys::advise(at, len as usize, libc::MADV_POPULATE_WRITE).is_ok()
        }
    }

    /// Punches a hole of whole pages inside the pool.
    fn punch(&self, offset: u64, len: u64) -> bool {
        let at = self.mem.base() as usize + offset as usize;
        // Through the mapping rather than the descriptor: this can't hit another file whatever other threads do.
        // SAFETY: the range lies inside the pool's mapping, and the caller gives its contents up.
        if unsafe { sys::advise(at, len as usize, libc::MADV_REMOVE) }.is_ok() {
            return true;
        }
        // After `mlockall` the mapping is locked, which the kernel does not punch.
        self.descriptor.get().is_some_and(|file| {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            in_steps(offset, len, self.page_size, |offset, len| {
                sys::allocate(file.fd(), mode, offset, len)
            })
        })
    }
}

/// The granularity of a file's memory: its huge pages, or the machine's pages.
pub(crate) fn page_size_of(fd: i32) -> u64 {
    match sys::fstatfs(fd) {
        Ok(stat) if stat.f_type as u64 == magic::HUGETLBFS && stat.f_bsize > 0 => {
            stat.f_bsize as u64
        }
        _ => sys::page_size(),
    }
}

/// The length of a pool's file, if it can be that of a pool.
fn checked_length(size: i64, page_size: u64) -> Result<usize, OpenError> {
    let size = u64::try_from(size).map_err(|_| OpenError::TooSmall)?;
    if size < vshmem_pool::MIN_POOL {
        return Err(OpenError::TooSmall);
    }
    if size % page_size != 0 {
        return Err(OpenError::Uneven);
    }
    if size >= crate::LIFE_BASE {
        return Err(OpenError::TooLarge);
    }
    usize::try_from(size).map_err(|_| OpenError::TooLarge)
}

/// Maps a whole file for reading and writing.
pub(crate) fn map_whole(fd: i32, len: usize) -> Outcome<*mut c_void> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // After `mlockall(MCL_FUTURE)` the kernel would fill the whole pool with memory at once. It leaves inaccessible
    // mappings alone, so the lock is taken off before the pool becomes accessible.
    // SAFETY: a new mapping at an address of the kernel's choice, which nobody knows of yet.
    unsafe {
        let at = sys::map(0, len, libc::PROT_NONE, flags, fd, 0)?;
        sys::unlock(at as usize, len);
        if let Err(error) = sys::protect(at as usize, len, libc::PROT_READ | libc::PROT_WRITE) {
            sys::unmap(at as usize, len);
            return Err(error);
        }
        // Core dumps hold what a program has attached, not the pool of everybody. A device's memory never is dumped.
        let _ = sys::advise(at as usize, len, libc::MADV_DONTDUMP);
        Ok(at)
    }
}

/// The flags that place a mapping.
fn placing(addr: Option<usize>, replace: bool) -> i32 {
    match (addr, replace) {
        (None, _) => 0,
        (Some(_), true) => libc::MAP_FIXED,
        (Some(_), false) => libc::MAP_FIXED_NOREPLACE,
    }
}

/// Maps inaccessible memory at an address where nothing is mapped.
fn hold_place(addr: usize, len: usize) -> Outcome<()> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let at = unsafe { sys::map(addr, len, libc::PROT_NONE, flags, -1, 0) }? as usize;
    if at != addr {
        // SAFETY: mapped above, and nobody knows of it.
        unsafe { sys::unmap(at, len) };
        return Err(Errno(libc::EEXIST));
    }
    Ok(())
}

/// Reserves memory for a range of a file.
pub(crate) fn reserve_in_file(fd: i32, offset: u64, len: u64, page_size: u64) -> bool {
    in_steps(offset, len, page_size, |offset, len| {
        sys::allocate(fd, 0, offset, len)
    })
}

/// Whether holes can be punched into a file. Tried behind its end, where nothing is.
fn punches(fd: i32, len: u64, page_size: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    in_steps(len, page_size, page_size, |offset, len| {
        sys::allocate(fd, mode, offset, len)
    })
}

/// Does something to a range of a file in steps. A step that a signal interrupts was undone by the kernel, so it is
/// tried again with half the length: the smallest gets done however fast the signals come.
fn in_steps(
    mut offset: u64,
    mut len: u64,
    smallest: u64,
    mut step: impl FnMut(u64, u64) -> Outcome<()>,
) -> bool {
    let mut most = RESERVE_STEP.max(smallest);
    while len > 0 {
        let now = len.min(most);
        match step(offset, now) {
            Ok(()) => {
                offset += now;
                len -= now;
            }
            Err(Errno(libc::EINTR)) => most = (most / 2).max(smallest),
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn lengths_of_pools() {
        let page = sys::page_size();
        assert_eq!(checked_length(-1, page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(0, page), Err(OpenError::TooSmall));
        assert_eq!(
            checked_length((1 << 20) - 1, page),
            Err(OpenError::TooSmall)
        );
        assert_eq!(checked_length(1 << 20, page), Ok(1 << 20));
        assert_eq!(checked_length((1 << 20) + 1, page), Err(OpenError::Uneven));
        assert_eq!(checked_length(3 << 20, 2 << 20), Err(OpenError::Uneven));
        assert_eq!(checked_length(1 << 61, page), Err(OpenError::TooLarge));
    }

    #[test]
    fn steps_cover_the_range_and_shrink_when_interrupted() {
        let mut done = Vec::new();
        let mut interruptions = 3;
        let all = in_steps(4096, RESERVE_STEP * 2 + 5, 4096, |offset, len| {
            if interruptions > 0 {
                interruptions -= 1;
                return Err(Errno(libc::EINTR));
            }
            done.push((offset, len));
            Ok(())
        });
        assert!(all);
        assert!(done.iter().all(|&(_, len)| len <= RESERVE_STEP / 8));
        let mut at = 4096;
        for (offset, len) in done {
            assert_eq!(offset, at);
            at += len;
        }
        assert_eq!(at, 4096 + RESERVE_STEP * 2 + 5);
    }

    #[test]
    fn a_failed_step_ends_it() {
        assert!(!in_steps(0, 1, 4096, |_, _| Err(Errno(libc::ENOSPC))));
    }
}
