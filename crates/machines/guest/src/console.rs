//! The machine's console, which the host logs.

use std::fs;

/// Writes to the console, which the host logs.
pub fn print(text: &str) {
    let _ = fs::write("/dev/console", format!("{text}\n"));
}
