//! The command whose standard input and output are a channel.

use rustix::io::ioctl_fionbio;
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error};

/// Most bytes of its complaint that are shown.
const MOST: u64 = 1024;
/// How long a command that has closed its output may take to end, after its last words.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long it may take to end once its input has ended. The agent at its end kills what runs there, which it
/// gives up after two seconds.
const END: Duration = Duration::from_secs(3);

/// Such a command. Dropped, after this process's end of the channel was closed, it is awaited: what it has
/// started ends before it does.
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

    /// What it has said on standard error, fit for a terminal.
    pub fn complaint(&mut self) -> Option<String> {
        self.await_end(LAST_WORDS);
        let from = self.0.stderr.as_mut()?;
        ioctl_fionbio(&*from, true).ok()?;
        let mut said = Vec::new();
        // What was said before it would block, or ended.
        let _ = from.take(MOST).read_to_end(&mut said);
        let said = vshmem_base::printable(String::from_utf8_lossy(&said).trim());
        (!said.is_empty()).then_some(said)
    }

    /// The error for the channel, if it has ended.
    pub fn lost(&mut self) -> Error {
        let said = self.complaint().map_or(String::new(), |said| format!(": {said}"));
        error!("it has gone away{said}")
    }
}

impl Drop for ChannelCommand {
    fn drop(&mut self) {
        // Nobody reads what it says any more.
        drop(self.0.stderr.take());
        if !self.await_end(END) {
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
