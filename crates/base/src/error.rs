//! The error type: a sentence that says what happened, and a hint at what can be done about it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Exit code for a failure of Vshmem's own, as opposed to one of a command that it ran.
pub const OUR_FAILURE: u8 = 125;

/// An error, in words for the user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Error {
    message: String,
    hint: Option<String>,
    code: u8,
}

/// The result of a function that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says what happened.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), hint: None, code: OUR_FAILURE }
    }

    /// Sets the exit code, which is 125 otherwise.
    pub fn code(mut self, code: u8) -> Error {
        self.code = code;
        self
    }

    /// The exit code of this error.
    pub fn exit_code(&self) -> u8 {
        self.code
    }

    /// Puts what was being done in front of the message.
    pub fn about(mut self, what: &str) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds a hint at what the user can do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message may quote a machine or a member of a pool.
        f.write_str(&without_numbers(&crate::plain(&self.message)))?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// The text without the numbers that Rust puts behind what the system says: "No such file (os error 2)".
fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut out = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(BEFORE) {
        let number = &rest[begin + BEFORE.len()..];
        let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let end = if number[digits..].starts_with(')') { digits + 1 } else { 0 };
        let kept = if end == 0 { begin + BEFORE.len() } else { begin };
        out.push_str(&rest[..kept]);
        rest = &number[end..];
    }
    out + rest
}

/// An error whose message is formatted as by `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! formatted_error {
    ($($message:tt)*) => { $crate::error::Error::new(format!($($message)*)) };
}
pub use formatted_error as error;

/// Turns an I/O error into a sentence.
pub trait Explain<T> {
    /// `what` names what was being done, for instance `reading /proc/cmdline`.
    fn explain(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Explain<T> for std::result::Result<T, E> {
    fn explain(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::new(format!("{}: {}", what(), e.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_numbers_are_left_out() {
        let missing = || Err::<(), _>(io::Error::from_raw_os_error(libc::ENOENT));
        let why = missing().explain(|| "could not open x".into()).unwrap_err();
        assert_eq!(why.to_string(), "could not open x: No such file or directory");
        assert_eq!(without_numbers("a (os error 2), b (os error x) c"), "a, b (os error x) c");
    }
}
