//! The last error of a thread, in words.

use crate::process::tls::{LastError, Message};
use crate::process::{log, tls};
use core::ffi::c_char;
use core::fmt::{self, Write};
use vshmem_transport::Text;

impl LastError {
    /// Records that the call `name` failed with `errno`; a detail stays if this call gave one.
    pub fn record(&mut self, name: &'static str, errno: i32) {
        if !self.fresh {
            self.detail.clear();
        }
        self.fresh = false;
        self.name = Some(name);
        self.errno = errno;
    }

    fn explain(&mut self, text: fmt::Arguments) {
        let mut detail = Text::new();
        let _ = detail.write_fmt(text);
        self.detail = detail;
        self.fresh = true;
    }

    /// Writes the error to the log, if it is to be said there.
    pub fn log(&mut self) {
        let level = match core::mem::take(&mut self.expected) {
            true => log::Level::Debug,
            false => log::level_of(self.errno, !self.detail.bytes().is_empty()),
        };
        if log::is_on(level) {
            let mut text = Message::new();
            self.compose(&mut text);
            match named(self.errno) {
                Some((name, _)) => log::say(level, format_args!("{text} ({name})")),
                None => log::say(level, format_args!("{text} (errno {})", self.errno)),
            }
        }
    }

    fn compose(&self, out: &mut Message) {
        out.clear();
        let Some(name) = self.name else { return };
        let _ = match self.detail.bytes() {
            b"" => write!(out, "{name}: {}", meaning(self.errno)),
            _ => write!(out, "{name}: {}", self.detail),
        };
    }
}

/// Gives the reason why the call under way is about to fail; `vshm_last_error` returns it.
#[cold]
pub fn explain(text: fmt::Arguments) {
    // SAFETY: the thread's own block, and no reference into it is held across this.
    unsafe { (*tls::thread()).error.explain(text) };
}

/// Notes that the call under way fails as programs expect of such a question: they ask otherwise then.
#[cold]
pub fn expect_failure() {
    // SAFETY: as above.
    unsafe { (*tls::thread()).error.expected = true };
}

/// The calling thread's last error as a C string that is valid until the thread asks again.
pub fn last_error() -> *const c_char {
    // SAFETY: the thread's own block; only the thread itself, or a handler on it that runs to its end,
    // touches it.
    unsafe {
        let thread = tls::thread();
        (*thread).error.compose(&mut (*thread).message);
        (*thread).message.c_str().as_ptr()
    }
}

/// The name of an errno value, and what it means where System V calls return it.
fn named(errno: i32) -> Option<(&'static str, &'static str)> {
    Some(match errno {
        libc::E2BIG => (
            "E2BIG",
            "more operations than the pool allows in one call, or a message longer than the room for it",
        ),
        libc::EACCES => ("EACCES", "the permissions of the IPC object don't allow this"),
        libc::EAGAIN => ("EAGAIN", "it would have to wait, or the time was up"),
        libc::EEXIST => ("EEXIST", "an IPC object with this key exists already"),
        libc::EFAULT => ("EFAULT", "an address is not the program's own"),
        libc::EFBIG => ("EFBIG", "the set has no semaphore of that number"),
        libc::EIDRM => ("EIDRM", "the IPC object was removed"),
        libc::EINTR => ("EINTR", "a signal handler ran while it waited"),
        libc::EINVAL => ("EINVAL", "no such IPC object, or an argument out of range"),
        libc::ENOENT => ("ENOENT", "no IPC object has this key"),
        libc::ENOMEM => ("ENOMEM", "no room in the pool or in the address space"),
        libc::ENOMSG => ("ENOMSG", "no message of that type"),
        libc::ENOSPC => ("ENOSPC", "a limit of the pool is reached"),
        libc::ENOSYS => ("ENOSYS", "Vshmem doesn't support this"),
        libc::EOVERFLOW => ("EOVERFLOW", "an identifier doesn't fit the structure"),
        libc::EPERM => ("EPERM", "only the owner, the creator or a privileged process may do this"),
        libc::ERANGE => ("ERANGE", "a semaphore's value would be out of range"),
        libc::ETIMEDOUT => ("ETIMEDOUT", "the time was up"),
        libc::EOWNERDEAD => ("EOWNERDEAD", "another party is gone"),
        _ => return None,
    })
}

fn meaning(errno: i32) -> &'static str {
    named(errno).map_or("the system reported an error; see errno", |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

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
