//! Stand-ins for commands, without a machine.

use super::*;

/// Starts commands on this kernel, as the caller.
#[cfg(test)]
pub struct Plain;

#[cfg(test)]
impl Starter for Plain {
    fn prepare(&mut self) {}

    fn start(&mut self, request: &Start) -> Result<RunningCommand, StartError> {
        let mut command = command(request)?;
        join_group(&mut command, None, request.terminal.is_some());
        let program = command.get_program().to_os_string();
        spawn(command, request, Group::none()).map_err(|e| refusal(&program, &e))
    }
}

/// Starts nothing: commands echo their input.
pub struct Echoes;

impl Starter for Echoes {
    fn prepare(&mut self) {}

    fn start(&mut self, request: &Start) -> Result<RunningCommand, StartError> {
        let (ours, theirs) =
            std::os::unix::net::UnixStream::pair().map_err(|error| refusal(&request.argv[0], &error))?;
        let ours = File::from(OwnedFd::from(ours));
        let theirs = File::from(OwnedFd::from(theirs));
        let running = RunningCommand {
            // No process has this pid.
            pid: i32::MAX,
            input: request.stdin.then_some(ours),
            output: Some(theirs),
            errors: None,
            terminal: None,
            group: Group::none(),
        };
        running.set_nonblocking().expect("sockets");
        Ok(running)
    }
}

impl Group {
    fn none() -> Group {
        Group { path: "/dev/null/none".into() }
    }
}
