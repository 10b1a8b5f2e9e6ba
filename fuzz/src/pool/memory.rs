//! Memory for a pool in the middle of a desert: whoever steps out of it is killed.

use super::written;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr::null_mut;
use vshmem_pool::Mem;

/// Bytes on either side that nobody may touch.
const DESERT: usize = 1 << 32;

/// Zeroed memory of `len` bytes, for good.
pub fn oasis(len: usize) -> Mem {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping, of which the middle is opened. It stays for the life of the process, and is
    // used as a pool alone.
    unsafe {
        let all = libc::mmap(null_mut(), len + 2 * DESERT, libc::PROT_NONE, how, -1, 0);
        assert_ne!(all, libc::MAP_FAILED, "no address space for a pool");
        let base = all.cast::<u8>().add(DESERT);
        let open = libc::mprotect(base.cast(), len, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(open, 0, "no memory for a pool");
        Mem::new(base, len)
    }
}

/// A file of zeros, in which nothing has memory.
pub fn hole(len: usize) -> File {
    // SAFETY: a name that ends; what comes back is a descriptor of ours, or none.
    let fd = unsafe { libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "no memory for a file");
    // SAFETY: fresh, and nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64).expect("a sparse file");
    file
}

/// What a pool was at one moment, which costs as much memory as was written in it.
pub struct Image(File);

impl Image {
    /// Zeros in all of `mem`. Until [`Image::show`], what is written there becomes the image.
    pub fn begin(mem: Mem) -> Image {
        let image = Image(hole(mem.len()));
        image.map(mem, libc::MAP_SHARED);
        image
    }

    /// What is written from now on stays out of the image, and can be forgotten.
    pub fn show(self, mem: Mem) {
        self.map(mem, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
    }

    fn map(&self, mem: Mem, how: i32) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (at, how) = (mem.base().cast(), how | libc::MAP_FIXED);
        // SAFETY: in the place of a pool, which nobody else uses at the moment.
        let at = unsafe { libc::mmap(at, mem.len(), rights, how, self.0.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "no memory for a pool");
    }
}

/// The pool is its image again. Calls `each` before with the words of all pages that were written: it costs
/// as much as these are.
pub fn forget_written(mem: Mem, mut each: impl FnMut(&[u64])) {
    // SAFETY: asks libc, which knows it from the start.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    written::each(mem.base() as u64, mem.len() as u64, page, |from, to| {
        let len = (to - from) as usize;
        // SAFETY: inside of the pool, of which nobody writes to it at the moment.
        each(unsafe { std::slice::from_raw_parts(from as *const u64, len / 8) });
        // SAFETY: a private mapping, whose file's contents appear there.
        let forgot = unsafe { libc::madvise(from as *mut _, len, libc::MADV_DONTNEED) };
        assert_eq!(forgot, 0, "a pool can be made what it was");
    });
}

/// The words of a pool.
pub fn image(mem: Mem) -> Vec<u64> {
    let words = mem.len() as u64 / 8;
    let word = |i| mem.word(i * 8).map_or(0, |w| w.load(std::sync::atomic::Ordering::Relaxed));
    (0..words).map(word).collect()
}

/// Makes the pool what it was.
pub fn restore(mem: Mem, image: &[u64]) {
    assert_eq!(mem.len(), image.len() * 8, "the image is this pool's");
    // SAFETY: as long as the mapping, which nobody else uses at the moment.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), mem.base().cast(), image.len()) };
}

/// The memory of a fresh file, for good.
pub fn of_file(path: &Path, len: usize) -> Mem {
    let mut how = File::options();
    how.read(true).write(true).create(true).truncate(true);
    let file = how.open(path).expect("a file");
    file.set_len(len as u64).expect("room for it");
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping, which stays for the life of the process, and is used as a pool alone.
    unsafe {
        let base = libc::mmap(null_mut(), len, rights, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(base, libc::MAP_FAILED, "no memory for a pool");
        Mem::new(base.cast(), len)
    }
}
