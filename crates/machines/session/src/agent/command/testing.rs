//! Starters of commands for tests without a machine.

use super::*;

/// A starter of commands on this kernel, as the caller.
#[cfg(test)]
pub struct Plain;

#[cfg(test)]
impl Starter for Plain {
    fn start(&mut self, request: &Start) -> Result<RunningCommand> {
        let mut command = command(request)?;
        command.current_dir(directory(request)?);
        join_group(&mut command, None, request.terminal.is_some());
        spawn(command, request, None)
    }
}

/// A starter whose commands echo their input; no process is started.
pub struct Echoes;

impl Starter for Echoes {
    fn start(&mut self, request: &Start) -> Result<RunningCommand> {
        let pair = std::os::unix::net::UnixStream::pair();
        let (ours, theirs) = pair.map_err(|error| Error::new(error.to_string()))?;
        let ours = File::from(OwnedFd::from(ours));
        let theirs = File::from(OwnedFd::from(theirs));
        let running = RunningCommand {
            // No process has this pid.
            pid: i32::MAX,
            input: request.stdin.then_some(ours),
            output: Some(theirs),
            errors: None,
            terminal: None,
            group: None,
            scratch: None,
        };
        running.set_nonblocking().expect("sockets");
        Ok(running)
    }
}
