//! Edge-triggered epoll, the only way to sleep on a virtio-serial port whose host end is closed: poll would
//! return POLLHUP at once.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Watches descriptors.
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller without descriptors.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll })
    }

    /// Watches a non-blocking descriptor until it is closed; `token` identifies it in [`Poller::wait`].
    pub fn add(&self, fd: impl AsFd, token: usize) -> io::Result<()> {
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let token = EventData::new_u64(token as u64);
        Ok(epoll::add(&self.epoll, fd, token, events)?)
    }

    /// Sleeps until an event or the deadline; returns the tokens of descriptors with events.
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<Vec<usize>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| left.try_into().ok());
        let mut events = Vec::with_capacity(64);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        let token = |event: epoll::Event| event.data.u64() as usize;
        Ok(events.into_iter().map(token).collect())
    }
}
