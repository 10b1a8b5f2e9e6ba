//! Core dumps, which hold a process's attached segments. The kernel's segments are anonymous shared memory to
//! it, which a dump holds unless its filter says otherwise (core(5)); a pool's are parts of a file, which it
//! does not hold. So a process that attaches one gets a filter that lets files' shared memory in, if its own
//! lets anonymous one in. The mapping of the whole pool is left out of dumps all the same.

use crate::process::raw;
use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vshmem_transport::Text;

const FILTER: &CStr = c"/proc/self/coredump_filter";

/// Bits of the filter.
const ANONYMOUS_SHARED: u32 = 1 << 1;
const FILES_SHARED: u32 = 1 << 3;

/// Whether the process has looked at its filter, or the one that forked it, whose filter it has.
static LOOKED: AtomicBool = AtomicBool::new(false);

/// Lets attached segments into core dumps, if those of the kernel would be there. A program that sets its
/// filter later has it as it wants.
pub fn hold_segments() {
    if !LOOKED.load(Relaxed) && !LOOKED.swap(true, Relaxed) {
        extend_filter();
    }
}

#[cold]
fn extend_filter() -> Option<()> {
    let mut buffer = [0; 32];
    let text = core::str::from_utf8(raw::read_file(FILTER, &mut buffer)?).ok()?;
    let filter = u32::from_str_radix(text.trim(), 16).ok()?;
    if filter & (ANONYMOUS_SHARED | FILES_SHARED) != ANONYMOUS_SHARED {
        return None;
    }
    let mut text = Text::<16>::new();
    write!(text, "{:#x}", filter | FILES_SHARED).ok()?;
    raw::write_file(FILTER, libc::O_WRONLY, text.bytes());
    Some(())
}
