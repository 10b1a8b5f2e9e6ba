//! The command whose standard input and output are a channel.

use rustix::io::ioctl_fionbio;
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error};

/// Bytes of its standard error that are shown.
const MAX_ERROR_TEXT: u64 = 1024;
/// Time that a command which has closed its output may take to end.
const OUTPUT_CLOSED_TIMEOUT: Duration = Duration::from_millis(500);
/// Time that a command may take to end once its input has ended. Its agent kills the commands there, and
/// gives that up after two seconds.
const INPUT_CLOSED_TIMEOUT: Duration = Duration::from_secs(3);

/// A command whose standard input and output are a channel. Its drop waits for its end, after which none of
/// the processes that it has started run. This process's end of the channel must be closed before.
pub struct ChannelCommand(Child);

impl ChannelCommand {
    /// A command whose standard error may be a pipe.
    pub fn new(child: Child) -> ChannelCommand {
        ChannelCommand(child)
    }

    fn await_end(&mut self, timeout: Duration) -> bool {
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if begun.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// The beginning of its standard error, fit for a terminal.
    pub fn error_text(&mut self) -> Option<String> {
        self.await_end(OUTPUT_CLOSED_TIMEOUT);
        let from = self.0.stderr.as_mut()?;
        ioctl_fionbio(&*from, true).ok()?;
        let mut text = Vec::new();
        // An error means only that there is no more.
        let _ = from.take(MAX_ERROR_TEXT).read_to_end(&mut text);
        let text = vshmem_base::printable(String::from_utf8_lossy(&text).trim());
        (!text.is_empty()).then_some(text)
    }

    /// The error for the channel, if it has ended.
    pub fn lost(&mut self) -> Error {
        let text = self.error_text().map_or(String::new(), |text| format!(": {text}"));
        error!("it has gone away{text}")
    }
}

impl Drop for ChannelCommand {
    fn drop(&mut self) {
        // Without a reader, it can't block on its standard error.
        drop(self.0.stderr.take());
        if !self.await_end(INPUT_CLOSED_TIMEOUT) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn shell(script: &str) -> (ChannelCommand, std::process::ChildStdin) {
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("a shell");
        let input = child.stdin.take().expect("its input");
        (ChannelCommand::new(child), input)
    }

    #[test]
    fn it_has_ended_once_it_is_dropped() {
        for script in ["cat; sleep 0.1", "sleep 60"] {
            let (command, input) = shell(script);
            let path = format!("/proc/{}", command.0.id());
            drop(input);
            assert!(std::fs::exists(&path).expect("a path"));
            drop(command);
            assert!(!std::fs::exists(&path).expect("a path"), "{script}");
        }
    }
}
