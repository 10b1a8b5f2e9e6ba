//! libc's functions that open files: what ipcs(1), lsipc(1) and programs read of IPC objects and limits in
//! `/proc` is answered for the pool. Where only some keys go to the pool, its objects are listed behind the
//! kernel's, and the limits are the kernel's.
//!
//! libc opens the file first. So a path that can't be read is its business, and another file than these costs
//! a look at the few bytes that its path has in common with theirs. Then a file of memory takes the place of
//! the kernel's at the descriptor. If that can't be, the call fails like any other on the pool.
//!
//! libc's functions are looked up when the library is loaded: the loader's lock, which a look-up takes, must
//! not be met in `open`, nor must the program's `dlerror` be lost there.

use crate::calls::proc_files::{File, COMMON};
use crate::names::next::Next;
use crate::pools::by_name::largest_file;
use crate::pools::caller::caller;
use crate::process::config::config;
use crate::process::raw::syscall;
use crate::thread::errno::{self, from_kernel, guard};
use core::ffi::{c_char, c_int, c_uint, CStr};
use core::fmt::{self, Write};
use core::ptr::null_mut;
use libc::FILE;
use vshmem_ipc::Errno;
use vshmem_transport::Text;

/// Looks libc's functions up.
pub fn on_load() {
    for next in
        [&OPEN, &OPEN64, &OPENAT, &OPENAT64, &OPEN_2, &OPEN64_2, &OPENAT_2, &OPENAT64_2, &FOPEN, &FOPEN64]
    {
        next.address();
    }
}

/// `open` and its kind: `next` has opened the path, or failed. The descriptor that the program gets.
#[inline(always)]
fn opened(path: *const c_char, flags: c_int, fd: c_int) -> c_int {
    // SAFETY: the kernel has read the path, since it has found the file.
    if fd < 0 || !unsafe { may_be_ours(path) } {
        return fd;
    }
    match answer(path, flags, fd) {
        -1 => {
            close(fd);
            -1
        }
        fd => fd,
    }
}

fn close(fd: c_int) {
    // SAFETY: a descriptor of ours, or one that was opened for the program, which does not know it.
    unsafe { syscall!(libc::SYS_close, fd) };
}

/// Whether a path begins as those of the files do.
///
/// # Safety
/// `path` is a string.
#[inline(always)]
unsafe fn may_be_ours(path: *const c_char) -> bool {
    // SAFETY: the comparison ends at the first byte that differs, at the string's end at the latest.
    COMMON.iter().enumerate().all(|(at, byte)| unsafe { *path.add(at) } as u8 == *byte)
}

/// Puts the pool's answer in place of the kernel's at the descriptor, if the path is of such a file, and
/// returns it; -1 and errno if that can't be.
#[cold]
fn answer(path: *const c_char, flags: c_int, fd: c_int) -> c_int {
    const READ: c_int = libc::O_RDONLY;
    let changes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_PATH | libc::O_DIRECTORY;
    // SAFETY: as in `opened`.
    let file = File::named(unsafe { CStr::from_ptr(path) }.to_bytes());
    let Some(file) = file.filter(|_| flags & changes == READ && config().takes_any()) else { return fd };
    if matches!(file, File::Limit(_)) && !config().takes_all() {
        return fd;
    }
    let before = errno::get();
    let answered = guard("open", || replace(file, flags, fd));
    if answered >= 0 {
        errno::set(before);
    }
    answered
}

/// Gives a descriptor, by which the kernel's file was opened with these flags, what the file says of the
/// pool.
fn replace(file: File, flags: c_int, fd: c_int) -> Result<c_int, Errno> {
    let caller = caller()?;
    let mut sheet = Sheet::new()?;
    let begun = match config().takes_all() {
        true => file.write_head(&mut sheet),
        false => sheet.copy(fd),
    };
    let written = begun.and_then(|()| file.write_body(&caller, &mut sheet)).and_then(|()| sheet.flush());
    let failed = if caller.ctx.budget.is_spent() { Errno::EIDRM } else { sheet.error };
    caller.unless_revoked(written.map_err(|_| failed))?;
    sheet.take_place_of(fd, flags)?;
    Ok(fd)
}

