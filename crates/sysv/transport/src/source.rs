//! Sources: they tell every process whether something of a process's attachments is still mapped, in any
//! process.
//!
//! A process maps what it attaches by an open file description of its own, the *source*, which holds a read
//! lock on one byte of the pool's file, far behind its end, that nobody else has. Each mapping holds the
//! description, whatever made it: `fork` in all its kinds, `mremap`, a cut by `munmap`. So the lock is there
//! as long as a page is mapped anywhere, or a process has the descriptor; and `exec`, the end of a process
//! and `MADV_DONTFORK` need no word either. It can be seen from every PID, user and mount namespace that has
//! the file.

use crate::descriptor::{move_high, Borrowed, Descriptor, Owned};
use crate::liveness::is_held;
use crate::sys;

/// The first of the bytes that sources lock.
pub const SOURCES_BASE: u64 = 1 << 62;

/// Bits of a source's number. All file systems know offsets of this length.
const BITS: u32 = 43;

/// A source of this process. Plain data: dropping the value closes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    descriptor: i32,
    number: u64,
    /// The description's position is the number, by which it is known from all others.
    is_marked: bool,
}

impl Source {
    /// Opens a source. `None`: the pool's file can't be opened any more, or no descriptor is free.
    pub(crate) fn open(descriptor: &Descriptor) -> Option<Source> {
        let file = descriptor.open_anew()?;
        let number = (sys::random() >> (u64::BITS - BITS)).max(1);
        lock(&file, number)?;
        let fd = move_high(file.fd())?;
        let mark = |whence, to| sys::seek(fd, to, whence) == Ok(number);
        let is_marked = mark(libc::SEEK_SET, number) && mark(libc::SEEK_CUR, 0);
        Some(Source { descriptor: fd, number, is_marked })
    }

    /// The number that tells the source from others, not 0. Less than 2^43.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A descriptor of it, or one that allows no more than reading later and holds the same lock. `None`: it
    /// was closed.
    pub(crate) fn borrow(&self, descriptor: &Descriptor, prot: i32) -> Option<Borrowed> {
        if prot & libc::PROT_WRITE == 0 {
            let reader = descriptor.open_to_read();
            if let Some(file) = reader.filter(|file| lock(file, self.number).is_some()) {
                return Some(Borrowed::Temporary(file));
            }
        }
        self.is_open(descriptor).then_some(Borrowed::Kept(self.descriptor))
    }

    /// Whether the descriptor is the source's still: a program closes what it finds.
    pub(crate) fn is_open(&self, descriptor: &Descriptor) -> bool {
        if self.is_marked {
            return sys::seek(self.descriptor, 0, libc::SEEK_CUR) == Ok(self.number);
        }
        // Another description of the pool's file is made one of this source.
        descriptor.is_same(self.descriptor) && {
            let mut request = request(libc::F_RDLCK, self.number);
            sys::lock(self.descriptor, libc::F_OFD_SETLK, &mut request).is_ok()
        }
    }

    /// Closes the descriptor, so that only mappings keep the source.
    pub(crate) fn close(&self, descriptor: &Descriptor) {
        if descriptor.is_same(self.descriptor) && self.is_open(descriptor) {
            sys::close(self.descriptor);
        }
    }
}

/// Whether anything is mapped by a source, or has it open. `None` if that can't be told.
pub(crate) fn is_mapped(descriptor: &Descriptor, number: u64) -> Option<bool> {
    is_held(descriptor, request(libc::F_WRLCK, number))
}

/// Takes a source's lock, as one of several.
fn lock(file: &Owned, number: u64) -> Option<()> {
    sys::lock(file.fd(), libc::F_OFD_SETLK, &mut request(libc::F_RDLCK, number)).ok()
}

fn request(kind: i32, number: u64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: (SOURCES_BASE + number) as i64,
        l_len: 1,
        // Demanded to be zero for locks of a description.
        l_pid: 0,
    }
}
