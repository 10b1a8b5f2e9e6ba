//! System calls, made directly.
//!
//! The library lives inside programs that it knows nothing about. libc's wrappers may be replaced there
//! (fakeroot answers `fstat` by messages over the very calls that we implement, memory hooks replace `mmap`),
//! they are points of cancellation, and they write `errno`. So nothing here goes through libc: errors are
//! returned as values, and `errno` is never touched.

mod aside;
pub(crate) mod asleep;
mod clock;
pub(crate) mod memcheck;
mod memory;
mod owned;
mod raw;
mod truncate;

use core::ffi::CStr;
use core::mem::MaybeUninit;

pub use aside::map_private;
pub(crate) use aside::{map_aside, map_aside_briefly, map_unlocked};
pub use clock::{seconds, time};
pub(crate) use memory::{advise, futex_works, map, protect, relocate, remap_again, unlock, unmap};
pub(crate) use owned::{close, Owned};
use raw::again;
pub use raw::raw;
pub(crate) use raw::{call, outcome, Errno, Outcome};
pub(crate) use truncate::{longest_file, truncate};

/// Opens a path, relative to the working directory where it is relative.
pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> Outcome<i32> {
    open_at(libc::AT_FDCWD, path, flags, mode)
}

/// Opens a path relative to an open directory.
pub(crate) fn open_at(dir: i32, path: &CStr, flags: i32, mode: u32) -> Outcome<i32> {
    // A signal can interrupt an open on some file systems; that is nobody's error.
    again(|| {
        // SAFETY: `path` is a terminated string.
        unsafe { call!(SYS_openat, dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) }
    })
    .map(|fd| fd as i32)
}

/// The status of an open file.
pub(crate) fn fstat(fd: i32) -> Outcome<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills in one `struct stat`, which has libc's layout on these architectures.
    unsafe { call!(SYS_fstat, fd, stat.as_mut_ptr()) }?;
    // SAFETY: filled in by the kernel; all zeros is valid too.
    Ok(unsafe { stat.assume_init() })
}

/// `cachestat`, which has one number on all architectures; not every libc knows it.
const SYS_CACHESTAT: i64 = 451;

/// Counts the pages of a range of an open file that have memory, or are swapped out.
pub(crate) fn cached_pages(fd: i32, offset: u64, len: u64) -> Outcome<u64> {
    let range = [offset, len];
    // In the cache, dirty, in write-back, evicted (of shared memory: swapped out), evicted lately.
    let mut pages = [0u64; 5];
    // SAFETY: two words are read, and five are written.
    outcome(unsafe {
        raw(SYS_CACHESTAT, [fd as usize, range.as_ptr() as usize, pages.as_mut_ptr() as usize, 0, 0, 0])
    })?;
    Ok(pages[0].saturating_add(pages[3]))
}

/// The status of a path, not following a symbolic link.
pub(crate) fn lstat_at(dir: i32, path: &CStr) -> Outcome<libc::stat> {
    stat_at(dir, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// The status of a path.
pub(crate) fn stat_at(dir: i32, path: &CStr, flags: i32) -> Outcome<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: as in `fstat`; `path` is a terminated string.
    unsafe { call!(SYS_newfstatat, dir, path.as_ptr(), stat.as_mut_ptr(), flags) }?;
    // SAFETY: filled in by the kernel; all zeros is valid too.
    Ok(unsafe { stat.assume_init() })
}

/// The status of the file system that an open file is on.
pub(crate) fn fstatfs(fd: i32) -> Outcome<libc::statfs> {
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel fills in one `struct statfs`, which has libc's layout on these architectures.
    unsafe { call!(SYS_fstatfs, fd, stat.as_mut_ptr()) }?;
    // SAFETY: filled in by the kernel; all zeros is valid too.
    Ok(unsafe { stat.assume_init() })
}

/// Duplicates a descriptor to the first free number from `floor` on.
pub(crate) fn duplicate(fd: i32, floor: i32) -> Outcome<i32> {
    // SAFETY: no memory is involved.
    unsafe { call!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, floor) }.map(|fd| fd as i32)
}

/// A lock request on an open file description: `F_OFD_SETLK` or `F_OFD_GETLK`.
pub(crate) fn lock(fd: i32, command: i32, lock: &mut libc::flock) -> Outcome<()> {
    again(|| {
        // SAFETY: the kernel reads and writes one `struct flock`.
        unsafe { call!(SYS_fcntl, fd, command, lock as *mut libc::flock) }
    })
    .map(|_| ())
}

/// Reserves room in a file, or punches a hole into it. Interrupted by signals, it fails with `EINTR`.
pub(crate) fn allocate(fd: i32, mode: i32, offset: u64, len: u64) -> Outcome<()> {
    // SAFETY: no memory of the caller is passed.
    unsafe { call!(SYS_fallocate, fd, mode, offset, len) }.map(|_| ())
}

/// Sets the permissions of an open file, whatever the umask is.
pub(crate) fn set_mode(fd: i32, mode: u32) -> Outcome<()> {
    // SAFETY: no memory of the caller is passed.
    unsafe { call!(SYS_fchmod, fd, mode) }.map(|_| ())
}