/// A file of memory, which is written some bytes at a time, and read from its beginning.
struct Sheet {
    fd: c_int,
    written: usize,
    used: usize,
    bytes: [u8; 1024],
    /// The process's limit on the length of files: beyond that, a write is a signal.
    longest: u64,
    /// Why it could not be written.
    error: Errno,
}

impl Sheet {
    fn new() -> Result<Sheet, Errno> {
        /// `MFD_NOEXEC_SEAL`, without which systems may refuse it (vm.memfd_noexec), since Linux 6.3.
        const NOT_EXECUTED: c_uint = 8;
        let make = |flags: c_uint| {
            // SAFETY: a string that the kernel reads.
            from_kernel(unsafe { syscall!(libc::SYS_memfd_create, c"sysvipc".as_ptr(), flags) })
        };
        let made = match make(libc::MFD_CLOEXEC | NOT_EXECUTED) {
            Err(Errno::EINVAL) => make(libc::MFD_CLOEXEC),
            made => made,
        };
        let (longest, error) = (largest_file(), Errno(libc::EIO));
        Ok(Sheet { fd: made? as c_int, written: 0, used: 0, bytes: [0; 1024], longest, error })
    }

    fn flush(&mut self) -> fmt::Result {
        let mut from = 0;
        while from < self.used {
            let (start, left) = (self.bytes[from..].as_ptr(), self.used - from);
            if (self.written + left) as u64 > self.longest {
                self.error = Errno(libc::EFBIG);
                return Err(fmt::Error);
            }
            // SAFETY: bytes that the kernel reads. The position of the descriptor stays at the beginning.
            match from_kernel(unsafe { syscall!(libc::SYS_pwrite64, self.fd, start, left, self.written) }) {
                Ok(done) => {
                    from += done as usize;
                    self.written += done as usize;
                }
                Err(Errno::EINTR) => {}
                Err(error) => return self.fail(error),
            }
        }
        self.used = 0;
        Ok(())
    }

    fn fail(&mut self, error: Errno) -> fmt::Result {
        self.error = error;
        Err(fmt::Error)
    }

    /// Copies all that a descriptor has to be read.
    fn copy(&mut self, from: c_int) -> fmt::Result {
        loop {
            self.flush()?;
            let (start, room) = (self.bytes.as_mut_ptr(), self.bytes.len());
            // SAFETY: room that the kernel may fill.
            match from_kernel(unsafe { syscall!(libc::SYS_read, from, start, room) }) {
                Ok(0) => return Ok(()),
                Ok(done) => self.used = done as usize,
                Err(Errno::EINTR) => {}
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Takes the place of what another descriptor was opened for with these flags, to be read alone. Where
    /// there is no `/proc` any more to open it anew, it could be written as well.
    fn take_place_of(&self, fd: c_int, flags: c_int) -> Result<(), Errno> {
        let mut path = Text::<32>::new();
        let _ = write!(path, "/proc/self/fd/{}", self.fd);
        let again = libc::O_RDONLY | libc::O_CLOEXEC | flags & libc::O_NONBLOCK;
        // SAFETY: a string that the kernel reads.
        let read_only =
            from_kernel(unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path.c_str().as_ptr(), again) });
        let source = read_only.as_ref().map_or(self.fd, |read_only| *read_only as c_int);
        // SAFETY: the program does not know either descriptor yet.
        let placed = from_kernel(unsafe { syscall!(libc::SYS_dup3, source, fd, flags & libc::O_CLOEXEC) });
        if let Ok(read_only) = read_only {
            close(read_only as c_int);
        }
        placed.map(drop)
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        close(self.fd);
    }
}

impl Write for Sheet {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut text = text.as_bytes();
        while !text.is_empty() {
            if self.used == self.bytes.len() {
                self.flush()?;
            }
            let (now, later) = text.split_at(text.len().min(self.bytes.len() - self.used));
            self.bytes[self.used..][..now.len()].copy_from_slice(now);
            self.used += now.len();
            text = later;
        }
        Ok(())
    }
}

