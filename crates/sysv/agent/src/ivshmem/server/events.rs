//! The events that the loop waits for. Their sources are listed anew each time, so no list must be kept in
//! step with the descriptors of the back end.

use crate::buffered_socket::BufferedSocket;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The source of an event: pools and connections by their numbers, vectors, and slots of peers.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// A signal came.
    Signal,
    /// The connection to the keeper.
    Keeper,
    /// The control socket.
    Control,
    /// A connection to the control socket.
    Client(u32),
    /// The socket that machines with a pool connect to.
    Listener(u32),
    /// A vector of the host's doorbell in a pool.
    Doorbell(u32, usize),
    /// A peer of a pool.
    Peer(u32, u16),
    /// The endpoint for metrics.
    Endpoint,
    /// A connection to the endpoint for metrics.
    Scrape(u32),
}

/// The sources that are watched.
#[derive(Default)]
pub struct Events<'f> {
    sources: Vec<Source>,
    fds: Vec<PollFd<'f>>,
}

impl<'f> Events<'f> {
    /// Watches a source for these events, and for its end.
    pub fn watch(&mut self, source: Source, fd: &'f impl AsFd, flags: PollFlags) {
        self.sources.push(source);
        self.fds.push(PollFd::new(fd, flags));
    }

    /// Watches a connection until unsent bytes can be sent, or, if there are none, until bytes come: a client
    /// that does not read its responses has no more requests handled.
    pub fn watch_either(&mut self, source: Source, socket: &'f BufferedSocket) {
        let flags = if socket.unsent() > 0 { PollFlags::OUT } else { PollFlags::IN };
        self.watch(source, socket, flags);
    }

    /// Waits for events, at most for `most`; returns the sources that have any.
    pub fn wait(mut self, most: Duration) -> io::Result<Vec<(Source, PollFlags)>> {
        let timeout = Timespec::try_from(most).expect("a second fits");
        match poll(&mut self.fds, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        let events = self.fds.iter().map(PollFd::revents);
        Ok(self.sources.into_iter().zip(events).filter(|(_, flags)| !flags.is_empty()).collect())
    }
}
