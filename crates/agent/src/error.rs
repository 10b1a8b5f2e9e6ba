//! One error type: a sentence that says what happened to what.

use std::fmt;
use std::io;

/// What went wrong, in words for the person at the terminal.
#[derive(Debug, Clone)]
pub struct Error(String);

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says what happened.
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may quote what a machine or a member of a pool has written.
        f.write_str(&crate::plain(&self.0))
    }
}

impl std::error::Error for Error {}

/// Turns an input/output error into a sentence.
pub(crate) trait Explain<T> {
    /// `what` says what could not be done.
    fn explain(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Explain<T> for std::result::Result<T, E> {
    fn explain(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error(format!("{}: {}", what(), e.into())))
    }
}