macro_rules! opens {
    ($($(#[$doc:meta])* $name:ident, $next:ident($($before:ident: $type:ty),*; $($mode:ident)?);)+) => {$(
        static $next: Next = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => Next::new(name),
            Err(_) => panic!("a name"),
        };

        $(#[$doc])*
        ///
        /// C declares those with a mode with variable arguments; on the machines that we know, it lies where
        /// a named one does.
        ///
        /// # Safety
        /// `path` is a string; an address that can't be read is EFAULT.
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name(
            $($before: $type,)* path: *const c_char, flags: c_int $(, $mode: c_uint)?
        ) -> c_int {
            type Real =
                unsafe extern "C-unwind" fn($($type,)* *const c_char, c_int $(, opens!(@mode $mode))?) -> c_int;
            // SAFETY: libc's function of that name, which has these arguments.
            let real: Real = unsafe { core::mem::transmute($next.address()) };
            // SAFETY: as the caller vouches.
            opened(path, flags, unsafe { real($($before,)* path, flags $(, $mode)?) })
        }
    )+};
    (@mode $mode:ident) => { c_uint };
}

opens! {
    /// open(2).
    open, OPEN(; mode);
    /// open(2) with large files.
    open64, OPEN64(; mode);
    /// openat(2).
    openat, OPENAT(directory: c_int; mode);
    /// openat(2) with large files.
    openat64, OPENAT64(directory: c_int; mode);
    /// open(2) without a mode, of programs that are compiled with `_FORTIFY_SOURCE`.
    __open_2, OPEN_2(;);
    /// The same with large files.
    __open64_2, OPEN64_2(;);
    /// openat(2) without a mode, of programs that are compiled with `_FORTIFY_SOURCE`.
    __openat_2, OPENAT_2(directory: c_int;);
    /// The same with large files.
    __openat64_2, OPENAT64_2(directory: c_int;);
}

type Fopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;

static FOPEN: Next = Next::new(c"fopen");
static FOPEN64: Next = Next::new(c"fopen64");

/// fopen(3).
///
/// # Safety
/// `path` and `mode` are strings.
#[no_mangle]
pub unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller vouches.
    unsafe { stream(&FOPEN, path, mode) }
}

/// fopen(3) with large files.
///
/// # Safety
/// `path` and `mode` are strings.
#[no_mangle]
pub unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller vouches.
    unsafe { stream(&FOPEN64, path, mode) }
}

/// A stream that `next` opens; its descriptor, from which nothing was read yet, may get another file.
unsafe fn stream(next: &Next, path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: libc's function of that name, which has these arguments.
    let real: Fopen = unsafe { core::mem::transmute(next.address()) };
    // SAFETY: as the caller vouches.
    let stream = unsafe { real(path, mode) };
    // SAFETY: the kernel has read the path, since it has found the file.
    if stream.is_null() || !unsafe { may_be_ours(path) } {
        return stream;
    }
    // SAFETY: as the caller vouches. A comma begins what is no letter of the mode.
    let words = unsafe { CStr::from_ptr(mode) }.to_bytes().split(|byte| *byte == b',').next();
    let words = words.unwrap_or_default();
    if words.first() != Some(&b'r') || words.contains(&b'+') {
        return stream;
    }
    let flags = if words.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    // SAFETY: a stream that has just been opened, and that the program does not know.
    unsafe {
        if answer(path, flags, libc::fileno(stream)) < 0 {
            let why = errno::get();
            libc::fclose(stream);
            errno::set(why);
            return null_mut();
        }
    }
    stream
}
