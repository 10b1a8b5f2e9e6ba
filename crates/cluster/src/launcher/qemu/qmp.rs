//! The monitor protocol (QMP) of a running QEMU, at its socket or through libvirt.
//!
//! Nothing here waits for events. The outcome of a command is polled, as it is after an interrupted command.

use crate::error::{error, Error, Explain, Result};
use crate::interrupt;
use crate::launcher::libvirt::virsh::Domain;
use crate::user::uid;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vshmem_agent::peer_of;

/// A monitor connection.
pub struct Qmp {
    connection: Connection,
}

enum Connection {
    Socket(BufReader<UnixStream>),
    Libvirt(Domain),
}

/// How long QEMU may take to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than any line of QEMU.
const MAX_LENGTH: u64 = 16 << 20;

impl Qmp {
    /// Connects and leaves the negotiation mode. QEMU serves one connection of a socket at a time.
    pub fn connect(socket: &Path, timeout: Duration) -> Result<Qmp> {
        let open = || -> std::io::Result<Qmp> {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            let connection = Connection::Socket(BufReader::new(stream));
            Ok(Qmp { connection })
        };
        let mut qmp = open().explain(|| format!("could not reach QEMU at {}", socket.display()))?;
        if let Connection::Socket(reader) = &mut qmp.connection {
            line(reader).map_err(|error| {
                error!("{error}, at {}", socket.display()).hint(
                    "QEMU talks to one program at a time there: is another one connected? Give QEMU a second -qmp socket.",
                )
            })?;
        }
        qmp.call("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Connects to a QEMU that was just started, and may not listen yet. `alive` says why it never will.
    pub fn await_at(socket: &Path, timeout: Duration, alive: impl Fn() -> Result<()>) -> Result<Qmp> {
        let mut why = Error::new("QEMU does not answer");
        let found = interrupt::wait_for(timeout, || {
            alive()?;
            let qmp = Qmp::connect(socket, ANSWER_TIMEOUT);
            Ok(qmp.map_err(|error| why = error).ok())
        })?;
        found.ok_or(why)
    }

    /// Through libvirt, which has the monitors of its machines to itself.
    pub fn through(domain: Domain) -> Qmp {
        Qmp { connection: Connection::Libvirt(domain) }
    }

    /// QEMU's pid, if it is known.
    pub fn process(&self) -> Option<i32> {
        self.peer().map(|(pid, _)| pid).filter(|pid| *pid > 0)
    }

    /// Whether it may connect to the back end, which serves its own user and root.
    pub fn is_served(&self) -> bool {
        self.peer().is_some_and(|(_, user)| user == 0 || user == uid())
    }

    /// The pid and the user of the process at the other end.
    fn peer(&self) -> Option<(i32, u32)> {
        match &self.connection {
            Connection::Socket(reader) => peer_of(reader.get_ref()).ok(),
            Connection::Libvirt(_) => None,
        }
    }

    /// The thread of each virtual core, in order.
    pub fn core_threads(&mut self) -> Result<Vec<i32>> {
        let answer = self.call("query-cpus-fast", json!({}))?;
        parse_threads(&answer).ok_or_else(|| error!("QEMU's answer about its cores is odd: {answer}"))
    }

    /// Executes a command, which QEMU must not refuse.
    pub fn call(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.try_call(command, arguments)?.map_err(|why| error!("QEMU refused {command}: {why}"))
    }

    /// Passes a descriptor to QEMU, under this name.
    pub fn getfd(&mut self, name: &str, descriptor: OwnedFd) -> Result<()> {
        self.call_with("getfd", json!({ "fdname": name }), &descriptor).map(drop)
    }

    /// Passes a descriptor to QEMU. Returns QEMU's number of it, and the set by which it is removed again.
    pub fn add_fd(&mut self, descriptor: &OwnedFd) -> Result<(i32, Value)> {
        let answer = self.call_with("add-fd", json!({}), descriptor)?;
        let number = answer.get("fd").and_then(Value::as_i64);
        let number = number.and_then(|number| i32::try_from(number).ok());
        match (number, answer.get("fdset-id")) {
            (Some(number), Some(set)) => Ok((number, set.clone())),
            _ => Err(error!("QEMU's answer about a descriptor is odd: {answer}")),
        }
    }

    /// Executes a command that takes a descriptor, which QEMU must not refuse.
    fn call_with(&mut self, command: &str, arguments: Value, descriptor: &OwnedFd) -> Result<Value> {
        let order = json!({ "execute": command, "arguments": arguments }).to_string();
        let Connection::Socket(reader) = &mut self.connection else {
            return Err(Error::new("libvirt passes no descriptors on to QEMU"));
        };
        send_with(reader.get_ref(), order.as_bytes(), descriptor)
            .explain(|| "giving QEMU a descriptor".into())?;
        self.read_result(command)?.map_err(|why| error!("QEMU refused {command}: {why}"))
    }

    /// Executes a command. The inner error is QEMU's.
    pub fn try_call(
        &mut self,
        command: &str,
        arguments: Value,
    ) -> Result<std::result::Result<Value, String>> {
        let order = json!({ "execute": command, "arguments": arguments }).to_string();
        match &mut self.connection {
            Connection::Libvirt(domain) => result_of(&domain.monitor(&order)?)
                .ok_or_else(|| Error::new("libvirt's answer from QEMU's monitor is odd")),
            Connection::Socket(reader) => {
                reader
                    .get_mut()
                    .write_all(order.as_bytes())
                    .explain(|| format!("asking QEMU to {command}"))?;
                self.read_result(command)
            }
        }
    }

    /// The answer to the last command.
    fn read_result(&mut self, command: &str) -> Result<std::result::Result<Value, String>> {
        let Connection::Socket(reader) = &mut self.connection else {
            return Err(error!("libvirt answers {command} at once"));
        };
        loop {
            // Events come in between.
            if let Some(result) = result_of(&line(reader)?) {
                return Ok(result);
            }
        }
    }
}

/// Sends a few bytes, with a descriptor.
fn send_with(socket: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> std::io::Result<()> {
    use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    with.push(SendAncillaryMessage::ScmRights(&descriptors));
    let io = [std::io::IoSlice::new(bytes)];
    let sent = sendmsg(socket, &io, &mut with, SendFlags::NOSIGNAL)?;
    (&*socket).write_all(&bytes[sent..])
}

/// The result in an answer; `None` if it is something else.
pub(crate) fn result_of(answer: &Value) -> Option<std::result::Result<Value, String>> {
    if let Some(error) = answer.get("error") {
        let words = error.get("desc").and_then(Value::as_str);
        return Some(Err(words.map_or_else(|| error.to_string(), String::from)));
    }
    answer.get("return").map(|value| Ok(value.clone()))
}

fn line(reader: &mut BufReader<UnixStream>) -> Result<Value> {
    let mut text = String::new();
    let len = match reader.take(MAX_LENGTH).read_line(&mut text) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Err(Error::new("QEMU does not answer"))
        }
        read => read.explain(|| "reading QEMU's answer".into())?,
    };
    if len == 0 {
        return Err(Error::new("QEMU closed its monitor"));
    }
    serde_json::from_str(&text).map_err(|e| error!("QEMU's answer is not JSON ({e}): {text}"))
}

pub(crate) fn parse_threads(answer: &Value) -> Option<Vec<i32>> {
    let mut cores: Vec<(u64, i32)> = Vec::new();
    for core in answer.as_array()? {
        let thread = i32::try_from(core.get("thread-id")?.as_i64()?).ok()?;
        cores.push((core.get("cpu-index")?.as_u64()?, thread));
    }
    cores.sort_unstable();
    Some(cores.into_iter().map(|(_, thread)| thread).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_come_in_the_order_of_cores() {
        let answer = json!([
            {"cpu-index": 1, "thread-id": 20, "target": "x86_64"},
            {"cpu-index": 0, "thread-id": 10},
        ]);
        assert_eq!(parse_threads(&answer), Some(vec![10, 20]));
        assert_eq!(parse_threads(&json!({"cpus": 1})), None);
        assert_eq!(parse_threads(&json!([{"cpu-index": 0}])), None);
    }

    #[test]
    fn answers_are_told_from_events() {
        assert_eq!(result_of(&json!({"event": "RESUME", "data": {}})), None);
        assert_eq!(result_of(&json!({"return": [1]})), Some(Ok(json!([1]))));
        let refused = json!({"error": {"class": "GenericError", "desc": "no such bus"}});
        assert_eq!(result_of(&refused), Some(Err("no such bus".into())));
    }
}
