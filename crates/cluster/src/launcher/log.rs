//! Log files of machines.

use std::fs;
use std::path::{Path, PathBuf};

/// The path of a log that was rotated.
pub fn rotated(log: &Path) -> PathBuf {
    log.with_extension("log.old")
}

/// The last lines of a log, each preceded by a line break.
pub fn tail(log: &Path) -> String {
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let bytes = [read(&rotated(log)), read(log)].concat();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    let mut out = String::new();
    for line in &lines[lines.len().saturating_sub(4)..] {
        out.push_str(&format!("\n    {}", crate::printable(line)));
    }
    out
}
