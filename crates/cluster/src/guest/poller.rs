//! Edge-triggered epoll, the only way to sleep on a virtio-serial port whose host end is closed: poll would
//! return POLLHUP at once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

/// Watches descriptors.
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller without descriptors.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: a plain value; the result is checked below.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Poller { epoll })
    }

    /// Watches a non-blocking descriptor until it is closed; `token` identifies it in [`Poller::wait`].
    pub fn add(&self, fd: RawFd, token: usize) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event {
            events,
            u64: token as u64,
        };
        // SAFETY: `event` is read during the call only.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sleeps until an event or the deadline; returns the tokens of descriptors with events.
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<Vec<usize>> {
        let timeout = deadline.map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            match left.is_zero() {
                true => 0,
                false => i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1,
            }
        });
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: the kernel writes at most 64 events into the array.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                timeout,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(vec![])
            } else {
                Err(error)
            };
        }
        Ok(events[..count as usize]
            .iter()
            .map(|event| event.u64 as usize)
            .collect())
    }
}

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: both calls take plain values.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
