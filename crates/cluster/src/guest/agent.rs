//! Serves commands on the machine's channels, and takes care of orphans as a first process must.

use super::consoles;
use super::front_end::FrontEnd;
use super::poller::Poller;
use super::session::Session;
use crate::error::{Error, Explain, Result};
use crate::host::settings::Settings;
use crate::wire::{Ended, PORT_NAME};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the kernel may take to announce the ports.
const PORTS_WITHIN: Duration = Duration::from_secs(20);

/// Serves until the machine is turned off.
pub fn serve(settings: &Settings) -> Result<()> {
    let poller = Poller::new().explain(|| "could not make an epoll".into())?;
    let children = watch_children().explain(|| "could not watch for ended processes".into())?;
    let mut sessions = Vec::new();
    let ports = match settings.xen {
        true => consoles::find()?,
        false => find_ports(settings.channels)?,
    };
    for (token, device) in ports.iter().enumerate() {
        let session = Session::open(device, token, &poller)
            .explain(|| format!("could not open {}", device.display()))?;
        sessions.push(session);
    }
    let reaper = sessions.len();
    poller
        .add(children.as_raw_fd(), reaper)
        .explain(|| "could not watch signals".into())?;
    let mut serial = 0;
    let mut front_end = FrontEnd::new(settings);
    loop {
        front_end.start_if_due();
        let deadlines = sessions.iter().filter_map(Session::deadline);
        let deadline = deadlines.chain(front_end.deadline()).min();
        for token in poller
            .wait(deadline)
            .explain(|| "could not wait for work".into())?
        {
            if token == reaper {
                drain(&children);
                reap(&mut sessions, &mut front_end, &poller, &mut serial);
            } else if let Some(session) = sessions.get_mut(token) {
                session.service(&poller, &mut serial);
            }
        }
        let late = |session: &&mut Session| session.deadline().is_some_and(|d| Instant::now() >= d);
        for session in sessions.iter_mut().filter(late) {
            session.service(&poller, &mut serial);
        }
    }
}

/// The device files of the channels, waiting for the kernel to announce them all.
fn find_ports(count: usize) -> Result<Vec<PathBuf>> {
    let deadline = Instant::now() + PORTS_WITHIN;
    loop {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            let device = PathBuf::from("/dev").join(entry.file_name());
            if name.trim().starts_with(PORT_NAME) && device.exists() {
                found.push(device);
            }
        }
        if found.len() >= count {
            return Ok(found);
        }
        if Instant::now() > deadline {
            let (has, want) = (found.len(), count);
            return Err(Error::new(format!(
                "the machine has {has} channels instead of {want}"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A descriptor that becomes readable when a child ends.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is read; signalfd's result is checked before it is
    // taken for a descriptor.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn drain(children: &OwnedFd) {
    let mut bytes = [0u8; 1024];
    // SAFETY: the kernel writes at most the buffer's length into it.
    while unsafe { libc::read(children.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) } > 0 {}
}

fn reap(sessions: &mut [Session], front_end: &mut FrontEnd, poller: &Poller, serial: &mut u64) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int that waitpid may write.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if pid <= 0 {
            return;
        }
        front_end.ended(pid);
        if let Some(session) = sessions
            .iter_mut()
            .find(|session| session.pid() == Some(pid))
        {
            session.ended(Ended::from_wait(status));
            session.service(poller, serial);
        }
    }
}
