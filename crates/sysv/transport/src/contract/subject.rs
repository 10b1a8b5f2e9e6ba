//! The subject of the checks, and what they have in common.

use std::format;
use std::string::String;

use crate::{Handle, PoolRef, Transport};

/// The subject of the checks: a transport and a pool.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The transport.
    pub transport: &'a dyn Transport,
    /// A pool of this transport, to be scribbled on.
    pub pool: &'a PoolRef,
}

/// The verdict of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The transport does what it promises.
    Passed,
    /// The check can't be made here, for this reason.
    Skipped(&'static str),
    /// The transport doesn't; what was seen.
    Failed(String),
}

/// The result of a check: a failure as text.
pub type Outcome = Result<Verdict, String>;

/// A named check.
pub struct Check {
    pub name: &'static str,
    pub make: fn(&Subject) -> Outcome,
}

/// Pages at the pool's end that checks write to.
const SCRATCH_PAGES: u64 = 16;

impl Subject<'_> {
    /// Opens the pool.
    pub(super) fn open(&self) -> Result<Open, String> {
        let handle = self.transport.open(self.pool).map_err(|error| format!("open: {error}"))?;
        let page = handle.page_size();
        let len = handle.mem().len() as u64;
        ensure(len >= 2 * SCRATCH_PAGES * page, "the pool is too small for the contract's checks")?;
        Ok(Open { handle, page, scratch: len - SCRATCH_PAGES * page })
    }
}

/// An open pool of the contract.
pub struct Open {
    pub handle: Handle,
    /// Its page size in bytes.
    pub page: u64,
    /// The offset at which the pages for scribbling begin.
    pub scratch: u64,
}

impl Open {
    /// The offset of a scratch page.
    pub fn page_at(&self, index: u64) -> u64 {
        self.scratch + index * self.page
    }

    /// Reads a byte of the pool.
    pub fn get(&self, offset: u64) -> u8 {
        // SAFETY: every offset that the checks use lies inside the pool.
        unsafe { self.handle.mem().base().add(offset as usize).read_volatile() }
    }

    /// Writes a byte of the pool.
    pub fn put(&self, offset: u64, value: u8) {
        // SAFETY: as in `get`; the pages are for scribbling.
        unsafe { self.handle.mem().base().add(offset as usize).write_volatile(value) };
    }

    /// Fills a scratch page.
    pub fn fill(&self, index: u64, value: u8) {
        for offset in self.page_at(index)..self.page_at(index + 1) {
            self.put(offset, value);
        }
    }

    /// Maps a scratch page somewhere.
    pub fn map(&self, index: u64, prot: i32) -> Result<*mut u8, String> {
        self.handle
            .map(self.page_at(index), self.page as usize, None, prot)
            .map(|at| at.cast())
            .map_err(|error| format!("map: {error}"))
    }

    /// Unmaps what `map` mapped.
    pub fn unmap(&self, at: *mut u8) {
        // SAFETY: checks unmap each mapping once, when they are done with it.
        unsafe { self.handle.unmap(at.cast(), self.page as usize) };
    }

    /// Closes the pool.
    pub fn close(self) {
        // SAFETY: `self` is all that leads to the memory.
        unsafe { self.handle.close() };
    }
}

/// Read and write access.
pub const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Fails with `message` unless `condition` holds.
pub fn ensure(condition: bool, message: &str) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(message.into())
    }
}

/// Fails with both values unless they are equal.
pub fn same<T: PartialEq + core::fmt::Debug>(seen: T, expected: T, what: &str) -> Result<(), String> {
    if seen == expected {
        Ok(())
    } else {
        Err(format!("{what}: saw {seen:?}, expected {expected:?}"))
    }
}
