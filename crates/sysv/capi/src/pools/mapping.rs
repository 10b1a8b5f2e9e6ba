//! Mapping segments of a pool for the program, and unmapping them.

use crate::pools::caller::Caller;
use crate::pools::table::POOLS;
use crate::process::gate::Inside;
use crate::process::{core_dump, raw};
use crate::thread::last_error::explain;
use core::ffi::c_void;
use core::ops::Range;
use vshmem_ipc::Errno;
use vshmem_transport::{Handle, MapError};

impl Caller {
    /// Maps part of the pool for the program; returns also the number of the source that it is mapped by, or
    /// 0. With `replace` not at the address yet: [`Caller::move_over`] brings it there.
    pub fn map(
        &self,
        gate: &Inside,
        offset: u64,
        len: usize,
        addr: Option<usize>,
        replace: bool,
        protection: i32,
    ) -> Result<(*mut c_void, u64), Errno> {
        let (handle, place) = (self.handle(), &POOLS[self.pool_index()]);
        if !handle.is_device() {
            core_dump::hold_segments();
        }
        let (beside, at) = (addr.filter(|_| replace), addr.filter(|_| !replace));
        // The program may have closed the first one.
        for _ in 0..2 {
            let Some(source) = place.source(gate) else { break };
            let mapped = match beside {
                Some(addr) => handle.map_beside(Some(&source), offset, len, addr, protection),
                None => handle.map_by(Some(&source), offset, len, at, protection),
            };
            if let Some(mapped) = mapped.map_err(not_mapped)? {
                return Ok((mapped, source.number()));
            }
            place.close_source(gate);
        }
        let mapped = match beside {
            Some(addr) => handle.map_beside(None, offset, len, addr, protection),
            None => handle.map(offset, len, at, protection).map(Some),
        };
        let mapped = mapped.map_err(not_mapped)?;
        mapped.map(|mapped| (mapped, 0)).ok_or(Errno(libc::ENOMEM))
    }

    /// Bytes of the pages by which the pool's memory is mapped here. EINVAL if its segments don't begin at
    /// multiples of that.
    pub fn page_size(&self) -> Result<usize, Errno> {
        let (page, align) = (self.handle().page_size(), self.ctx.pool.segment_align());
        if page > align {
            explain(format_args!(
                "the pool's memory is mapped in pieces of {} KiB here, and its segments are aligned to {} KiB; \
                 make it anew with: vshmem pool create --align {}K",
                page >> 10,
                align >> 10,
                page >> 10
            ));
            return Err(Errno::EINVAL);
        }
        Ok(page as usize)
    }

    /// Moves a range that was mapped beside an address there, over the program's own mappings.
    pub fn move_over(&self, range: Range<usize>, addr: usize) -> Result<(), Errno> {
        let (from, len) = (range.start as *mut c_void, range.len());
        // SAFETY: `map` has mapped the range, and nobody knows of it; what is at the address the program
        // gives up.
        unsafe { self.handle().move_over(from, len, addr) }.map_err(not_mapped)
    }

    fn handle(&self) -> &'static Handle {
        // SAFETY: a caller exists only of an open pool.
        unsafe { &POOLS[self.pool_index()].opened().handle }
    }
}

fn not_mapped(error: MapError) -> Errno {
    explain(format_args!("{error}"));
    Errno(error.errno())
}

/// Unmaps part of an attachment.
pub fn unmap(index: usize, part: Range<usize>) {
    let place = &POOLS[index];
    if place.is_open() {
        // SAFETY: open; the caller gives up the range, which `Caller::map` had mapped.
        unsafe { place.opened().handle.unmap(part.start as *mut c_void, part.len()) };
    } else {
        // SAFETY: as above; the pool itself was closed meanwhile.
        unsafe { raw::unmap(part.start as *mut u8, part.len()) };
    }
}
