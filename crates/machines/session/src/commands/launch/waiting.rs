//! A line on the user's terminal that says what a job waits for, as long as it has printed nothing.

use super::super::output::Stream;
use super::super::writers::Writers;
use rustix::stdio::stderr;
use rustix::termios::tcgetwinsize;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Silence after which it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Columns of a terminal that does not say.
const COLUMNS: usize = 80;
/// Back to the beginning of the line, and away with what was there.
const CLEAR: &str = "\r\x1b[K";
/// Names that a list has before it counts the others.
const MAX_NAMES: usize = 6;

/// The line. It is over for good with the job's first output.
#[derive(Clone)]
pub struct Waiting(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    writers: Writers,
}

#[derive(Default)]
struct State {
    text: String,
    is_new: bool,
    is_shown: bool,
    is_over: bool,
}

impl Waiting {
    /// A line for a job that begins now. If it is not to be `shown`, nothing ever is.
    pub fn begin(writers: &Writers, shown: bool) -> io::Result<Waiting> {
        let state = Mutex::new(State { is_over: !shown, ..State::default() });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), writers: writers.clone() });
        if shown {
            let shared = shared.clone();
            // The event loop may itself wait for a machine meanwhile.
            std::thread::Builder::new().spawn(move || shared.run())?;
        }
        Ok(Waiting(shared))
    }

    /// Sets what is waited for.
    pub fn says(&self, text: String) {
        let mut state = self.0.lock();
        if !state.is_over && state.text != text {
            (state.text, state.is_new) = (text, true);
            self.0.changed.notify_one();
        }
    }

    /// There is more to say: the line goes, and does not come again.
    pub fn end(&self) {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        if state.is_shown {
            self.0.write(CLEAR);
        }
        self.0.changed.notify_one();
    }

    /// The same before this process itself writes to standard error.
    pub fn end_at_once(&self) {
        self.end();
        let begun = Instant::now();
        while self.0.writers.busy() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A stream of this process's, whose first byte ends the line.
    pub fn stream(&self, stream: Stream) -> Box<dyn Write> {
        Box::new(Ending { to: self.0.writers.stream(stream), waiting: self.clone() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes later is written later, by the same thread if both go to one terminal.
    fn write(&self, text: &str) {
        // Without a reader there is nobody to tell.
        let _ = self.writers.stream(Stream::Err).write_all(text.as_bytes());
    }

    fn run(&self) {
        let begun = Instant::now();
        let mut state = self.lock();
        while !state.is_over {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            if !left.is_zero() {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if std::mem::take(&mut state.is_new) {
                let columns = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
                let columns = if columns == 0 { COLUMNS } else { columns };
                self.write(&format!("{CLEAR}{}", fitted(&state.text, columns - 1)));
                state.is_shown = true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Ending {
    to: Box<dyn Write>,
    waiting: Waiting,
}

impl Write for Ending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.end();
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// What a job waits for whose launcher has started daemons in the hosts of `started`, and not yet in others.
pub fn said(started: &[&str], others: &[&str]) -> String {
    match (started, others) {
        ([], _) => format!("vshmem: waiting for MPI's launcher to start in {}", list(others)),
        (_, []) => format!("vshmem: MPI runs in {}, and the program has printed nothing yet", list(started)),
        _ => format!("vshmem: MPI runs in {}; waiting for {}", list(started), list(others)),
    }
}

/// Names as text.
fn list(names: &[&str]) -> String {
    let (first, rest) = names.split_at(names.len().min(MAX_NAMES));
    let first = first.join(", ");
    match rest.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A text in so many columns.
fn fitted(text: &str, columns: usize) -> String {
    match text.chars().count() <= columns {
        true => text.into(),
        false => text.chars().take(columns.saturating_sub(3)).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_in_words() {
        assert_eq!(said(&[], &["vm0"]), "vshmem: waiting for MPI's launcher to start in vm0");
        assert_eq!(said(&["vm0", "vm1"], &["vm2"]), "vshmem: MPI runs in vm0, vm1; waiting for vm2");
        let all = said(&["vm0", "vm1"], &[]);
        assert_eq!(all, "vshmem: MPI runs in vm0, vm1, and the program has printed nothing yet");
        let many = ["a", "b", "c", "d", "e", "f", "g", "h"];
        assert_eq!(said(&many, &["z"]), "vshmem: MPI runs in a, b, c, d, e, f and 2 more; waiting for z");
        assert_eq!(fitted(&said(&many, &["z"]), 30), "vshmem: MPI runs in a, b, c...");
    }
}
