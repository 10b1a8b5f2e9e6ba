//! The state of a machine, saved by QEMU and loaded again: what it calls migration, through a pipe.
//!
//! The machine's memory is a part of it, or stays where it is, if it is a file (`x-ignore-shared`): the state
//! has processors and devices only then.

use crate::running::qmp::Qmp;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{read, write, Errno};
use rustix::pipe::{fcntl_setpipe_size, pipe_with, PipeFlags};
use serde_json::{json, Value};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::interrupt;

/// Bytes in the pipe, if the kernel gives as many.
const PIPE: usize = 1 << 20;
/// Bytes in a second at the most: as many as it can.
const BANDWIDTH: u64 = 64 << 30;
/// Interval at which QEMU is asked how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The name under which QEMU knows its end of the pipe.
const NAME: &str = "state";

/// Saves the state of a machine that has stopped, of so many bytes at the most, with its memory or without.
pub fn save(qmp: &mut Qmp, with_memory: bool, most: u64, deadline: Instant) -> Result<Vec<u8>> {
    leave_out_memory(qmp, !with_memory)?;
    qmp.call("migrate-set-parameters", json!({ "max-bandwidth": BANDWIDTH }))?;
    let failed = || "could not save the machine's state".to_string();
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).explain(failed)?;
    let _ = fcntl_setpipe_size(&to, PIPE);
    qmp.getfd(NAME, to)?;
    qmp.call("migrate", json!({ "uri": format!("fd:{NAME}") }))?;
    let mut state = vec![];
    let mut part = [0; 64 << 10];
    loop {
        wait(&from, PollFlags::IN, deadline).explain(failed)?;
        match read(&from, &mut part) {
            Ok(0) => break,
            Ok(len) if (state.len() + len) as u64 <= most => state.extend_from_slice(&part[..len]),
            Ok(_) => return Err(Error::new("the machine's state is too long")),
            Err(Errno::INTR) => (),
            Err(why) => return Err(why).explain(failed),
        }
    }
    await_completion(qmp, deadline)?;
    Ok(state)
}

/// Loads a state into a machine that waits for one, with its memory or without. It stays stopped.
pub fn load(qmp: &mut Qmp, state: &[u8], with_memory: bool, deadline: Instant) -> Result<()> {
    leave_out_memory(qmp, !with_memory)?;
    let failed = || "could not load the machine's state".to_string();
    let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).explain(failed)?;
    let _ = fcntl_setpipe_size(&to, PIPE);
    qmp.getfd(NAME, from)?;
    qmp.call("migrate-incoming", json!({ "uri": format!("fd:{NAME}") }))?;
    let mut rest = state;
    while !rest.is_empty() {
        wait(&to, PollFlags::OUT, deadline).explain(failed)?;
        match write(&to, rest) {
            Ok(len) => rest = &rest[len..],
            Err(Errno::INTR | Errno::AGAIN) => (),
            // QEMU has refused it, and says why.
            Err(Errno::PIPE) => break,
            Err(why) => return Err(why).explain(failed),
        }
    }
    drop(to);
    await_completion(qmp, deadline)
}

/// Has QEMU leave memory out of the state that is shared: a file.
fn leave_out_memory(qmp: &mut Qmp, leave_out: bool) -> Result<()> {
    let capability = json!({ "capability": "x-ignore-shared", "state": leave_out });
    qmp.call("migrate-set-capabilities", json!({ "capabilities": [capability] })).map(drop)
}

/// Waits until QEMU has saved or loaded all.
fn await_completion(qmp: &mut Qmp, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let done = interrupt::poll(left, POLL_INTERVAL, || {
        let answer = qmp.call("query-migrate", json!({}))?;
        match answer["status"].as_str() {
            Some("completed") => Ok(Some(())),
            Some("failed" | "cancelled") => {
                let why = answer.get("error-desc").and_then(Value::as_str).unwrap_or("it does not say why");
                Err(error!("QEMU can't move the machine's state: {why}"))
            }
            _ => Ok(None),
        }
    })?;
    done.ok_or_else(|| Error::new("QEMU takes too long with the machine's state"))
}

/// Waits for an event of a pipe. An error: there is none by the deadline, or the user asks to stop.
fn wait(pipe: &OwnedFd, events: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        if interrupt::signal().is_some() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec::try_from(left.min(Duration::from_millis(100))).unwrap_or_default();
        match poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), events)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => return Ok(()),
            Err(why) => return Err(why.into()),
        }
    }
}
