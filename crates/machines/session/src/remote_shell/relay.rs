//! The relay, `vshmem rsh --relay`: it passes requests of remote shells to the host, on standard output, and
//! their outcomes back, from standard input. It ends when that is closed.

use super::{anonymous_program, random_name, VARIABLE};
use crate::wire::lines::Lines;
use crate::wire::relay::{from_line, to_line, Answer, RelayMessage, ShellRequest, MAX_LINE, MAX_REQUESTS};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::{retry_on_intr, Errno};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    accept_with, bind, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::getuid;
use rustix::stdio::stdin;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use vshmem_base::descriptors;
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::signal_descriptor::{Signals, TERMINATION};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Serves remote shells until standard input is closed, or a signal asks to end.
///
/// # Errors
/// There is no such socket or file to be had, or the host is gone.
pub fn relay() -> Result<u8> {
    descriptors::raise();
    let signals = Signals::watch(&TERMINATION).explain(|| "could not watch for signals".into())?;
    let token = random_name()?;
    let name = format!("vshmem-relay-{}", random_name()?);
    let listener = listen_at(&name).explain(|| "could not make the relay's socket".into())?;
    let program = std::env::current_exe().explain(|| "could not find this program".into())?;
    let file = script(&program, &name, &token)?;
    let shell = path_of(&file)?;
    let mut relay = Relay { token, connections: Vec::new(), next: 0 };
    send_to_host(&RelayMessage::Ready { shell })?;
    relay.serve(&signals, &listener)?;
    Ok(0)
}

fn listen_at(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A script that runs a remote shell of this relay.
fn script(program: &Path, name: &str, token: &str) -> Result<File> {
    let failed = || "could not make a script for the launcher".to_string();
    let program = program.to_str().and_then(|path| shlex::try_quote(path).ok());
    let program = program.ok_or_else(|| error!("{}: this program's path must be UTF-8", failed()))?;
    let mut file = File::from(anonymous_program().explain(failed)?);
    write!(file, "#!/bin/sh\nexport {VARIABLE}={name}:{token}\nexec {program} rsh \"$@\"\n")
        .explain(failed)?;
    // A file that is open to write can't be executed.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).explain(failed)
}

/// The path by which other processes of this user can execute the file as long as this process lives.
fn path_of(file: &File) -> Result<PathBuf> {
    // The number that this process has where /proc belongs to.
    let process =
        fs::read_link("/proc/self").explain(|| "there is no /proc here, which vshmem needs".into())?;
    Ok(Path::new("/proc").join(process).join("fd").join(file.as_raw_fd().to_string()))
}

/// Sends a message to the host. It waits if the host does not read.
fn send_to_host(message: &RelayMessage) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let sent = stdout.write_all(&to_line(message)).and_then(|()| stdout.flush());
    sent.explain(|| "the host is gone".into())
}

struct Relay {
    token: String,
    connections: Vec<Connection>,
    /// The number of the next request.
    next: u64,
}

/// A remote shell.
struct Connection {
    stream: UnixStream,
    lines: Lines,
    /// The number of its request, once it has made one.
    request: Option<u64>,
}

impl Relay {
    fn serve(&mut self, signals: &Signals, listener: &OwnedFd) -> Result<()> {
        let mut answers = Lines::default();
        loop {
            let input = stdin();
            let accepts = self.connections.len() < MAX_REQUESTS;
            let mut entries = vec![PollFd::new(signals, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
            let listens = if accepts { PollFlags::IN } else { PollFlags::empty() };
            entries.push(PollFd::new(listener, listens));
            let streams = self.connections.iter();
            entries.extend(streams.map(|it| PollFd::new(&it.stream, PollFlags::IN)));
            match poll(&mut entries, None) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(e) => return Err(e).explain(|| "could not wait for remote shells".into()),
            }
            let ready: Vec<bool> = entries.iter().map(|entry| !entry.revents().is_empty()).collect();
            if ready[0] {
                return Ok(());
            }
            // The last first, since one that is gone is taken out.
            for index in (0..self.connections.len()).rev().filter(|index| ready[index + 3]) {
                self.read_shell(index)?;
            }
            if ready[1] && !self.read_answers(&mut answers)? {
                return Ok(());
            }
            if ready[2] && accepts {
                self.accept(listener);
            }
        }
    }

    /// Takes one remote shell, if it is this user's.
    fn accept(&mut self, listener: &OwnedFd) {
        let Ok(stream) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
            return;
        };
        if socket_peercred(&stream).is_ok_and(|peer| peer.uid == getuid()) {
            let stream = UnixStream::from(stream);
            self.connections.push(Connection { stream, lines: Lines::default(), request: None });
        }
    }

    /// Reads from a remote shell: its request, or its end.
    fn read_shell(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let mut bytes = [0; 16 * 1024];
        let len = match connection.stream.read(&mut bytes) {
            Ok(len) => len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(_) => 0,
        };
        let lines = connection.lines.push(&bytes[..len], MAX_LINE);
        let unfinished = len > 0 && lines.as_ref().is_ok_and(Vec::is_empty);
        let call = lines.iter().flatten().next().and_then(|line| from_line::<ShellRequest>(line));
        match call.filter(|call| connection.request.is_none() && call.token == self.token) {
            Some(ShellRequest { host, command, .. }) => {
                let id = self.next;
                self.next += 1;
                connection.request = Some(id);
                send_to_host(&RelayMessage::Start { id, host, command })
            }
            // The beginning of a request.
            None if unfinished && connection.request.is_none() => Ok(()),
            None => {
                let gone = self.connections.swap_remove(index);
                gone.request.map_or(Ok(()), |id| send_to_host(&RelayMessage::HungUp { id }))
            }
        }
    }

    /// Passes on the outcomes of requests. False if the host has closed its end.
    fn read_answers(&mut self, answers: &mut Lines) -> Result<bool> {
        let mut bytes = [0; 16 * 1024];
        let len = retry_on_intr(|| rustix::io::read(stdin(), &mut bytes));
        let len = len.explain(|| "could not read what the host says".into())?;
        let lines = answers.push(&bytes[..len], MAX_LINE);
        for line in lines.map_err(|_| Error::new("the host says too long a line"))? {
            let Some(Answer { id, end }) = from_line(&line) else {
                return Err(Error::new("the host says what is no answer"));
            };
            // It may have hung up meanwhile.
            if let Some(index) = self.connections.iter().position(|it| it.request == Some(id)) {
                let mut shell = self.connections.swap_remove(index);
                let _ = shell.stream.write_all(&to_line(&end));
            }
        }
        Ok(len > 0)
    }
}
