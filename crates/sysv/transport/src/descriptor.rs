//! The descriptor of a pool's file: kept out of the program's way, never trusted, opened again when lost.
//!
//! A program may close every descriptor it finds, and the number may then belong to something else. So before
//! each use the number is checked to be an open file with the pool's device and inode, which no other file
//! can have while the pool is mapped. A number that isn't ours any more is left alone.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::pool_ref::Path;
use crate::sys::{self, Errno};
use crate::text::Text;

pub(crate) use crate::sys::Owned;

/// The lowest number that is kept: programs count on getting lower ones, and shells use them by number.
const LOWEST: u64 = 10;
/// Floors are not raised with the limit beyond this one: the kernel's table grows with the highest number,
/// and every `fork` copies it.
const LARGEST_USEFUL_LIMIT: u64 = 1024;
/// The number that says that no descriptor is kept.
const NONE: i32 = -1;

/// Opening a pool's file: never takes a terminal, never waits for the other end of a pipe.
pub(crate) const OPEN_FLAGS: i32 = libc::O_RDWR | WITHOUT_WAITING;
const WITHOUT_WAITING: i32 = libc::O_NOCTTY | libc::O_NONBLOCK;

/// The identity of a file among all that exist at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// The number of the device that a device file stands for.
    stands_for: u64,
}

impl Identity {
    /// The identity of the file that this is the status of.
    pub fn of(stat: &libc::stat) -> Identity {
        Identity { device: stat.st_dev, inode: stat.st_ino, stands_for: stat.st_rdev }
    }

    /// The minor number of the device that it stands for.
    pub fn minor(self) -> u32 {
        libc::minor(self.stands_for)
    }

    /// Whether `fd` is open on this file.
    fn is(self, fd: i32) -> bool {
        fd >= 0 && sys::fstat(fd).is_ok_and(|stat| Identity::of(&stat) == self)
    }
}

/// A descriptor for one use: the kept one, or one that was opened for the occasion.
#[derive(Debug)]
pub(crate) enum Borrowed {
    /// The kept descriptor.
    Kept(i32),
    /// Opened for this use, as no number high enough was free.
    Temporary(Owned),
}

impl Borrowed {
    /// The number.
    pub fn fd(&self) -> i32 {
        match self {
            Borrowed::Kept(fd) => *fd,
            Borrowed::Temporary(owned) => owned.fd(),
        }
    }
}

/// The descriptor of a pool's file.
#[derive(Debug)]
pub(crate) struct Descriptor {
    number: AtomicI32,
    identity: Identity,
    path: Path,
}

impl Descriptor {
    /// Keeps `fd`, which is open on the file with this identity, under a high number.
    pub fn keep(fd: &Owned, identity: Identity, path: &Path) -> Descriptor {
        let number = AtomicI32::new(move_high(fd.fd()).unwrap_or(NONE));
        Descriptor { number, identity, path: path.clone() }
    }

    /// The path by which the pool's file was opened.
    pub fn path(&self) -> &CStr {
        self.path.c_str()
    }

    /// A descriptor that is certainly open on the pool's file, if one can be had.
    pub fn get(&self) -> Option<Borrowed> {
        let number = self.number.load(Ordering::Acquire);
        if self.identity.is(number) {
            return Some(Borrowed::Kept(number));
        }
        self.replace(number)
    }

    /// The kept number, which may be open on anything, and the file's identity: for callers that have the
    /// kernel check it.
    pub fn unchecked(&self) -> (i32, Identity) {
        (self.number.load(Ordering::Acquire), self.identity)
    }

    /// Whether `borrowed` is still open on the pool's file; another thread may have closed it in the
    /// meantime.
    pub fn is_still(&self, borrowed: &Borrowed) -> bool {
        self.is_same(borrowed.fd())
    }

    /// Whether a number is open on the pool's file.
    pub fn is_same(&self, fd: i32) -> bool {
        self.identity.is(fd)
    }

    /// Opens the pool's file again and keeps it, unless another thread was faster, in place of a lost number.
    fn replace(&self, lost: i32) -> Option<Borrowed> {
        let fresh = self.open_path(OPEN_FLAGS)?;
        let Some(high) = move_high(fresh.fd()) else {
            return Some(Borrowed::Temporary(fresh));
        };
        match self.number.compare_exchange(lost, high, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(Borrowed::Kept(high)),
            Err(_) => Some(Borrowed::Temporary(Owned::new(high))),
        }
    }

