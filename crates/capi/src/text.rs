//! Text without a heap: fixed buffers, and the last error of a thread in words.

use crate::{log, tls};
use core::ffi::{c_char, CStr};
use core::fmt::{self, Write};

/// Text in a buffer of its own; what doesn't fit is cut off. Always ends in a zero byte.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text yet.
    #[allow(clippy::new_without_default)] // for statics
    pub const fn new() -> Text<N> {
        Text {
            bytes: [0; N],
            len: 0,
        }
    }

    /// Nothing again.
    pub fn clear(&mut self) {
        self.len = 0;
        self.bytes[0] = 0;
    }

    /// Adds bytes; false if they don't all fit.
    pub fn push(&mut self, more: &[u8]) -> bool {
        let n = more.len().min(N - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&more[..n]);
        self.len += n;
        self.bytes[self.len] = 0;
        n == more.len()
    }

    /// The bytes, without the zero at the end.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As a C string; it ends where a zero byte was pushed.
    pub fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.push(s.as_bytes());
        Ok(())
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    /// Writes what is UTF-8, and a mark for what isn't.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.bytes().utf8_chunks() {
            f.write_str(part.valid())?;
            if !part.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

/// Why the last failing call of a thread failed. All zeros: none failed yet.
#[repr(C)]
pub struct LastError {
    text: [u8; LastError::CAPACITY],
    /// The call's name, kept as it is and composed into text when it is asked for.
    name: *const u8,
    name_len: u32,
    errno: i32,
    /// Bytes of `text` that explain this error; 0: the errno value says it all.
    detail: u32,
    /// `text` was written by the call under way and not yet claimed by `record`.
    fresh: u32,
}

impl LastError {
    const CAPACITY: usize = 320;

    /// Records that the call `name` failed with `errno`; a detail stays if this call gave one.
    pub fn record(&mut self, name: &'static str, errno: i32) {
        if self.fresh == 0 {
            self.detail = 0;
        }
        self.fresh = 0;
        self.name = name.as_ptr();
        self.name_len = name.len() as u32;
        self.errno = errno;
    }

    fn detail(&mut self, text: fmt::Arguments) {
        let mut buffer = Text::<{ LastError::CAPACITY }>::new();
        let _ = buffer.write_fmt(text);
        self.text[..buffer.len].copy_from_slice(buffer.bytes());
        self.detail = buffer.len as u32;
        self.fresh = 1;
    }

    /// Writes the error to the log, if it is to be said there.
    pub fn log(&self) {
        let level = log::level_of(self.errno, self.detail != 0);
        if log::is_on(level) {
            let mut text = Message::new();
            self.compose(&mut text);
            match named(self.errno) {
                Some((name, _)) => log::say(level, format_args!("{text} ({name})")),
                None => log::say(level, format_args!("{text} (errno {})", self.errno)),
            }
        }
    }

    fn compose(&self, out: &mut Text<MESSAGE>) {
        out.clear();
        if self.name.is_null() {
            return;
        }
        // SAFETY: `record` stored the parts of a &'static str.
        out.push(unsafe { core::slice::from_raw_parts(self.name, self.name_len as usize) });
        out.push(b": ");
        if self.detail != 0 {
            out.push(&self.text[..self.detail as usize]);
        } else {
            out.push(meaning(self.errno).as_bytes());
        }
    }
}

/// Gives the reason why the call under way is about to fail; `vshm_last_error` returns it.
#[cold]
pub fn explain(text: fmt::Arguments) {
    // SAFETY: the thread's own block, and no reference into it is held across this.
    unsafe { (*tls::thread()).error.detail(text) };
}

/// Length of a composed message, zero byte included.
const MESSAGE: usize = LastError::CAPACITY + 32;

/// The calling thread's last error as a C string that is valid until the thread asks again.
pub fn last_error() -> *const c_char {
    // SAFETY: the thread's own block; only the thread itself, or a handler on it that runs to its end, touches it.
    unsafe {
        let thread = tls::thread();
        (*thread).error.compose(&mut (*thread).message);
        (*thread).message.c_str().as_ptr()
    }
}

/// Room for one composed message.
pub type Message = Text<MESSAGE>;

/// The name of an errno value, and what it means where System V calls return it.
fn named(errno: i32) -> Option<(&'static str, &'static str)> {
    Some(match errno {
        libc::E2BIG => (
            "E2BIG",
            "more operations than the pool allows in one call, or a message longer than the room for it",
        ),
        libc::EACCES => (
            "EACCES",
            "the permissions of the IPC object don't allow this",
        ),
        libc::EAGAIN => (
            "EAGAIN",
            "it would have to wait, or the time was up",
        ),
        libc::EEXIST => (
            "EEXIST",
            "an IPC object with this key exists already",
        ),
        libc::EFAULT => (
            "EFAULT",
            "an address is not the program's own",
        ),
        libc::EFBIG => (
            "EFBIG",
            "the set has no semaphore of that number",
        ),
        libc::EIDRM => (
            "EIDRM",
            "the IPC object was removed",
        ),
        libc::EINTR => (
            "EINTR",
            "a signal handler ran while it waited",
        ),
        libc::EINVAL => (
            "EINVAL",
            "no such IPC object, or an argument out of range",
        ),
        libc::ENOENT => (
            "ENOENT",
            "no IPC object has this key",
        ),
        libc::ENOMEM => (
            "ENOMEM",
            "no room in the pool or in the address space",
        ),
        libc::ENOMSG => (
            "ENOMSG",
            "no message of that type",
        ),
        libc::ENOSPC => (
            "ENOSPC",
            "a limit of the pool is reached",
        ),
        libc::ENOSYS => (
            "ENOSYS",
            "Vshmem doesn't support this",
        ),
        libc::EOVERFLOW => (
            "EOVERFLOW",
            "an identifier doesn't fit the structure",
        ),
        libc::EPERM => (
            "EPERM",
            "only the owner, the creator or a privileged process may do this",
        ),
        libc::ERANGE => (
            "ERANGE",
            "a semaphore's value would be out of range",
        ),
        libc::ETIMEDOUT => (
            "ETIMEDOUT",
            "the time was up",
        ),
        libc::EOWNERDEAD => (
            "EOWNERDEAD",
            "another party is gone",
        ),
        _ => return None,
    })
}

fn meaning(errno: i32) -> &'static str {
    named(errno).map_or("the system reported an error; see errno", |(_, meaning)| {
        meaning
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_terminated() {
        let mut t = Text::<8>::new();
        assert!(t.push(b"abcd"));
        assert!(!t.push(b"efghij"));
        assert_eq!(t.bytes(), b"abcdefg");
        assert_eq!(t.c_str().to_bytes(), b"abcdefg");
    }

    #[test]
    fn an_explanation_belongs_to_one_failure() {
        explain(format_args!("the pool {} is gone", "x"));
        // SAFETY: the test's own thread.
        unsafe { (*tls::thread()).error.record("semget", libc::EINVAL) };
        // SAFETY: last_error returns a C string.
        let text = |p| unsafe { CStr::from_ptr(p) }.to_str().unwrap().to_owned();
        assert_eq!(text(last_error()), "semget: the pool x is gone");
        // SAFETY: as above.
        unsafe { (*tls::thread()).error.record("semop", libc::EIDRM) };
        assert_eq!(text(last_error()), "semop: the IPC object was removed");
    }
}
