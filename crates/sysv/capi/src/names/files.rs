//! libc's functions that open files: what ipcs(1), lsipc(1) and programs read of IPC objects and limits in
//! `/proc` is answered for the pool. Where only some keys go to the pool, its objects are listed behind the
//! kernel's, and the limits are the kernel's.
//!
//! libc opens the file first. So a path that can't be read is its business, and another file than these costs
//! a look at the few bytes that its path has in common with theirs. Then the descriptor gets a file of memory
//! in place of the kernel's.

use crate::calls::proc_files::{File, COMMON};
use crate::names::next::Next;
use crate::pools::caller::caller;
use crate::process::config::config;
use crate::process::raw::syscall;
use crate::thread::errno::{self, from_kernel, ErrnoGuard};
use core::ffi::{c_char, c_int, c_uint, CStr};
use core::fmt::{self, Write};
use libc::FILE;
use vshmem_ipc::Errno;

/// `open` and its kind: `next` has opened the path, or failed. The descriptor that the program gets.
#[inline(always)]
fn opened(path: *const c_char, flags: c_int, fd: c_int) -> c_int {
    if fd < 0 && errno::get() != libc::ENOENT {
        return fd;
    }
    // SAFETY: the kernel has read the path, since the file was found, or was not there.
    if !unsafe { may_be_ours(path) } {
        return fd;
    }
    answer(path, flags, fd)
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

/// Puts the pool's answer in place of the kernel's, if the path is of such a file. `fd` as it was if not, or
/// if there is no pool.
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
    let errno = ErrnoGuard::now();
    let close_on_exec = flags & libc::O_CLOEXEC;
    match sheet(file, fd, close_on_exec) {
        Ok(made) if fd < 0 => made,
        Ok(made) => {
            // SAFETY: the program does not know `made`, and `fd` has just been opened for it.
            unsafe {
                syscall!(libc::SYS_dup3, made, fd, close_on_exec);
                syscall!(libc::SYS_close, made);
            }
            fd
        }
        Err(_) => {
            drop(errno);
            fd
        }
    }
}

/// A file of memory with what the file says. `kernels`: the kernel's, or negative.
fn sheet(file: File, kernels: c_int, close_on_exec: c_int) -> Result<c_int, Errno> {
    let caller = caller()?;
    let flag = if close_on_exec != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a string that the kernel reads.
    let fd = from_kernel(unsafe { syscall!(libc::SYS_memfd_create, c"sysvipc".as_ptr(), flag) })? as c_int;
    let mut sheet = Sheet { fd, written: 0, used: 0, bytes: [0; 1024] };
    let begun = match kernels >= 0 && !config().takes_all() {
        true => sheet.copy(kernels),
        false => file.write_head(&mut sheet),
    };
    let done = begun.and_then(|()| file.write_body(&caller, &mut sheet)).and_then(|()| sheet.flush());
    done.map(|()| fd).map_err(|_| {
        // SAFETY: nobody else knows of it.
        unsafe { syscall!(libc::SYS_close, fd) };
        Errno(libc::EIO)
    })
}

/// A file that is written a page's part at a time, and read from its beginning.
struct Sheet {
    fd: c_int,
    written: usize,
    used: usize,
    bytes: [u8; 1024],
}

impl Sheet {
    fn flush(&mut self) -> fmt::Result {
        let mut from = 0;
        while from < self.used {
            let (start, left) = (self.bytes[from..].as_ptr(), self.used - from);
            // SAFETY: bytes that the kernel reads. The position of the descriptor stays at the beginning.
            match unsafe { syscall!(libc::SYS_pwrite64, self.fd, start, left, self.written) } {
                done if done > 0 => {
                    from += done as usize;
                    self.written += done as usize;
                }
                again if again == -(libc::EINTR as isize) => {}
                _ => return Err(fmt::Error),
            }
        }
        self.used = 0;
        Ok(())
    }

    /// Copies all that a descriptor has to be read.
    fn copy(&mut self, from: c_int) -> fmt::Result {
        loop {
            self.flush()?;
            let (start, room) = (self.bytes.as_mut_ptr(), self.bytes.len());
            // SAFETY: room that the kernel may fill.
            match unsafe { syscall!(libc::SYS_read, from, start, room) } {
                0 => return Ok(()),
                done if done > 0 => self.used = done as usize,
                again if again == -(libc::EINTR as isize) => {}
                _ => return Err(fmt::Error),
            }
        }
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
    // SAFETY: libc has read both strings.
    if stream.is_null() && errno::get() != libc::ENOENT || !unsafe { may_be_ours(path) } {
        return stream;
    }
    // SAFETY: as the caller vouches.
    let words = unsafe { CStr::from_ptr(mode) }.to_bytes();
    if words.first() != Some(&b'r') || words.contains(&b'+') {
        return stream;
    }
    let flags = if words.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    // SAFETY: a stream that has just been opened.
    let kernels = if stream.is_null() { -1 } else { unsafe { libc::fileno(stream) } };
    match answer(path, flags, kernels) {
        fd if stream.is_null() && fd >= 0 => {
            // SAFETY: a descriptor that nobody else knows, and the caller's mode.
            let made = unsafe { libc::fdopen(fd, mode) };
            if made.is_null() {
                // SAFETY: as above.
                unsafe { syscall!(libc::SYS_close, fd) };
            }
            made
        }
        _ => stream,
    }
}