/// Sets the time of an open file's last change: seconds and nanoseconds. Only its owner may.
pub(crate) fn set_change(fd: i32, seconds: i64, nanoseconds: i64) -> Outcome<()> {
    let times = [[0, libc::UTIME_OMIT], [seconds, nanoseconds]];
    // SAFETY: without a path; the kernel reads two `struct timespec`.
    unsafe { call!(SYS_utimensat, fd, 0, times.as_ptr()) }.map(|_| ())
}

/// A random number, of as much entropy as there is at the time.
pub(crate) fn random() -> u64 {
    let mut number = 0u64;
    for flags in [libc::GRND_INSECURE, libc::GRND_NONBLOCK] {
        // SAFETY: the kernel writes at most eight bytes into the number.
        let got = unsafe { call!(SYS_getrandom, &raw mut number, 8, flags) };
        if got == Ok(8) {
            break;
        }
    }
    number
}

/// Random bytes of full entropy; `None` if the kernel has too little yet, or gives none.
pub(crate) fn random_bytes() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: the kernel writes at most so many bytes there.
    let got = unsafe { call!(SYS_getrandom, &raw mut bytes, bytes.len(), libc::GRND_NONBLOCK) };
    (got == Ok(bytes.len())).then_some(bytes)
}

/// Links a file under a further name in a directory.
pub(crate) fn link(from_dir: i32, from: &CStr, to_dir: i32, to: &CStr, flags: i32) -> Outcome<()> {
    // SAFETY: both are terminated strings.
    unsafe { call!(SYS_linkat, from_dir, from.as_ptr(), to_dir, to.as_ptr(), flags) }.map(|_| ())
}

/// Gives a file in a directory another name there, which must be free.
pub(crate) fn rename_new(directory: i32, from: &CStr, to: &CStr) -> Outcome<()> {
    // SAFETY: both are terminated strings.
    unsafe { call!(SYS_renameat2, directory, from.as_ptr(), directory, to.as_ptr(), libc::RENAME_NOREPLACE) }
        .map(|_| ())
}

/// Makes a directory.
pub(crate) fn make_directory(path: &CStr, mode: u32) -> Outcome<()> {
    // SAFETY: `path` is a terminated string.
    unsafe { call!(SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), mode) }.map(|_| ())
}

/// Removes a name in a directory.
pub(crate) fn unlink(directory: i32, name: &CStr) -> Outcome<()> {
    // SAFETY: `name` is a terminated string.
    unsafe { call!(SYS_unlinkat, directory, name.as_ptr()) }.map(|_| ())
}

/// Makes an unnamed file in memory.
pub(crate) fn memory_file(name: &CStr) -> Outcome<i32> {
    // SAFETY: `name` is a terminated string.
    unsafe { call!(SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) }.map(|fd| fd as i32)
}

/// A call on a device that sleeps; besides the result, whether a signal handler ran.
///
/// # Safety
/// As [`control`].
pub(crate) unsafe fn control_asleep<T>(fd: i32, request: u32, argument: &mut T) -> (Outcome<usize>, bool) {
    let argument = argument as *mut T as usize;
    // SAFETY: the caller vouches for the argument.
    let awake =
        unsafe { asleep::asleep(libc::SYS_ioctl, [fd as usize, request as usize, argument, 0, 0, 0]) };
    (outcome(awake.result), awake.handled)
}

/// A call on a device. Interrupted by a signal, it fails with `EINTR`.
///
/// # Safety
/// `argument` must be what this request reads and writes.
pub(crate) unsafe fn control<T>(fd: i32, request: u32, argument: &mut T) -> Outcome<usize> {
    let argument = argument as *mut T as usize;
    // SAFETY: the caller vouches for the argument. A file that does not know the request refuses it.
    unsafe { call!(SYS_ioctl, fd, request, argument) }
}

/// Moves a file's position, or finds data and holes; returns the new position.
pub(crate) fn seek(fd: i32, offset: u64, whence: i32) -> Outcome<u64> {
    // SAFETY: no memory of the caller is passed.
    unsafe { call!(SYS_lseek, fd, offset, whence) }.map(|at| at as u64)
}

/// Reads into a buffer; returns how many bytes came.
pub(crate) fn read(fd: i32, into: &mut [u8]) -> Outcome<usize> {
    again(|| {
        // SAFETY: the kernel writes at most `into.len()` bytes there.
        unsafe { call!(SYS_read, fd, into.as_mut_ptr(), into.len()) }
    })
}

/// Reads into a buffer from `offset` on, wherever the file's position is; returns how many bytes came.
pub(crate) fn read_at(fd: i32, into: &mut [u8], offset: u64) -> Outcome<usize> {
    again(|| {
        // SAFETY: the kernel writes at most `into.len()` bytes there.
        unsafe { call!(SYS_pread64, fd, into.as_mut_ptr(), into.len(), offset) }
    })
}

/// Writes a buffer from `offset` on; returns how many bytes went.
pub(crate) fn write_at(fd: i32, from: &[u8], offset: u64) -> Outcome<usize> {
    again(|| {
        // SAFETY: the kernel reads at most `from.len()` bytes there.
        unsafe { call!(SYS_pwrite64, fd, from.as_ptr(), from.len(), offset) }
    })
}

