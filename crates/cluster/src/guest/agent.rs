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
use std::time::Instant;
use vshmem_agent::signals::Signals;

/// Serves until the machine is turned off.
pub fn serve(settings: &Settings) -> Result<()> {
    let poller = Poller::new().explain(|| "could not make an epoll".into())?;
    let children =
        Signals::watch(&[libc::SIGCHLD]).explain(|| "could not watch for ended processes".into())?;
    let mut sessions = Vec::new();
    let channels = table::guest(&settings.launcher).channels(settings.channels)?;
    for (index, device) in channels.iter().enumerate() {
        let session = Session::open(device, index, &poller)
            .explain(|| format!("could not open {}", device.display()))?;
        sessions.push(session);
    }
    // An index without a session.
    let reaper = Source::Port(sessions.len());
    poller.add(&children, reaper.token()).explain(|| "could not watch signals".into())?;
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
        let tokens = poller.wait(deadline).explain(|| "could not wait for work".into())?;
        for source in tokens.into_iter().map(Source::from_token) {
            match source {
                _ if source == reaper => {
                    while children.next().is_some() {}
                    reap(&mut sessions, &mut front_end, &mut busy);
                }
                Source::Port(index) => drop(busy.insert(index)),
                Source::Command(index, stream) => {
                    sessions[index].mark_ready(stream);
                    busy.insert(index);
                }
            }
        }
        let mut context = Context { poller: &poller, starter: &mut commands };
        let now = Instant::now();
        for (index, session) in sessions.iter_mut().enumerate() {
            let due = session.deadline().is_some_and(|deadline| now >= deadline);
            if (busy.remove(&index) || due) && session.service(&mut context) {
                busy.insert(index);
            }
        }
    }
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
        busy.extend(sessions.iter_mut().position(|session| session.ended(pid, ended)));
    }
}
