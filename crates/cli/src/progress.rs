//! Progress on a terminal: one line, which the next one replaces, and which goes when there is more to say.

use crate::output::terminal_columns;
use std::io::{IsTerminal, Write};
use std::time::Instant;
use vshmem_base::size;
use vshmem_cluster::images::Step;

/// Back to the beginning of the line, and away with what was there.
const CLEAR: &str = "\r\x1b[K";

/// A line of progress on standard error. It is gone when this is dropped.
pub struct Line {
    is_shown: bool,
    is_terminal: bool,
}

impl Line {
    /// A line that shows nothing so far, and never anything if standard error is no terminal, or if it is to
    /// be quiet.
    pub fn new(quiet: bool) -> Line {
        Line { is_shown: false, is_terminal: !quiet && std::io::stderr().is_terminal() }
    }

    /// Shows a text in the place of the one before, as far as the terminal has columns.
    pub fn show(&mut self, text: &str) {
        if !self.is_terminal {
            return;
        }
        let text = fitted(&vshmem_base::printable(text), terminal_columns() - 1);
        let _ = write!(std::io::stderr().lock(), "{CLEAR}{text}");
        self.is_shown = true;
    }

    /// Takes the text away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr().lock(), "{CLEAR}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A text in so many columns.
fn fitted(text: &str, columns: usize) -> String {
    match text.chars().count() <= columns {
        true => text.into(),
        false => text.chars().take(columns.saturating_sub(3)).chain("...".chars()).collect(),
    }
}

/// A function that tells how images are downloaded.
pub fn of_images(quiet: bool) -> impl FnMut(Step) {
    let mut line = Line::new(quiet);
    let mut since = (Instant::now(), None);
    move |step| match step {
        // Until the server answers there is nothing to show.
        Step::Part { done: 0, total: None } => (),
        Step::Part { done, total } => {
            let (begun, first) = since;
            let first = first.unwrap_or(done);
            since = (begun, Some(first));
            line.show(&part(done, total, done.saturating_sub(first), begun.elapsed().as_secs_f64()));
        }
        Step::Message(text) => {
            line.clear();
            since = (Instant::now(), None);
            if !quiet {
                tell!("vshmem up: {}", vshmem_base::plain(&text));
            }
        }
        Step::Warning(text) => {
            line.clear();
            tell!("vshmem up: warning: {}", vshmem_base::plain(&text));
        }
    }
}

/// How far a file is that grew by `came` bytes in these seconds.
fn part(done: u64, total: Option<u64>, came: u64, seconds: f64) -> String {
    let of = match total {
        Some(total) if total > 0 => {
            format!(" of {} ({} %)", size::show(total), done.min(total).saturating_mul(100) / total)
        }
        _ => String::new(),
    };
    let rate = came as f64 / seconds.max(0.1);
    let left = match total {
        Some(total) if rate >= 1.0 && done < total => {
            format!(", {:.0} s left", (total - done) as f64 / rate)
        }
        _ => String::new(),
    };
    format!("{}{of}, {} a second{left}", size::show(done), size::show(rate as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_says_how_much_and_how_long() {
        let said = part(64 << 20, Some(256 << 20), 32 << 20, 16.0);
        assert_eq!(said, "64M of 256M (25 %), 2M a second, 96 s left");
        assert_eq!(part(1 << 20, None, 1 << 20, 1.0), "1M, 1M a second");
        assert_eq!(part(5, Some(5), 0, 0.0), "5 of 5 (100 %), 0 a second");
        // A server may say less than it sends.
        assert!(part(u64::MAX, Some(5), 0, 1.0).contains("(100 %)"));
    }

    #[test]
    fn a_line_fits_its_terminal() {
        assert_eq!(fitted("abcdef", 6), "abcdef");
        assert_eq!(fitted("abcdefg", 6), "abc...");
        assert_eq!(fitted("äöüß", 4), "äöüß");
    }
}
