//! What is said to a QEMU that is started to become a template, or to thaw from one, and to its machine.

use super::super::options::{Beginning, MachineSpec};
use super::super::{migration, program};
use crate::running::qmp::Qmp;
use crate::shared::logs;
use crate::shared::sandbox::KillGuard;
use crate::shared::sockets::{monitor_socket, settings_socket};
use crate::template::memory;
use crate::template::store::MOST_STATE;
use serde_json::json;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::process::Process;
use vshmem_base::{interrupt, random};
use vshmem_guest::settings::Settings;
use vshmem_guest::template::SEED;

/// Time that a template may take to boot, and to be saved.
const MAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a machine may take to thaw until it knows who it is. It takes a fifth of a second; hosts may be
/// busy.
const THAW_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that the kernel may take to forget what a QEMU that has ended had mapped.
const SEAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a QEMU may take to end after it has closed its sockets.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes of the longest line that a machine says.
const LONGEST_LINE: u64 = 4096;

/// Boots a template, and freezes it when it is ready. Its memory, if that is a file, is sealed then. Returns
/// its state.
pub fn make(template: &MachineSpec<'_>, memory: Option<&OwnedFd>) -> Result<Vec<u8>> {
    let deadline = Instant::now() + MAKE_TIMEOUT;
    let (process, _guard) = program::start(template)?;
    let qemu = Qemu { process, directory: template.directory, deadline };
    let made = qemu.freeze(memory.is_none(), template.memory);
    process.end(Duration::ZERO);
    let state = made?;
    let Some(memory) = memory else { return Ok(state) };
    let failed = || "could not keep the template's memory".to_string();
    memory::drop_zeros(memory).explain(failed)?;
    // QEMU has ended, and what it had mapped is gone a moment later.
    let sealed = interrupt::wait_for(SEAL_TIMEOUT, || Ok(memory::seal(memory).ok()))?;
    sealed.ok_or_else(|| Error::new(failed()))?;
    Ok(state)
}

/// Thaws a machine, and tells it who it is.
pub fn thaw(machine: &MachineSpec<'_>, state: &[u8]) -> Result<(Process, KillGuard)> {
    let deadline = Instant::now() + THAW_TIMEOUT;
    let (process, guard) = program::start(machine)?;
    let qemu = Qemu { process, directory: machine.directory, deadline };
    let with_memory = machine.beginning == Beginning::Thaw(None);
    match qemu.thaw(machine.settings, state, with_memory) {
        Ok(()) => Ok((process, guard)),
        Err(error) => {
            process.end(Duration::ZERO);
            Err(error)
        }
    }
}

/// A QEMU that was just started.
struct Qemu<'a> {
    process: Process,
    directory: &'a Path,
    deadline: Instant,
}

impl Qemu<'_> {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// An error unless it runs.
    fn check(&self) -> Result<()> {
        match self.process.alive() {
            true => Ok(()),
            false => Err(error!("QEMU has ended{}", logs::last_output(self.directory, true))),
        }
    }

    /// The reason of a failure: QEMU may have ended. Its sockets are closed a moment before.
    fn reason(&self, failure: Error) -> Error {
        let ended = interrupt::wait_for(EXIT_TIMEOUT, || Ok(self.check().err()));
        ended.ok().flatten().unwrap_or(failure)
    }

    fn monitor(&self) -> Result<Qmp> {
        Qmp::await_at(&monitor_socket(self.directory), self.left(), || self.check())
    }

    /// The port by which the machine is told who it is.
    fn port(&self) -> Result<Port> {
        let path = settings_socket(self.directory);
        let connected = interrupt::wait_for(self.left(), || {
            self.check()?;
            Ok(UnixStream::connect(&path).ok())
        })?;
        let stream = connected.ok_or_else(|| Error::new("QEMU does not listen"))?;
        Ok(Port { reader: BufReader::new(stream), deadline: self.deadline })
    }

    /// Waits until the template is ready, and saves its state.
    fn freeze(&self, with_memory: bool, memory: u64) -> Result<Vec<u8>> {
        let mut port = self.port()?;
        while port.line().map_err(|error| self.reason(error))? != "ready" {}
        let mut qmp = self.monitor()?;
        qmp.call("stop", json!({}))?;
        migration::save(&mut qmp, with_memory, MOST_STATE + memory, self.deadline)
    }

    fn thaw(&self, settings: &Settings, state: &[u8], with_memory: bool) -> Result<()> {
        let mut qmp = self.monitor()?;
        migration::load(&mut qmp, state, with_memory, self.deadline)?;
        let mut port = self.port()?;
        let seed = random::hex::<SEED>()?;
        port.say(&format!("seed {seed}\nsettings {}", settings.to_command_line()))?;
        qmp.call("cont", json!({}))?;
        let known = format!("is {}", settings.name);
        loop {
            let line = port.line().map_err(|error| self.reason(error))?;
            if line == "time" {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                port.say(&now.as_nanos().to_string())?;
            } else if line == known {
                return Ok(());
            }
        }
    }
}

/// A machine's port for its settings.
struct Port {
    reader: BufReader<UnixStream>,
    deadline: Instant,
}

impl Port {
    fn say(&mut self, line: &str) -> Result<()> {
        self.reader
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .explain(|| "telling the machine who it is".into())
    }

    /// The next line that the machine says.
    fn line(&mut self) -> Result<String> {
        let failed = || "reading what the machine says".to_string();
        let mut line = vec![];
        loop {
            interrupt::check()?;
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new("the machine does not say that it is ready"));
            }
            let timeout = left.min(Duration::from_millis(100));
            self.reader.get_ref().set_read_timeout(Some(timeout)).explain(failed)?;
            let room = LONGEST_LINE - line.len() as u64;
            match (&mut self.reader).take(room).read_until(b'\n', &mut line) {
                Ok(_) if line.last() == Some(&b'\n') => {
                    line.pop();
                    return Ok(String::from_utf8_lossy(&line).into_owned());
                }
                Ok(_) => return Err(Error::new("the machine has ended, or says what it should not")),
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => (),
                    _ => return Err(e).explain(failed),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_says_what_it_should_not_is_not_listened_to() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut port = Port { reader: BufReader::new(ours), deadline };
        theirs.write_all(b"re").unwrap();
        theirs.write_all(b"ady\n\xff\n").unwrap();
        assert_eq!(port.line().unwrap(), "ready");
        assert_eq!(port.line().unwrap(), "\u{fffd}");
        theirs.write_all(&[b'x'; LONGEST_LINE as usize + 1]).unwrap();
        assert!(port.line().unwrap_err().to_string().contains("should not"));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut port =
            Port { reader: BufReader::new(ours), deadline: Instant::now() + Duration::from_millis(50) };
        assert!(port.line().unwrap_err().to_string().contains("does not say"));
        drop(theirs);
    }
}
