//! The words that a shell passes.

use std::ffi::OsString;

/// The index of the word to complete, as in clap_complete's own scripts; by default the last.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// The words before the one that is completed.
pub fn words_before() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(2).collect();
    words.truncate(index().unwrap_or(words.len().saturating_sub(1)));
    words
}

/// The index of the word to complete, if it was passed.
pub fn index() -> Option<usize> {
    std::env::var(INDEX).ok()?.parse().ok()
}
