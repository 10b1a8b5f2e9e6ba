//! Mapping ranges of a pool, with its descriptor or without.

use core::ffi::c_void;

use vshmem_pool::layout::PAGE;
use vshmem_pool::{Mem, Pool};

use crate::descriptor::{Borrowed, Descriptor, Owned};
use crate::source::Source;
use crate::sys::{self, Errno, Outcome};

/// `f_type` of hugetlbfs, from `linux/magic.h`.
const HUGETLBFS: u64 = 0x9584_58f6;

/// The granularity of a file's memory: its huge pages, or the machine's pages.
pub(crate) fn page_size_of(fd: i32) -> u64 {
    match sys::fstatfs(fd) {
        Ok(stat) if stat.f_type as u64 == HUGETLBFS && stat.f_bsize > 0 => stat.f_bsize as u64,
        _ => sys::page_size(),
    }
}

/// Maps a whole file, which begins at `offset`, for reading and writing.
pub(crate) fn whole(fd: i32, offset: u64, len: usize) -> Outcome<*mut c_void> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, without a fixed address, which nobody knows of yet.
    unsafe {
        let at = sys::map_unlocked(len, access, flags, fd, offset)?;
        // Core dumps hold what a program has attached, not the pool of everybody. A device's memory never is
        // dumped.
        let _ = sys::advise(at as usize, len, libc::MADV_DONTDUMP);
        Ok(at)
    }
}

/// Maps the whole file of a pool or, where there is too little address space for that, its beginning, which
/// has all structures. Returns how much is mapped, too.
pub(crate) fn as_far_as_fits(file: &Owned, begins: u64, len: usize) -> Outcome<(*mut c_void, usize)> {
    match whole(file.fd(), begins, len) {
        Err(Errno(libc::ENOMEM)) => {
            let structures = structures(file, begins).filter(|structures| (1..len).contains(structures));
            let structures = structures.ok_or(Errno(libc::ENOMEM))?;
            whole(file.fd(), begins, structures).map(|at| (at, structures))
        }
        outcome => outcome.map(|at| (at, len)),
    }
}

/// A page, aligned as what it holds demands.
#[repr(C, align(4096))]
struct Head([u8; PAGE as usize]);

/// The end of a pool's structures as its head says, in bytes: whole pages of the file.
fn structures(file: &Owned, begins: u64) -> Option<usize> {
    let mut head = Head([0; PAGE as usize]);
    let read = sys::read_at(file.fd(), &mut head.0, begins);
    // SAFETY: a page, to which nobody else refers as long as this is used.
    let end = Pool::to_be_mapped(unsafe { Mem::new((&raw mut head).cast(), PAGE as usize) });
    let end = end?.checked_next_multiple_of(page_size_of(file.fd()))?;
    usize::try_from(end).ok().filter(|_| read == Ok(PAGE as usize))
}

/// Maps a range of a pool's file, by a source if there is one: anywhere, or at `addr` if nothing is mapped
/// there. `None` if there is no descriptor, or it was closed meanwhile.
pub(crate) fn by_file(
    descriptor: &Descriptor,
    source: Option<&Source>,
    offset: u64,
    len: usize,
    addr: Option<usize>,
    prot: i32,
) -> Option<Outcome<*mut c_void>> {
    let file = match source {
        Some(source) => source.borrow(descriptor, prot)?,
        None => file_for(descriptor, prot)?,
    };
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | addr.map_or(0, |_| libc::MAP_FIXED_NOREPLACE);
    let hint = addr.unwrap_or(0);
    // SAFETY: nothing that is mapped is replaced.
    let at = match unsafe { sys::map(hint, len, prot, flags, file.fd(), offset) } {
        // Closed by another thread since it was checked.
        Err(Errno(libc::EBADF)) => return None,
        Err(error) => return Some(Err(error)),
        Ok(at) => at,
    };
    if addr.is_some_and(|addr| addr != at as usize) {
        // A kernel older than MAP_FIXED_NOREPLACE takes the address for a hint.
        // SAFETY: mapped above, and nobody knows of it.
        unsafe { sys::unmap(at as usize, len) };
        return Some(Err(Errno(libc::EEXIST)));
    }
    let is_still = match (source, &file) {
        (Some(source), Borrowed::Kept(_)) => source.is_open(descriptor),
        _ => descriptor.is_still(&file),
    };
    if !is_still {
        // SAFETY: as above.
        unsafe { sys::unmap(at as usize, len) };
        return None;
    }
    Some(Ok(at))
}

/// A descriptor that allows no more than `prot` later, if the process may still open the file; else the kept
/// one.
fn file_for(descriptor: &Descriptor, prot: i32) -> Option<Borrowed> {
    if prot & libc::PROT_WRITE == 0 {
        if let Some(file) = descriptor.open_to_read() {
            return Some(Borrowed::Temporary(file));
        }
    }
    descriptor.get()
}

/// Duplicates a range of the pool's own mapping as [`by_file`] maps one: the way without a descriptor.
pub(crate) fn duplicate(from: usize, len: usize, addr: Option<usize>, prot: i32) -> Outcome<*mut c_void> {
    if let Some(addr) = addr {
        reserve_address(addr, len)?;
    }
    let flags = libc::MREMAP_MAYMOVE | addr.map_or(0, |_| libc::MREMAP_FIXED);
    // SAFETY: a fixed address was reserved above.
    let at = match unsafe { sys::remap_again(from, len, flags, addr.unwrap_or(0)) } {
        Ok(at) => at,
        Err(error) => {
            if let Some(addr) = addr {
                // SAFETY: reserved above.
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

/// Maps inaccessible memory at an address where nothing is mapped.
fn reserve_address(addr: usize, len: usize) -> Outcome<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let at = unsafe { sys::map(addr, len, libc::PROT_NONE, flags, -1, 0) }? as usize;
    if at != addr {
        // SAFETY: mapped above, and nobody knows of it.
        unsafe { sys::unmap(at, len) };
        return Err(Errno(libc::EEXIST));
    }
    Ok(())
}
