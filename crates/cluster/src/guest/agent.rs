//! Serves commands on the machine's channels, and reaps orphans, as a first process must.

use super::command::Commands;
use super::front_end::FrontEnd;
use super::poller::Poller;
use super::session::{Context, Session, Source};
use crate::error::{Explain, Result};
use crate::launcher::table;
use crate::state::settings::Settings;
use crate::wire::ended::Ended;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

/// Serves until the machine is turned off.
pub fn serve(settings: &Settings) -> Result<()> {
    let poller = Poller::new().explain(|| "could not make an epoll".into())?;
    let children = watch_children().explain(|| "could not watch for ended processes".into())?;
    let mut sessions = Vec::new();
    let channels = table::guest(&settings.launcher).channels(settings.channels)?;
    for (index, device) in channels.iter().enumerate() {
        let session = Session::open(device, index, &poller)
            .explain(|| format!("could not open {}", device.display()))?;
        sessions.push(session);
    }
    // An index without a session.
    let reaper = Source::Port(sessions.len());
    poller
        .add(children.as_raw_fd(), reaper.token())
        .explain(|| "could not watch signals".into())?;
    let mut commands = Commands::new();
    let mut front_end = FrontEnd::new(settings);
    let mut busy = BTreeSet::new();
    loop {
        front_end.start_if_due();
        let deadlines = sessions.iter().filter_map(Session::deadline);
        let deadline = deadlines.chain(front_end.deadline()).min();
        let deadline = match busy.is_empty() {
            true => deadline,
            false => Some(Instant::now()),
        };
        let tokens = poller
            .wait(deadline)
            .explain(|| "could not wait for work".into())?;
        for source in tokens.into_iter().map(Source::from_token) {
            match source {
                _ if source == reaper => {
                    drain(&children);
                    reap(&mut sessions, &mut front_end, &mut busy);
                }
                Source::Port(index) => drop(busy.insert(index)),
                Source::Command(index, stream) => {
                    sessions[index].mark_ready(stream);
                    busy.insert(index);
                }
            }
        }
        let mut context = Context {
            poller: &poller,
            starter: &mut commands,
        };
        let now = Instant::now();
        for (index, session) in sessions.iter_mut().enumerate() {
            let due = session.deadline().is_some_and(|deadline| now >= deadline);
            if (busy.remove(&index) || due) && session.service(&mut context) {
                busy.insert(index);
            }
        }
    }
}

/// A descriptor that becomes readable when a child ends.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is read; signalfd's result is checked before it
    // is taken for a descriptor.
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

/// Reaps processes; adds the indices of sessions whose commands have ended to `busy`.
fn reap(sessions: &mut [Session], front_end: &mut FrontEnd, busy: &mut BTreeSet<usize>) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int that waitpid may write.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if pid <= 0 {
            return;
        }
        front_end.ended(pid);
        let ended = Ended::from_wait(status);
        busy.extend(
            sessions
                .iter_mut()
                .position(|session| session.ended(pid, ended)),
        );
    }
}
