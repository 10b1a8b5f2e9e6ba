//! What a command complains of on standard error, which is a pipe to this process.

use crate::error::{error, Error};
use rustix::io::ioctl_fionbio;
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

/// Most bytes that are shown.
const MOST: u64 = 1024;
/// How long a command that has closed its output may take to end, after its last words.
const TIMEOUT: Duration = Duration::from_millis(500);

/// What it has said, fit for a terminal.
pub fn of(child: &mut Child) -> Option<String> {
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let from = child.stderr.as_mut()?;
    ioctl_fionbio(&*from, true).ok()?;
    let mut said = Vec::new();
    // What was said before it would block, or ended.
    let _ = from.take(MOST).read_to_end(&mut said);
    let said = crate::printable(String::from_utf8_lossy(&said).trim());
    (!said.is_empty()).then_some(said)
}

/// The error for a channel that such a command was.
pub fn lost(child: &mut Child) -> Error {
    let said = of(child).map_or(String::new(), |said| format!(": {said}"));
    error!("it has gone away{said}")
}
