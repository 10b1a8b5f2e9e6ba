//! Memory for a pool in the middle of a desert: whoever steps out of it is killed.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::null_mut;
use vshmem_ipc::Pool;
use vshmem_pool::Mem;

/// Bytes on either side that nobody may touch.
const DESERT: usize = 1 << 32;

/// Zeroed memory of `len` bytes, for good.
pub fn oasis(len: usize) -> Mem {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping, of which the middle is opened. It stays for the life of the process, and is used as a pool alone.
    unsafe {
        let all = libc::mmap(null_mut(), len + 2 * DESERT, libc::PROT_NONE, how, -1, 0);
        assert_ne!(all, libc::MAP_FAILED, "no address space for a pool");
        let base = all.cast::<u8>().add(DESERT);
        let open = libc::mprotect(base.cast(), len, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(open, 0, "no memory for a pool");
        Mem::new(base, len)
    }
}

/// The words of a pool.
pub fn image(pool: &Pool) -> Vec<u64> {
    let mem = pool.mem();
    let words = mem.len() as u64 / 8;
    let word = |i| {
        mem.word(i * 8)
            .map_or(0, |w| w.load(std::sync::atomic::Ordering::Relaxed))
    };
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
        let base = libc::mmap(
            null_mut(),
            len,
            rights,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(base, libc::MAP_FAILED, "no memory for a pool");
        Mem::new(base.cast(), len)
    }
}
