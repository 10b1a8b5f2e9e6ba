//! Ranges of an open pool: mapping them for the program, and giving them memory or taking it back.

use core::ffi::c_void;

use vshmem_pool::Mem;

use super::{Backing, Handle};
use crate::error::MapError;
use crate::mapping;
use crate::reserve;
use crate::source::Source;
use crate::sys::{self, Errno};

impl Handle {
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

    /// Bytes of a range that have memory. `None`: that can't be told, as of a device, or by Linux before 6.5.
    /// Only files of tmpfs are asked: `cachestat` of a file with DAX is a fault of the kernel's in Linux
    /// 6.12, which ends the process.
    pub fn backed(&self, offset: u64, len: u64) -> Option<u64> {
        self.check_range_inside(offset, len).filter(|()| self.is_tmpfs)?;
        let file = self.descriptor.get()?;
        let pages = sys::cached_pages(file.fd(), self.begins + offset, len).ok()?;
        // A thread that closes what it finds may have put another file in place.
        self.descriptor.is_still(&file).then(|| pages.saturating_mul(sys::page_size()))
    }

    /// Whether whole pages read as zeros after [`Handle::release`].
    pub fn zeroes_on_release(&self) -> bool {
        let file = (self.backing == Backing::File).then(|| self.descriptor.get());
        // Tried behind the end, where nothing is.
        let end = self.begins + self.mem.len() as u64;
        file.flatten().is_some_and(|file| reserve::punch_file(file.fd(), end, self.page_size, self.page_size))
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