/// Reads the target of a symbolic link, as far as that fits into the buffer.
pub(crate) fn read_link<'b>(path: &CStr, buffer: &'b mut [u8]) -> Outcome<&'b [u8]> {
    // SAFETY: the path is a C string, and the kernel writes at most `buffer.len()` bytes there.
    let len =
        unsafe { call!(SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer.as_mut_ptr(), buffer.len()) }?;
    Ok(buffer.get(..len).unwrap_or(&[]))
}

/// Reads a file from its position on until its end, or until the buffer is full; returns what came.
pub(crate) fn read_all(fd: i32, buffer: &mut [u8]) -> Outcome<&[u8]> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match read(fd, room)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(buffer.get(..filled).unwrap_or(&[]))
}

/// Reads a small file whole; `None` if it can't be opened or read, or fills `buffer`. Its descriptor is
/// closed again.
pub fn read_file<'b>(path: &CStr, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let file = Owned::new(open(path, libc::O_RDONLY, 0).ok()?);
    let room = buffer.len();
    read_all(file.fd(), buffer).ok().filter(|all| all.len() < room)
}

/// Writes a buffer; returns how many bytes went.
pub(crate) fn write(fd: i32, from: &[u8]) -> Outcome<usize> {
    again(|| {
        // SAFETY: the kernel reads at most `from.len()` bytes there.
        unsafe { call!(SYS_write, fd, from.as_ptr(), from.len()) }
    })
}

/// Reads directory entries (`struct linux_dirent64`); returns how many bytes of them came.
pub(crate) fn read_directory(fd: i32, into: &mut [u8]) -> Outcome<usize> {
    // SAFETY: the kernel writes at most `into.len()` bytes there.
    unsafe { call!(SYS_getdents64, fd, into.as_mut_ptr(), into.len()) }
}

/// Writes the working directory's path with its terminating zero; returns the length with it.
pub(crate) fn working_directory(into: &mut [u8]) -> Outcome<usize> {
    // SAFETY: the kernel writes at most `into.len()` bytes there.
    unsafe { call!(SYS_getcwd, into.as_mut_ptr(), into.len()) }
}

/// The soft limit on descriptor numbers.
pub(crate) fn descriptor_limit() -> u64 {
    limit(libc::RLIMIT_NOFILE).unwrap_or(1024)
}

/// A soft limit of the process, if it can be asked.
fn limit(of: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in one `struct rlimit64`.
    let done = unsafe { call!(SYS_prlimit64, 0, of, 0, &raw mut limit) };
    done.ok().map(|_| limit.rlim_cur)
}

/// The caller's effective user id.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes no argument and can't fail.
    unsafe { raw::syscall!(libc::SYS_geteuid) as u32 }
}

/// The caller's process id.
pub(crate) fn process_id() -> u32 {
    // SAFETY: takes no argument and can't fail.
    unsafe { raw::syscall!(libc::SYS_getpid) as u32 }
}

/// This kernel's name, with zeros behind it.
pub(crate) fn host_name() -> [u8; 65] {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: the kernel fills in one `struct utsname`; all zeros is valid, too.
    let names = unsafe {
        let _ = call!(SYS_uname, names.as_mut_ptr());
        names.assume_init()
    };
    names.nodename.map(|c| c as u8)
}

/// Sleeps for so many nanoseconds, less than a second, or until a signal comes.
pub(crate) fn nap(nanoseconds: i64) {
    let spec = [0, nanoseconds];
    // SAFETY: the kernel reads one `struct timespec`.
    let _ = unsafe { call!(SYS_nanosleep, spec.as_ptr()) };
}

/// The size of a page of memory.
pub(crate) fn page_size() -> u64 {
    // SAFETY: reads the auxiliary vector; neither locks nor allocates.
    match unsafe { libc::getauxval(libc::AT_PAGESZ) } {
        0 => 4096,
        size => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_values_and_leave_errno_alone() {
        // SAFETY: errno is the calling thread's own.
        unsafe { *libc::__errno_location() = 4711 };
        assert_eq!(open(c"/nonexistent/file", libc::O_RDONLY, 0), Err(Errno(libc::ENOENT)));
        assert_eq!(fstat(-1).err(), Some(Errno(libc::EBADF)));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 4711);
    }

    #[test]
    fn a_result_that_is_an_address_is_no_error() {
        // SAFETY: a fresh anonymous mapping.
        let at = unsafe { map(0, 4096, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        let at = at.expect("anonymous memory");
        // SAFETY: mapped above and used by nobody.
        unsafe { unmap(at as usize, 4096) };
    }

    #[test]
    fn agrees_with_libc() {
        // SAFETY: plain queries.
        let (user, pid, page) =
            unsafe { (libc::geteuid(), libc::getpid(), libc::sysconf(libc::_SC_PAGESIZE)) };
        assert_eq!(effective_user(), user);
        assert_eq!(process_id(), pid as u32);
        assert_eq!(page_size(), page as u64);
    }
}
