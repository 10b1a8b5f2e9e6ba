//! The log of a machine: its last lines, and its rotated file.

use std::fs;
use std::path::{Path, PathBuf};

/// The path of a log that was rotated.
pub fn rotated(log: &Path) -> PathBuf {
    log.with_extension("log.old")
}

/// Lines of a log that are shown.
const MAX_LINES: usize = 4;
/// First words of the line by which Linux gives up. A trace of calls follows, which says less.
const PANIC: &str = "Kernel panic - not syncing";

/// The last lines of a log, or those that end with the kernel's panic, each preceded by a line break.
pub fn tail(log: &Path) -> String {
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let bytes = [read(&rotated(log)), read(log)].concat();
    let text = String::from_utf8_lossy(&bytes);
    shown(&text).iter().map(|line| format!("\n    {}", vshmem_base::printable(line))).collect()
}

/// The lines of a log that say most of how a machine has ended.
fn shown(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // The trace ends with the same words, behind these.
    let begins = |line: &&str| line.contains(PANIC) && !line.contains("---[ end ");
    if let Some(panic) = lines.iter().rposition(begins) {
        lines.truncate(panic + 1);
    }
    lines.split_off(lines.len().saturating_sub(MAX_LINES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown() {
        assert_eq!(shown("a\n\n b\nc\r\nd\ne\n"), ["b", "c", "d", "e"]);
        assert!(shown("").is_empty());
    }

    #[test]
    fn a_panic_is_shown_and_not_its_trace() {
        let log = "[ 1.0] x\n[ 1.1] Out of memory\n[ 1.2] Kernel panic - not syncing: deadlocked\n\
                   [ 1.2] Call Trace:\n[ 1.2] f\n[ 1.2] g\n[ 1.2] h\n[ 1.2] ---[ end Kernel panic - not syncing: deadlocked ]---";
        assert_eq!(
            shown(log),
            ["[ 1.0] x", "[ 1.1] Out of memory", "[ 1.2] Kernel panic - not syncing: deadlocked"]
        );
    }
}
