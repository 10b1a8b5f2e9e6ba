//! The monitor protocol (QMP) of a running QEMU, at its socket or through libvirt.
//!
//! Nothing here waits for events. The outcome of a command is polled, as it is after an interrupted command.

use crate::running::virsh::Domain;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_agent::peer_of;
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::user::uid;

/// A monitor connection.
pub struct Qmp {
    connection: Connection,
}

enum Connection {
    Socket(BufReader<Bounded>),
    Libvirt(Domain),
}

/// Time that QEMU may take to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of QEMU's longest answer, with the events before it.
const MAX_LENGTH: u64 = 16 << 20;

/// A socket of which all reads have one deadline, and one limit of bytes: a peer that sends events without
/// end, or a line without end, does not answer.
struct Bounded {
    stream: UnixStream,
    timeout: Duration,
    /// Each command has that time; otherwise all together have it.
    renews: bool,
    deadline: Instant,
    left: u64,
}

impl Bounded {
    fn new(stream: UnixStream, timeout: Duration, deadline: Instant, renews: bool) -> Bounded {
        Bounded { stream, timeout, renews, deadline, left: MAX_LENGTH }
    }

    /// Begins the time of a command.
    fn renew(&mut self) {
        if self.renews {
            self.deadline = Instant::now() + self.timeout;
            self.left = MAX_LENGTH;
        }
    }

    fn remaining(&self) -> std::io::Result<Duration> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(remaining)
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "it says too much"));
        }
        self.stream.set_read_timeout(Some(self.remaining()?))?;
        let len = self.stream.read(&mut buffer[..most])?;
        self.left -= len as u64;
        Ok(len)
    }
}

/// Connects by a deadline: a socket whose queue is full has its client wait.
fn connected(socket: &Path, timeout: Duration) -> std::io::Result<UnixStream> {
    use rustix::net::sockopt::{set_socket_timeout, Timeout};
    use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&stream, Timeout::Send, Some(timeout))?;
    connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

impl Qmp {
    /// Connects and leaves the negotiation mode. QEMU serves one connection of a socket at a time. It has as
    /// long for the answer to each command.
    pub fn connect(socket: &Path, timeout: Duration) -> Result<Qmp> {
        Qmp::open(socket, timeout, true, |_, _| Ok(()))
    }

    /// Connects for a dialogue that has this time as a whole. `admit` decides, by the pid and user of the
    /// process that listens, whether to talk to it; nothing is sent before.
    pub fn dialogue(
        socket: &Path,
        timeout: Duration,
        admit: impl FnOnce(i32, u32) -> Result<()>,
    ) -> Result<Qmp> {
        Qmp::open(socket, timeout, false, admit)
    }

    fn open(
        socket: &Path,
        timeout: Duration,
        renews: bool,
        admit: impl FnOnce(i32, u32) -> Result<()>,
    ) -> Result<Qmp> {
        let deadline = Instant::now() + timeout;
        let at = || format!("could not reach QEMU at {}", socket.display());
        let stream = connected(socket, timeout).explain(at)?;
        let (pid, user) = peer_of(&stream).explain(at)?;
        admit(pid, user)?;
        let mut reader = BufReader::new(Bounded::new(stream, timeout, deadline, renews));
        line(&mut reader).map_err(|error| {
            error!("{error}, at {}", socket.display()).hint(
                "QEMU talks to one program at a time there: is another one connected? Give QEMU a second -qmp socket.",
            )
        })?;
        let mut qmp = Qmp { connection: Connection::Socket(reader) };
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

    /// A connection through libvirt, which has the monitors of its machines to itself.
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
            Connection::Socket(reader) => peer_of(&reader.get_ref().stream).ok(),
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
        reader.get_mut().renew();
        send_with(&reader.get_ref().stream, order.as_bytes(), descriptor)
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
                let socket = reader.get_mut();
                socket.renew();
                let remaining = socket.remaining().and_then(|it| socket.stream.set_write_timeout(Some(it)));
                remaining
                    .and_then(|()| socket.stream.write_all(order.as_bytes()))
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

fn line(reader: &mut BufReader<Bounded>) -> Result<Value> {
    let mut text = String::new();
    let len = match reader.read_line(&mut text) {
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

    /// The result of a connection to a process that greets as QEMU does, and then sends this text without
    /// end.
    fn talks_to(name: &str, says: &'static str, patience: u64) -> (Result<Qmp>, Duration) {
        let socket = std::env::temp_dir().join(format!("vshmem-qmp-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.write_all(b"{\"QMP\": {}}\n");
            while client.write_all(says.as_bytes()).is_ok() {
                std::thread::sleep(Duration::from_millis(if says.len() < 1000 { 20 } else { 0 }));
            }
        });
        let begun = Instant::now();
        let qmp = Qmp::connect(&socket, Duration::from_millis(patience));
        let took = begun.elapsed();
        std::fs::remove_file(&socket).unwrap();
        server.join().unwrap();
        (qmp, took)
    }

    #[test]
    fn a_monitor_that_never_answers_is_left_in_time() {
        // Events without end, a line without end, and words without a line.
        for (name, says) in [("events", "{\"event\": \"RESUME\"}\n"), ("line", " "), ("empty", "[]\n")] {
            let (qmp, took) = talks_to(name, says, 400);
            let why = qmp.err().expect("it does not answer").to_string();
            assert!(why.contains("does not answer"), "{name}: {why}");
            assert!(took < Duration::from_secs(4), "{name}: {took:?}");
        }
    }

    #[test]
    fn who_is_not_admitted_is_told_nothing() {
        let socket = std::env::temp_dir().join(format!("vshmem-qmp-{}-stranger", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = Qmp::dialogue(&socket, Duration::from_secs(5), |pid, user| {
            assert_eq!((pid, user), (std::process::id() as i32, uid()));
            Err(Error::new("a stranger"))
        });
        assert!(refused.is_err_and(|why| why.to_string().starts_with("a stranger")));
        let mut heard = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
        assert!(heard.is_empty());
        std::fs::remove_file(&socket).unwrap();
    }

    #[test]
    fn what_a_monitor_says_is_bounded() {
        const LONG: &str = match std::str::from_utf8(&[b' '; 65536]) {
            Ok(text) => text,
            Err(_) => panic!(),
        };
        let why = talks_to("much", LONG, 60_000).0.err().expect("it says too much").to_string();
        assert!(why.contains("it says too much"), "{why}");
    }

    #[test]
    fn a_monitor_with_a_full_queue_is_not_waited_for() {
        let socket = std::env::temp_dir().join(format!("vshmem-qmp-{}-full", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = UnixStream::connect(&socket).unwrap();
        let begun = Instant::now();
        let full = (0..2).map(|_| connected(&socket, Duration::from_millis(200))).any(|it| it.is_err());
        assert!(full && begun.elapsed() < Duration::from_secs(4));
        std::fs::remove_file(&socket).unwrap();
    }

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
