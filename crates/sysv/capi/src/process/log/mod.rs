//! The log of `VSHMEM_LOG`: why calls fail, which pool is used, and which calls go there, for programs that
//! don't say it.
//!
//! A message is one line and one write, so that those of several processes don't mix. A file is opened for
//! each: a descriptor that stays open would be seen, closed or inherited by the program. Nothing is written
//! on a path that is fast, so the question whether to costs nothing there.

pub mod level;

pub use level::Level;

use crate::process::config::config;
use crate::process::raw::{self, syscall};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vshmem_transport::Text;

/// Are messages of this level written?
#[inline]
pub fn is_on(level: Level) -> bool {
    config().log_level >= level
}

/// Writes a message, if those of its level are written.
pub fn say(level: Level, text: fmt::Arguments) {
    if is_on(level) {
        write(level, text);
    }
}

/// The level of a call's failure. `has_reason`: the library has given one that the error's number does not
/// tell.
pub fn level_of(errno: i32, has_reason: bool) -> Level {
    match errno {
        _ if has_reason => Level::Error,
        libc::EAGAIN | libc::EEXIST | libc::EINTR | libc::ENOENT | libc::ENOMSG | libc::ETIMEDOUT => {
            Level::Debug
        }
        // Where users are and how much there is differs from what a program was made for.
        libc::EACCES | libc::EPERM | libc::ENOMEM | libc::ENOSPC => Level::Error,
        _ => Level::Warn,
    }
}

#[cold]
fn write(level: Level, text: fmt::Arguments) {
    let mut line = Text::<1280>::new();
    let mut path = [0; 256];
    let program = program(&mut path).utf8_chunks().next();
    let _ = write!(
        line,
        "vshmem: {}[{}]: {}: ",
        program.map_or("", |chunk| chunk.valid()),
        raw::getpid(),
        level.word()
    );
    // Its end finds room, however long the text is: it is cut, and the program's name has 255 bytes.
    let mut message = Text::<900>::new();
    let _ = message.write_fmt(text);
    let _ = writeln!(line, "{message}");
    let hash = hash(line.bytes());
    if level <= Level::Warn && LAST.swap(hash, Relaxed) == hash {
        return;
    }
    let file = &config().log_file;
    if file.bytes().is_empty() {
        // SAFETY: the kernel reads the line. Where it can't be written, nobody is there to be told.
        unsafe { syscall!(libc::SYS_write, libc::STDERR_FILENO, line.bytes().as_ptr(), line.bytes().len()) };
    } else {
        // A pipe that nobody reads must not hold the program up.
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOCTTY | libc::O_NONBLOCK;
        raw::write_file(file.c_str(), flags, line.bytes());
    }
}

/// The hash of the last failure that was written: a program that tries the same again and again has it
/// written once.
static LAST: AtomicU64 = AtomicU64::new(0);

/// FNV-1a.
fn hash(line: &[u8]) -> u64 {
    line.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The name of the program's file.
fn program(path: &mut [u8; 256]) -> &[u8] {
    // SAFETY: the kernel writes as many bytes as there are, at the most.
    let len = unsafe {
        syscall!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            c"/proc/self/exe".as_ptr(),
            path.as_mut_ptr(),
            path.len()
        )
    };
    let path = &path[..usize::try_from(len).unwrap_or(0)];
    let name = path.rsplit(|b| *b == b'/').next();
    name.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_in_order_and_have_words() {
        let levels = [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug];
        assert!(levels.is_sorted());
        for level in levels {
            assert_eq!(Level::from_text(level.word().as_bytes()), Some(level));
        }
        assert_eq!(Level::from_text(b"loud"), None);
    }

    #[test]
    fn what_programs_expect_is_said_last() {
        assert_eq!(level_of(libc::EAGAIN, false), Level::Debug);
        assert_eq!(level_of(libc::EINVAL, false), Level::Warn);
        assert_eq!(level_of(libc::EACCES, false), Level::Error);
        assert_eq!(level_of(libc::ENOENT, true), Level::Error);
    }
}
