//! The loop of an agent: it serves its channels, and reaps processes.

use super::command::Starter;
use super::session::{Context, Session, Source};
use crate::wire::ended::Ended;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Instant;
use vshmem_agent::guest::port::Poller;
use vshmem_base::error::{Explain, Result};
use vshmem_base::signal_descriptor::Signals;

/// An agent, which runs commands for the hosts at the other ends of its channels.
pub struct Agent {
    poller: Poller,
    children: Signals,
    sessions: Vec<Session>,
    /// The sessions that may have more to do.
    busy: BTreeSet<usize>,
}

/// No channel has this index: the source of ended processes.
const REAPER: Source = Source::Port(1 << 16);

impl Agent {
    /// An agent without channels.
    pub fn new() -> Result<Agent> {
        let poller = Poller::new().explain(|| "could not make an epoll".into())?;
        let children =
            Signals::watch(&[libc::SIGCHLD]).explain(|| "could not watch for ended processes".into())?;
        poller.add(&children, REAPER.token()).explain(|| "could not watch signals".into())?;
        Ok(Agent { poller, children, sessions: Vec::new(), busy: BTreeSet::new() })
    }

    /// Adds the channel of this device.
    pub fn open(&mut self, device: &Path) -> Result<()> {
        let session = Session::open(device, self.sessions.len(), &self.poller);
        self.sessions.push(session.explain(|| format!("could not open {}", device.display()))?);
        Ok(())
    }

    /// Adds an open channel.
    pub fn add(&mut self, channel: File) -> Result<()> {
        let session = Session::on(channel, self.sessions.len(), &self.poller);
        self.sessions.push(session.explain(|| "could not watch a channel".into())?);
        Ok(())
    }

    /// Whether a host is connected to any channel.
    pub fn has_host(&self) -> bool {
        self.sessions.iter().any(Session::has_host)
    }

    /// Waits for work until a deadline, and does some. Calls `ended` with processes that have ended and may
    /// be no commands.
    pub fn work(
        &mut self,
        deadline: Option<Instant>,
        starter: &mut dyn Starter,
        ended: &mut dyn FnMut(i32),
    ) -> Result<()> {
        let deadlines = self.sessions.iter().filter_map(Session::deadline);
        let deadline = match self.busy.is_empty() {
            true => deadlines.chain(deadline).min(),
            false => Some(Instant::now()),
        };
        let tokens = self.poller.wait(deadline).explain(|| "could not wait for work".into())?;
        for source in tokens.into_iter().map(Source::from_token) {
            match source {
                REAPER => {
                    while self.children.next().is_some() {}
                    if let Some((index, stream)) = self.reap(ended) {
                        let notice = starter.ended();
                        self.sessions[index].tell(stream, notice);
                    }
                }
                Source::Port(index) => drop(self.busy.insert(index)),
                Source::Command(index, stream) => {
                    self.sessions[index].mark_ready(stream);
                    self.busy.insert(index);
                }
            }
        }
        let mut context = Context { poller: &self.poller, starter };
        let now = Instant::now();
        for (index, session) in self.sessions.iter_mut().enumerate() {
            let due = session.deadline().is_some_and(|deadline| now >= deadline);
            if (self.busy.remove(&index) || due) && session.service(&mut context) {
                self.busy.insert(index);
            }
        }
        context.starter.clean();
        Ok(())
    }

    /// Notes the processes that have ended. Returns the last one that was a command: its session's index and
    /// its stream.
    fn reap(&mut self, ended: &mut dyn FnMut(i32)) -> Option<(usize, u16)> {
        let mut last = None;
        loop {
            let mut status = 0;
            // SAFETY: `status` is a live int that waitpid may write.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                return last;
            }
            ended(pid);
            let status = Ended::from_wait(status);
            let mut sessions = self.sessions.iter_mut().enumerate();
            let found = sessions.find_map(|(index, session)| Some((index, session.ended(pid, status)?)));
            last = found.or(last);
            self.busy.extend(found.map(|(index, _)| index));
        }
    }
}
