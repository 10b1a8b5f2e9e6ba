//! Virtio-serial ports of a machine, whose host side is opened and closed.
//!
//! While the host side is closed, plain poll reports a hang-up all the time; edge-triggered epoll reports it
//! once.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The directory in which the kernel lists the ports.
pub const PORTS: &str = "/sys/class/virtio-ports";
/// Bytes of the longest write: the kernel's driver copies each into one buffer, and fails larger ones.
const LONGEST_WRITE: usize = 32 * 1024;

/// The device files of the ports with such a name, by a list of ports as sysfs has it.
pub fn find(list: &Path, is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let ports = fs::read_dir(list).into_iter().flatten().flatten();
    let found = ports.filter(|port| {
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        is_it(name.trim_end())
    });
    found.map(|port| Path::new("/dev").join(port.file_name())).collect()
}

/// Writes as much as it can without waiting, to a port or the like. True if it has written something.
///
/// # Errors
/// The port is gone.
pub fn write(port: &mut File, unsent: &mut VecDeque<u8>) -> io::Result<bool> {
    let before = unsent.len();
    while !unsent.is_empty() {
        let (first, _) = unsent.as_slices();
        match port.write(&first[..first.len().min(LONGEST_WRITE)]) {
            Ok(0) => break,
            Ok(len) => drop(unsent.drain(..len)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
    Ok(unsent.len() < before)
}

/// Watches descriptors, edge-triggered.
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller without descriptors.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll })
    }

    /// Watches a non-blocking descriptor until it is closed; `token` identifies it in [`Poller::wait`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, fd: impl AsFd, token: usize) -> io::Result<()> {
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let token = EventData::new_u64(token as u64);
        Ok(epoll::add(&self.epoll, fd, token, events)?)
    }

    /// Sleeps until an event or the deadline; returns the tokens of descriptors with events.
    ///
    /// # Errors
    /// The kernel's.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::protocol::PORT;

    #[test]
    fn ports_are_found_by_their_names() {
        let list = std::env::temp_dir().join(format!("vshmem-ports-{}", std::process::id()));
        for (port, name) in [("vport1p1", "vshmem.0"), ("vport1p9", PORT)] {
            fs::create_dir_all(list.join(port)).expect("made");
            fs::write(list.join(port).join("name"), format!("{name}\n")).expect("written");
        }
        assert_eq!(find(&list, |name| name == PORT), [Path::new("/dev/vport1p9")]);
        assert_eq!(find(&list, |name| name.starts_with("vshmem.")), [Path::new("/dev/vport1p1")]);
        fs::remove_dir_all(&list).expect("removed");
        assert!(find(&list, |_| true).is_empty());
    }
}
