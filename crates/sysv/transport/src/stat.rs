//! `/proc/PID/stat`: a process, as the kernel describes it in a line.

use core::ffi::CStr;
use core::fmt::Write;

use crate::sys::read_file;
use crate::text::Text;

/// The status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The letter of its state.
    pub state: u8,
    /// The parent's pid.
    pub parent: u32,
    /// The number of its threads, those included that have ended and are not put away.
    pub threads: usize,
    /// The time at which it started, in clock ticks since boot.
    pub start: u64,
}

/// The status of the process `pid` of our own pid namespace, or our own. `None`: there is no such process, or
/// no /proc.
pub fn of(pid: Option<u32>) -> Option<Stat> {
    let mut path = Text::<40>::new();
    match pid {
        Some(pid) => write!(path, "/proc/{pid}/stat").ok()?,
        None => path.push(b"/proc/self/stat")?,
    }
    at(path.c_str())
}

/// The status of the process or thread whose file this is.
pub(crate) fn at(path: &CStr) -> Option<Stat> {
    let mut buffer = [0; 1024];
    parse(read_file(path, &mut buffer)?)
}

/// The name, in parentheses, may hold anything; what follows its last parenthesis are fields 3 and up.
pub(crate) fn parse(stat: &[u8]) -> Option<Stat> {
    let after_name = stat.iter().rposition(|b| *b == b')')? + 1;
    let mut fields = stat[after_name..].split(|b| *b == b' ').filter(|f| !f.is_empty());
    let state = *fields.next()?.first()?;
    let mut number = |skipped| -> Option<u64> {
        let field = core::str::from_utf8(fields.nth(skipped)?).ok()?;
        field.parse().ok()
    };
    let parent = number(0)?.try_into().ok()?;
    Some(Stat { state, parent, threads: number(20 - 5)? as usize, start: number(22 - 21)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_parsed_whatever_the_name() {
        let line = b"7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        let (state, parent, threads, start) = (b'S', 1, 1, 98765);
        let stat = Stat { state, parent, threads, start };
        assert_eq!(parse(line), Some(stat));
        assert_eq!(parse(b"7 (x"), None);
        assert_eq!(parse(b"7 (x) S 1"), None);
    }
}
