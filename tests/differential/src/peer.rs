//! One worker as the harness sees it: a process and a socket.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Waits for a command.
    Idle,
    /// Sleeps in a command.
    Blocked,
    /// Executes, or may do so any moment.
    Running,
    /// Has hung up.
    Gone,
}

/// A command that has not been answered yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The command as the script has it.
    pub words: Vec<String>,
    /// The first three letters: shm, sem or msg.
    pub kind: String,
    /// The id that it works on, on this side.
    pub id: Option<String>,
    /// Ends by itself soon, so it never counts as blocked.
    pub ends_soon: bool,
}

/// A live worker.
pub struct Peer {
    pub pid: i32,
    pub pending: Option<Pending>,
    /// The effective user and the real one are both root, so that an exec keeps the environment.
    pub plain_root: bool,
    stream: UnixStream,
    buffer: Vec<u8>,
    hung_up: bool,
}

/// The system calls in which a worker sleeps when its operation blocks: those of System V, and those by
/// which a library waits (futex, futex_waitv, nanosleep, clock_nanosleep).
const SLEEPS: &[i64] = &[
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
];

impl Peer {
    pub fn new(pid: i32, stream: UnixStream, buffer: Vec<u8>, plain_root: bool) -> Peer {
        stream.set_nonblocking(true).expect("a socket can be made non-blocking");
        Peer { pid, pending: None, plain_root, stream, buffer, hung_up: false }
    }

    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    pub fn send(&mut self, line: &str) {
        if self.stream.write_all(format!("{line}\n").as_bytes()).is_err() {
            self.hung_up = true;
        }
    }

    /// The answer to the pending command, if it has come.
    pub fn answer(&mut self) -> Option<String> {
        self.receive();
        let end = self.buffer.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn receive(&mut self) {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.hung_up = true;
                    return;
                }
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.hung_up = true;
                    return;
                }
            }
        }
    }

    /// What it does now. An answer that has come but was not taken counts as running.
    pub fn activity(&self) -> Activity {
        let Some(pending) = &self.pending else {
            return Activity::Idle;
        };
        if self.hung_up {
            return Activity::Gone;
        }
        match current_call(self.pid) {
            Some(call) if SLEEPS.contains(&call) && !pending.ends_soon && sleeps(self.pid) => {
                Activity::Blocked
            }
            _ => Activity::Running,
        }
    }

    /// What can be seen of a worker from outside, for messages.
    pub fn describe(&self) -> String {
        let call = current_call(self.pid).map_or("running".to_owned(), |call| format!("system call {call}"));
        format!(
            "process {} ({call}) in {:?}",
            self.pid,
            self.pending.as_ref().map(|pending| pending.words.join(" "))
        )
    }

    pub fn has_hung_up(&mut self) -> bool {
        self.receive();
        self.hung_up
    }
}

/// The system call in which a process sleeps; `None` while it runs or is gone.
fn current_call(pid: i32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The letter of a process's state; `None` if there is no such process.
fn state(pid: i32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether a process sleeps. One that is being woken on another processor still shows the system call
/// in which it slept, but no longer the state.
fn sleeps(pid: i32) -> bool {
    state(pid) == Some('S')
}

/// Whether the kernel is done with a process, but perhaps for telling its parent.
pub fn is_dead(pid: i32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}
