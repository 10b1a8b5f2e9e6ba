//! Liveness locks: how everybody learns that a process is dead, whatever killed it.
//!
//! A process that uses a pool holds a write lock on one byte of the pool's file, far behind its end. The lock
//! belongs to an open file description of which nothing is left but one mapped page:
//!
//! * it survives a program that closes all its descriptors, as there is none;
//! * `fork` does not copy the page (`MADV_DONTFORK`), so a child does not keep its parent alive;
//! * the kernel drops it with the process image: at exec, exit, or SIGKILL;
//! * it can be seen from every PID, user and mount namespace that has the file.

use core::ffi::c_void;

use crate::descriptor::{Descriptor, Owned};
use crate::sys;

/// The byte that stands for process slot 0. No pool is this long.
pub const LIVENESS_BASE: u64 = 1 << 60;

/// A liveness lock that this process holds. Plain data: dropping the value keeps the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    page: usize,
    len: usize,
}

impl Liveness {
    /// Makes an inherited lock the child's own: its own children won't inherit it. To be called in the child.
    ///
    /// # Safety
    /// The lock must have been claimed for this child by its parent, or lent to it.
    #[inline]
    pub unsafe fn keep_in_child(&self) {
        // SAFETY: the caller vouches that the page was inherited; the advice concerns later forks only.
        let _ = unsafe { sys::advise(self.page, self.len, libc::MADV_DONTFORK) };
    }

    /// Has the next child hold the lock, too: it is free when both have ended. Then both call
    /// [`Liveness::keep_in_child`]. False: that can't be.
    ///
    /// # Safety
    /// As [`Liveness::end`], or an ancestor has lent it.
    pub unsafe fn lend(&self) -> bool {
        // SAFETY: the caller vouches that the page is there; the advice concerns later forks only.
        unsafe { sys::advise(self.page, self.len, libc::MADV_DOFORK) }.is_ok()
    }

    /// Lets go of the process's own lock, so that it counts as dead from now on; or, in the parent, of one
    /// that was claimed for a child, once the child exists or could not be made.
    ///
    /// # Safety
    /// The lock must have been claimed by this very process, not by its parent for itself, and not ended
    /// before: in a child the page does not exist, and something else may be mapped at its address.
    pub unsafe fn end(self) {
        // SAFETY: the caller vouches that the page is still ours.
        unsafe { sys::unmap(self.page, self.len) };
    }

    /// The address at which the page that holds the lock is mapped; nobody may unmap it.
    pub fn page(&self) -> *mut c_void {
        self.page as *mut c_void
    }
}

/// The heir of a lock on its page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heir {
    /// Nobody has it: it ends with this process image.
    Nobody,
    /// The next child gets it too.
    Child,
}

/// Takes the liveness lock of a slot. `None` if somebody holds it, or the file can't be opened anew or
/// mapped.
pub(crate) fn claim(descriptor: &Descriptor, page_size: u64, slot: u32, heir: Heir) -> Option<Liveness> {
    let file = descriptor.open_anew()?;
    let mut request = request(slot);
    sys::lock(file.fd(), libc::F_OFD_SETLK, &mut request).ok()?;
    // Closing the description's last descriptor leaves it, and the lock, to the mapping.
    hold(&file, page_size as usize, heir)
}

/// Maps a page of the description, of what the file is mapped in multiples of.
fn hold(file: &Owned, len: usize, heir: Heir) -> Option<Liveness> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: new mappings, without a fixed address.
    let page = unsafe {
        match heir {
            Heir::Nobody => sys::map_aside(len, libc::PROT_NONE, flags, file.fd(), 0),
            Heir::Child => sys::map_aside_briefly(len, libc::PROT_NONE, flags, file.fd()),
        }
    };
    let page = page.ok()? as usize;
    if heir == Heir::Nobody {
        // SAFETY: the page was mapped above; the advice concerns later forks only.
        if unsafe { sys::advise(page, len, libc::MADV_DONTFORK) }.is_err() {
            // SAFETY: nobody knows of the page.
            unsafe { sys::unmap(page, len) };
            return None;
        }
    }
    Some(Liveness { page, len })
}

/// Whether anybody holds the liveness lock of a slot. `None` if that can't be told.
pub(crate) fn alive(descriptor: &Descriptor, slot: u32) -> Option<bool> {
    is_held(descriptor, request(slot))
}

/// Whether anybody holds a lock that stands in the way of this one. `None` if that can't be told.
pub(crate) fn is_held(descriptor: &Descriptor, mut request: libc::flock) -> Option<bool> {
    // The kept description holds no lock itself; the kernel would not report its own.
    let file = descriptor.get()?;
    sys::lock(file.fd(), libc::F_OFD_GETLK, &mut request).ok()?;
    // A thread that closes what it finds may have put another file in place; then the answer means nothing.
    descriptor.is_still(&file).then_some(request.l_type != libc::F_UNLCK as i16)
}

/// A write lock on the byte of a slot.
fn request(slot: u32) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: (LIVENESS_BASE + u64::from(slot)) as i64,
        l_len: 1,
        // Demanded to be zero for locks of a description.
        l_pid: 0,
    }
}
