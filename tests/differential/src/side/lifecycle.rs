//! How a side's workers come and go.

use super::{poll, Side, PATIENCE};
use crate::peer::{self, Peer};
use crate::script::{Step, OBSERVER};
use crate::setup::Backend;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

impl Side {
    /// Lets the observer make the pool, and every user use it: a worker may change its identity
    /// before it first needs the pool.
    pub(super) fn open_pool(&mut self) -> Result<(), String> {
        if self.backend == Backend::Vshmem {
            self.perform(&Step::call(OBSERVER, "msgctl 0 MSG_INFO"))?;
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&self.pool, std::fs::Permissions::from_mode(0o666))
                .map_err(|why| format!("the library made no pool at {}: {why}", self.pool.display()))?;
        }
        Ok(())
    }

    pub(super) fn enter_namespace(&self) {
        // SAFETY: only changes the calling thread's IPC namespace.
        let result = unsafe { libc::setns(self.namespace.as_raw_fd(), libc::CLONE_NEWIPC) };
        assert_eq!(result, 0, "the namespace can be entered again");
    }

    pub(super) fn spawn(&mut self, slot: usize) -> Result<(), String> {
        self.enter_namespace();
        let mut command = Command::new(&self.program);
        command
            .arg(&self.socket_name)
            .stdin(Stdio::null())
            .env("WORKER_HARNESS", std::process::id().to_string())
            .env_remove("LD_PRELOAD")
            .env_remove("WORKER_DROPS_UNDO");
        match self.backend {
            Backend::Kernel => {}
            Backend::Deviant => {
                command.env("WORKER_DROPS_UNDO", "1");
            }
            Backend::Vshmem => {
                command.env("LD_PRELOAD", self.library.as_ref().expect("checked at the start"));
                command.env("VSHMEM_POOL", &self.pool).env("VSHMEM_KEYS", "all");
            }
        }
        let child =
            command.spawn().map_err(|why| format!("cannot start {}: {why}", self.program.display()))?;
        let pid = child.id() as i32;
        self.processes.push(pid);
        self.welcome(slot, Some(pid), true).map(|_| ())
    }

    /// Waits for a worker's `hello` and puts it into a slot.
    pub(super) fn welcome(&mut self, slot: usize, pid: Option<i32>, plain_root: bool) -> Result<i32, String> {
        wait_readable(self.listener.as_raw_fd())
            .ok_or_else(|| format!("worker {slot} did not start: {:?}", pid))?;
        let (stream, _) = self.listener.accept().map_err(|why| format!("worker {slot}: {why}"))?;
        let (pid, buffer) = read_hello(&stream).ok_or_else(|| format!("worker {slot} did not say hello"))?;
        let start = self.starts[slot];
        self.starts[slot] += 1;
        let name = match slot {
            OBSERVER => "observer".to_owned(),
            _ => format!("worker{slot}{}", "'".repeat(start)),
        };
        self.translator.name_process(pid, name);
        self.peers[slot] = Some(Peer::new(pid, stream, buffer, plain_root));
        Ok(pid)
    }

    pub(super) fn signal(&self, pid: i32, number: i32) {
        // SAFETY: the process is one that this harness started and has not reaped.
        unsafe { libc::kill(pid, number) };
    }

    /// Waits until a dying worker has gone: it hangs up after the kernel has undone its operations.
    pub(super) fn bury(&mut self, slot: usize) -> Result<(), String> {
        let mut peer = self.peers[slot].take().ok_or("no such worker")?;
        let began = Instant::now();
        while !peer.has_hung_up() {
            if began.elapsed() > PATIENCE {
                return Err(format!("worker {slot} does not die: {}", peer.describe()));
            }
            poll(&[peer.descriptor()], 10);
        }
        // Its mappings are let go of a moment later, and whoever may wait for it is told last.
        while !peer::is_dead(peer.pid) {
            if began.elapsed() > PATIENCE {
                return Err(format!("worker {slot} does not die: {}", peer.describe()));
            }
            std::thread::yield_now();
        }
        reap(peer.pid, false);
        Ok(())
    }

    pub(super) fn fork(&mut self, parent: usize, child: usize) -> Result<(), String> {
        let peer = self.peers[parent].as_mut().expect("checked by can");
        let plain_root = peer.plain_root;
        peer.send("fork");
        let began = Instant::now();
        let answer = loop {
            let peer = self.peers[parent].as_mut().expect("checked by can");
            match peer.answer() {
                Some(answer) => break answer,
                None if began.elapsed() > PATIENCE || peer.has_hung_up() => {
                    return Err(format!("worker {parent} cannot fork: {}", peer.describe()));
                }
                None => poll(&[peer.descriptor()], 10),
            }
        };
        if !answer.starts_with("ok") {
            return Err(format!("worker {parent} cannot fork: {answer}"));
        }
        let pid = self.welcome(child, None, plain_root)?;
        self.processes.push(pid);
        Ok(())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let pids: Vec<i32> = self.peers.iter().flatten().map(|peer| peer.pid).collect();
        for &pid in &pids {
            self.signal(pid, libc::SIGKILL);
        }
        for &pid in &self.processes {
            reap(pid, pids.contains(&pid));
        }
        let _ = std::fs::remove_file(&self.pool);
    }
}

/// Takes a dead child from the process table. A forked worker's child is not ours: then there is nothing to
/// do.
fn reap(pid: i32, wait: bool) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), if wait { 0 } else { libc::WNOHANG }) };
}

fn wait_readable(descriptor: i32) -> Option<()> {
    let mut entry = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    let ready = unsafe { libc::poll(&mut entry, 1, PATIENCE.as_millis() as i32) };
    (ready > 0).then_some(())
}

fn read_hello(stream: &UnixStream) -> Option<(i32, Vec<u8>)> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let pid = line.trim().strip_prefix("hello ")?.parse().ok()?;
    Some((pid, reader.buffer().to_vec()))
}