    /// Opens the pool's file anew: a description that shares nothing with the kept one, above all no locks.
    pub fn open_anew(&self) -> Option<Owned> {
        self.open(OPEN_FLAGS)
    }

    /// Opens the pool's file anew for reading alone: memory that is mapped by it can't be made writable
    /// later.
    pub fn open_to_read(&self) -> Option<Owned> {
        self.open(libc::O_RDONLY | WITHOUT_WAITING)
    }

    fn open(&self, flags: i32) -> Option<Owned> {
        let number = self.number.load(Ordering::Acquire);
        if self.identity.is(number) {
            if let Some(owned) = self.open_through_proc(number, flags) {
                return Some(owned);
            }
        }
        self.open_path(flags)
    }

    /// Opens what a descriptor of this process is open on; works for files whose path leads elsewhere by now.
    fn open_through_proc(&self, fd: i32, flags: i32) -> Option<Owned> {
        let mut link = Text::<32>::new();
        link.push(b"/proc/self/fd/")?;
        link.push_decimal(u64::try_from(fd).ok()?)?;
        self.verified(sys::open(link.c_str(), flags, 0))
    }

    /// Opens the path by which the pool was found.
    fn open_path(&self, flags: i32) -> Option<Owned> {
        self.verified(sys::open(self.path.c_str(), flags, 0))
    }

    /// The file that was opened, if it is the pool's.
    fn verified(&self, opened: Result<i32, Errno>) -> Option<Owned> {
        let owned = Owned::new(opened.ok()?);
        self.identity.is(owned.fd()).then_some(owned)
    }

    /// Closes the kept descriptor, if it is still ours.
    pub fn close(&self) {
        let number = self.number.swap(NONE, Ordering::AcqRel);
        if self.identity.is(number) {
            sys::close(number);
        }
    }
}

/// Duplicates a descriptor to a high number, if one is free.
pub(crate) fn move_high(fd: i32) -> Option<i32> {
    floors(sys::descriptor_limit()).into_iter().find_map(|floor| sys::duplicate(fd, floor).ok())
}

/// The numbers from which on a free one is looked for under a limit: near the top first, then further down.
fn floors(limit: u64) -> [i32; 4] {
    let top = limit.min(LARGEST_USEFUL_LIMIT);
    // At most 1024, so the conversion keeps the value.
    [top * 15 / 16, top * 3 / 4, top / 2, top / 4].map(|floor| floor.max(LOWEST) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> (Owned, Descriptor) {
        let fd = Owned::new(sys::memory_file(c"descriptor-test").expect("a memory file"));
        let identity = Identity::of(&sys::fstat(fd.fd()).expect("its status"));
        let descriptor = Descriptor::keep(&fd, identity, &Path::new());
        (fd, descriptor)
    }

    #[test]
    fn floors_are_high_but_bounded() {
        assert_eq!(floors(u64::MAX), [960, 768, 512, 256]);
        assert_eq!(floors(1024)[0], 960);
        assert_eq!(floors(256), [240, 192, 128, 64]);
        assert_eq!(floors(4), [10; 4]);
        assert_eq!(floors(0), [10; 4]);
    }

    #[test]
    fn keeps_a_high_number_that_exec_closes() {
        let (_fd, descriptor) = scratch();
        let borrowed = descriptor.get().expect("kept");
        assert!(borrowed.fd() >= floors(sys::descriptor_limit())[0]);
        // SAFETY: a query.
        let flags = unsafe { libc::fcntl(borrowed.fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        descriptor.close();
    }

    #[test]
    fn a_number_that_was_reused_is_left_alone() {
        let (_fd, descriptor) = scratch();
        let number = descriptor.get().expect("kept").fd();
        let other = sys::memory_file(c"descriptor-other").expect("a memory file");
        // SAFETY: replaces a descriptor that this test owns.
        assert_eq!(unsafe { libc::dup2(other, number) }, number);
        assert!(descriptor.get().is_none(), "the path is empty, so nothing can be had");
        descriptor.close();
        assert!(sys::fstat(number).is_ok(), "closed a descriptor that was not ours");
        sys::close(number);
        sys::close(other);
    }

    #[test]
    fn opens_a_description_of_its_own() {
        let (_fd, descriptor) = scratch();
        let anew = descriptor.open_anew().expect("/proc is there");
        let kept = descriptor.get().expect("kept");
        assert_eq!(sys::seek(anew.fd(), 7, libc::SEEK_SET), Ok(7));
        assert_eq!(sys::seek(kept.fd(), 0, libc::SEEK_CUR), Ok(0));
        descriptor.close();
    }
}
