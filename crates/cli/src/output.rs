//! The output of commands, and commands on several names.

use std::io::{self, IsTerminal, Write};
use vshmem_base::{error, Result};

/// Columns of a terminal that does not say.
const COLUMNS: usize = 80;
/// A head of this many columns at the most, such as a word in a list or a command in an example, has the
/// text's further lines beside it, if that leaves them a third of the line.
const MAX_HEAD: usize = 53;

/// Tells the user something on standard error, as `eprintln!` does, in lines that fit a terminal.
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::tell_user(&format!($($text)*)) };
}

/// Tells the user something on standard error.
pub fn tell_user(text: &str) {
    let text = match io::stderr().is_terminal() {
        true => wrapped(text, terminal_columns()),
        false => text.into(),
    };
    // Whoever has closed it does not want to know.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The columns of standard output; `None` if it is no terminal.
pub fn columns() -> Option<usize> {
    io::stdout().is_terminal().then(terminal_columns)
}

/// The columns of the terminal.
pub fn terminal_columns() -> usize {
    columns_of(crossterm::terminal::size().map_or(0, |(columns, _)| columns))
}

/// The columns of a terminal that says so many. A serial line and some containers' terminals say none.
fn columns_of(said: u16) -> usize {
    match usize::from(said) {
        0 => COLUMNS,
        columns => columns.max(2),
    }
}

/// Prints text of sentences, in lines that fit a terminal.
pub fn print_wrapped(text: &str) -> Result<()> {
    print(&columns().map_or_else(|| text.into(), |columns| wrapped(text, columns)))
}

/// A text whose lines have so many columns at the most, unless a word has more. What goes on begins below
/// what its line began with, or below what stands beside a head: a word and two spaces or more.
pub fn wrapped(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| wrapped_line(line, columns)).collect();
    lines.join("\n")
}

fn wrapped_line(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.into();
    }
    let indent = line.len() - line.trim_start_matches(' ').len();
    let head = line[indent..].find("  ").map(|end| {
        let spaces = line[indent + end..].len() - line[indent + end..].trim_start_matches(' ').len();
        indent + end + spaces
    });
    let begin = head.filter(|begin| *begin <= MAX_HEAD && begin * 3 <= columns * 2).unwrap_or(indent);
    let mut out = line[..begin].to_owned();
    let mut column = begin;
    for (place, word) in line[begin..].split(' ').enumerate() {
        let len = word.chars().count();
        if place > 0 && column + 1 + len > columns {
            out.push('\n');
            out.push_str(&" ".repeat(begin));
            column = begin;
        } else if place > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}

/// Prints text, which may quote a machine or a member of a pool. It is no error if no process reads it.
pub fn print(text: &str) -> Result<()> {
    let text = vshmem_base::plain(text);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(error!("could not write the answer: {e}")),
        _ => Ok(()),
    }
}

/// Runs a function on each of these names, even after a failure. The exit code is that of the first failure.
pub fn each(names: &[String], mut work: impl FnMut(&str) -> Result<()>) -> Result<u8> {
    let mut code = 0;
    for name in names {
        if let Err(error) = work(name) {
            tell!("vshmem: {error}");
            code = if code == 0 { error.exit_code() } else { code };
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::{columns_of, wrapped};

    #[test]
    fn a_terminal_that_says_no_columns_has_eighty() {
        assert_eq!([0, 1, 40].map(columns_of), [80, 2, 40]);
    }

    #[test]
    fn lines_break_at_words() {
        assert_eq!(wrapped("one two\nthree four five", 10), "one two\nthree four\nfive");
        assert_eq!(
            wrapped("vshmem: no\n  Install it now, please", 13),
            "vshmem: no\n  Install it\n  now, please"
        );
        assert_eq!(wrapped("a /very/long/path that", 10), "a\n/very/long/path\nthat");
        assert_eq!(wrapped("", 10), "");
    }

    #[test]
    fn what_stands_beside_a_head_stays_there() {
        let said = wrapped("    cost      so much time that it hurts", 30);
        assert_eq!(said, "    cost      so much time\n              that it hurts");
        let said = wrapped("  vshmem ipcs -w     also kernels, processes and threads", 40);
        assert_eq!(said, "  vshmem ipcs -w     also kernels,\n                     processes and\n                     threads");
    }
}
