//! The words that a shell passes on.

use std::ffi::OsString;

/// Which of the words is to be completed, as in clap_complete's own scripts; if it is not said, the last one.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// The words of the command, before that which is completed.
pub fn words_before() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(2).collect();
    words.truncate(index().unwrap_or(words.len().saturating_sub(1)));
    words
}

/// Which of the words is to be completed, if it is said.
pub fn index() -> Option<usize> {
    std::env::var(INDEX).ok()?.parse().ok()
}
