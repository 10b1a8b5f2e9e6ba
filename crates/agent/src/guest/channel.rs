//! The front end's side of the channel to the host: a virtio-serial port, whose host side is opened and
//! closed.
//!
//! While the host side is closed, plain poll reports a hang-up all the time; edge-triggered epoll reports it
//! once.

use super::lines::Lines;
use super::protocol::{LONGEST, PORT};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::Timespec;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the kernel lists the ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// Longest write: the kernel's driver copies each into one buffer, and fails larger ones.
const LONGEST_WRITE: usize = 32 * 1024;
/// Responses that the host does not read are dropped when there are more bytes than this.
const MOST_UNSENT: usize = 4 * LONGEST;

/// An open port.
pub struct Channel {
    port: File,
    epoll: OwnedFd,
    received: Lines,
    unsent: VecDeque<u8>,
}

impl Channel {
    /// Opens the machine's port; `None` if it has none.
    pub fn find() -> io::Result<Option<Channel>> {
        find_port(Path::new(PORTS)).map(|device| Channel::open(&device)).transpose()
    }

    fn open(device: &Path) -> io::Result<Channel> {
        let port = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(device)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&epoll, &port, EventData::new_u64(0), events)?;
        Ok(Channel { port, epoll, received: Lines::default(), unsent: VecDeque::new() })
    }

    /// Sleeps until something happens on the port, or the time is over.
    pub fn wait(&self, time: Duration) {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut events = [MaybeUninit::uninit(); 1];
        let _ = epoll::wait(self.epoll.as_fd(), &mut events, Some(&time));
    }

    /// Reads and writes as much as it can without waiting. An error: the port is gone.
    pub fn transfer(&mut self) -> io::Result<()> {
        self.read()?;
        self.write()
    }

    /// The next complete line that was received.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        self.received.next()
    }

    /// Sends a line, now or as soon as the host reads.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        if self.unsent.len() > MOST_UNSENT {
            self.unsent.clear();
        }
        self.unsent.extend(line.as_bytes());
        self.unsent.push_back(b'\n');
        self.write()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.port.read(&mut bytes) {
                // The host side is closed: a line that was begun won't be completed, and responses won't be
                // read.
                Ok(0) => {
                    self.received.hang_up();
                    self.unsent.clear();
                    return Ok(());
                }
                Ok(len) => self.received.push(&bytes[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => return Err(e),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match self.port.write(&first[..first.len().min(LONGEST_WRITE)]) {
                Ok(0) => return Ok(()),
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The device file of the port, by a list of ports as sysfs has it.
fn find_port(list: &Path) -> Option<PathBuf> {
    fs::read_dir(list).ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim_end() == PORT).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_its_name() {
        let list = std::env::temp_dir().join(format!("vshmem-ports-{}", std::process::id()));
        for (port, name) in [("vport1p1", "vshmem.0"), ("vport1p9", PORT)] {
            fs::create_dir_all(list.join(port)).expect("made");
            fs::write(list.join(port).join("name"), format!("{name}\n")).expect("written");
        }
        assert_eq!(find_port(&list), Some("/dev/vport1p9".into()));
        fs::remove_dir_all(&list).expect("removed");
        assert_eq!(find_port(&list), None);
    }

    /// A socket serves as the port.
    #[test]
    fn requests_and_responses_pass_until_the_host_side_is_closed() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("set");
        let mut channel = Channel {
            port: File::from(OwnedFd::from(theirs)),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll"),
            received: Lines::default(),
            unsent: VecDeque::new(),
        };
        ours.write_all(b"a request\nhalf a req").expect("sent");
        channel.transfer().expect("received");
        assert_eq!(channel.line().as_deref(), Some(&b"a request"[..]));
        channel.send("a response").expect("sent");
        let mut response = [0; 11];
        ours.read_exact(&mut response).expect("a response");
        assert_eq!(&response, b"a response\n");
        drop(ours);
        channel.transfer().expect("the end is no failure");
        assert!(channel.line().is_none() && channel.received.partial.is_empty());
    }
}
