//! A machine's agent with one channel, for tests without the machine.

use super::super::command::testing::Echoes;
#[cfg(test)]
use super::super::command::testing::Plain;
use super::{Context, Session, Source, Starter, State};
use crate::wire::ended::Ended;
use crate::wire::greeting::{greeting, HELLO};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
#[cfg(test)]
use std::time::Duration;
use std::time::Instant;
use vshmem_agent::guest::port::Poller;

/// The random number of the session.
pub const NONCE: [u8; 16] = [7; 16];

/// The agent, and the host's end of its channel unless a test has taken that.
pub struct Machine {
    session: Session,
    poller: Poller,
    starter: Box<dyn Starter>,
    host: Option<UnixStream>,
}

impl Machine {
    /// A machine whose commands echo their input.
    pub fn echoes() -> Machine {
        Machine::new(Box::new(Echoes))
    }

    /// A machine whose commands run on this kernel.
    #[cfg(test)]
    pub fn plain() -> Machine {
        Machine::new(Box::new(Plain))
    }

    fn new(starter: Box<dyn Starter>) -> Machine {
        let (mut host, port) = UnixStream::pair().expect("a pair");
        host.set_nonblocking(true).expect("a socket");
        let poller = Poller::new().expect("an epoll");
        let port = File::from(OwnedFd::from(port));
        let mut machine = Machine {
            session: Session::on(port, 0, &poller).expect("a session"),
            poller,
            starter,
            host: None,
        };
        host.write_all(&greeting(&HELLO, &NONCE)).expect("a socket");
        machine.work();
        machine.host = Some(host);
        machine
    }

    /// The host's end, after the answer to the greeting.
    #[cfg(test)]
    pub fn take_host(&mut self) -> UnixStream {
        let mut host = self.host.take().expect("it was not taken");
        let read = host.read(&mut [0; 32]).expect("the answer");
        assert_eq!(read, 32);
        host
    }

    /// Whether the session notices within a second that the host has closed its end, with the answer unread.
    #[cfg(test)]
    pub fn notices_the_end(&mut self) -> bool {
        self.host = None;
        let end = Instant::now() + Duration::from_secs(1);
        while self.session.has_host() && Instant::now() < end {
            let deadline = self.session.deadline().unwrap_or(end);
            let events = self.poller.wait(Some(deadline)).expect("an epoll");
            let mut context = Context { poller: &self.poller, starter: &mut *self.starter };
            if !events.is_empty() || Instant::now() >= deadline {
                while self.session.service(&mut context) {}
            }
        }
        !self.session.has_host()
    }

    /// Handles input from the host.
    pub fn receive(&mut self, bytes: &[u8]) {
        if let Some(host) = &mut self.host {
            let _ = host.write(bytes);
        }
    }

    /// Services the session until there is nothing to do, within limits.
    pub fn work(&mut self) {
        for _ in 0..1000 {
            let tokens = self.poller.wait(Some(Instant::now())).expect("an epoll");
            let idle = tokens.is_empty();
            for source in tokens.into_iter().map(Source::from_token) {
                if let Source::Command(_, stream) = source {
                    self.session.mark_ready(stream);
                }
            }
            self.reap();
            let mut context = Context { poller: &self.poller, starter: &mut *self.starter };
            if !self.session.service(&mut context) && idle {
                return;
            }
            if let Some(host) = &mut self.host {
                while host.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
            }
        }
    }

    fn reap(&mut self) {
        for pid in self.pids() {
            let mut status = 0;
            // SAFETY: `status` is a live int that waitpid may write.
            if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
                self.session.ended(pid, Ended::from_wait(status));
            }
        }
    }

    /// The pids of commands that have not ended.
    pub fn pids(&self) -> Vec<i32> {
        match &self.session.state {
            State::Active(active) => {
                let streams = active.streams.values();
                streams.filter_map(super::Stream::pid).collect()
            }
            State::Waiting(_) => vec![],
        }
    }

    /// Bytes that wait for the host.
    pub fn backlog(&self) -> usize {
        self.session.out.len()
    }

    /// Whether a host is connected.
    #[cfg(test)]
    pub fn has_host(&self) -> bool {
        self.session.has_host()
    }
}
