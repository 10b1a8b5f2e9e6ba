//! The front end's side of the channel to the host: a virtio-serial port, on which hosts come and go.
//!
//! A port whose host end is closed says "hung up" to plain poll for as long as that lasts; edge-triggered epoll says it once.

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
/// The kernel's driver copies each write into one buffer; larger ones fail.
const LONGEST_WRITE: usize = 32 * 1024;
/// An answer that the host does not take is thrown away when as much is behind it.
const MOST_UNSENT: usize = 4 * LONGEST;

/// An open port.
pub struct Channel {
    port: File,
    epoll: OwnedFd,
    heard: Lines,
    to_say: VecDeque<u8>,
}

impl Channel {
    /// Opens the machine's port. `None`: it has none.
    pub fn find() -> io::Result<Option<Channel>> {
        find_port(Path::new(PORTS))
            .map(|device| Channel::open(&device))
            .transpose()
    }

    fn open(device: &Path) -> io::Result<Channel> {
        let port = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(device)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&epoll, &port, EventData::new_u64(0), events)?;
        Ok(Channel {
            port,
            epoll,
            heard: Lines::default(),
            to_say: VecDeque::new(),
        })
    }

    /// Sleeps until something happens on the port, so long at the most.
    pub fn wait(&self, time: Duration) {
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut events = [MaybeUninit::uninit(); 1];
        let _ = epoll::wait(self.epoll.as_fd(), &mut events, Some(&time));
    }

    /// Reads what has come, and writes what waits. An error: the port is gone.
    pub fn exchange(&mut self) -> io::Result<()> {
        self.read()?;
        self.write()
    }

    /// The next whole line that came.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        self.heard.next()
    }

    /// Says a line, now or as soon as the host reads.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        if self.to_say.len() > MOST_UNSENT {
            self.to_say.clear();
        }
        self.to_say.extend(line.as_bytes());
        self.to_say.push_back(b'\n');
        self.write()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.port.read(&mut bytes) {
                // The host's end is closed: what it had begun to say it won't go on with, and what it asked it won't read.
                Ok(0) => {
                    self.heard.hang_up();
                    self.to_say.clear();
                    return Ok(());
                }
                Ok(len) => self.heard.push(&bytes[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => return Err(e),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.to_say.is_empty() {
            let (first, _) = self.to_say.as_slices();
            match self.port.write(&first[..first.len().min(LONGEST_WRITE)]) {
                Ok(0) => return Ok(()),
                Ok(len) => drop(self.to_say.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The device file of the port, as the list of ports has it.
fn find_port(list: &Path) -> Option<PathBuf> {
    fs::read_dir(list).ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim_end() == PORT).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Bytes, taken apart into lines. A line that is too long is left out.
#[derive(Default)]
pub(crate) struct Lines {
    whole: VecDeque<Vec<u8>>,
    begun: Vec<u8>,
    too_long: bool,
}

/// Lines that nobody has asked for yet; a host that says more before it gets an answer is not heard.
const MOST_LINES: usize = 16;

impl Lines {
    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&c| c == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            self.too_long |= self.begun.len() + text.len() > LONGEST;
            if self.too_long {
                self.begun.clear();
            } else {
                self.begun.extend_from_slice(text);
            }
            if ends {
                let line = std::mem::take(&mut self.begun);
                if !self.too_long && !line.is_empty() && self.whole.len() < MOST_LINES {
                    self.whole.push_back(line);
                }
                self.too_long = false;
            }
        }
    }

    /// The host is gone: what it began to say it won't go on with.
    pub fn hang_up(&mut self) {
        self.begun.clear();
        self.too_long = false;
    }

    /// The next whole line.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next())
            .map(|line| String::from_utf8(line).expect("text"))
            .collect()
    }

    #[test]
    fn lines_come_in_pieces() {
        let mut lines = Lines::default();
        lines.push(b"one\ntw");
        lines.push(b"o\n\n\nthree");
        assert_eq!(all(&mut lines), ["one", "two"]);
        lines.hang_up();
        lines.push(b"four\n");
        assert_eq!(all(&mut lines), ["four"], "what was begun is forgotten");
    }

    #[test]
    fn endless_lines_take_no_memory() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.push(&[b'x'; 4096]);
            assert!(lines.begun.len() <= LONGEST);
        }
        lines.push(b"\nshort\n");
        assert_eq!(all(&mut lines), ["short"]);
        lines.push(&b"a\n".repeat(1000));
        assert_eq!(all(&mut lines).len(), MOST_LINES);
    }

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

    /// Any device that reads and writes without waiting does: a terminal's far end that is closed and opened again.
    #[test]
    fn hosts_come_and_go() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("set");
        let mut channel = Channel {
            port: File::from(OwnedFd::from(theirs)),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll"),
            heard: Lines::default(),
            to_say: VecDeque::new(),
        };
        ours.write_all(b"a question\nhalf a qu").expect("said");
        channel.exchange().expect("heard");
        assert_eq!(channel.line().as_deref(), Some(&b"a question"[..]));
        channel.say("an answer").expect("said");
        let mut answer = [0; 10];
        ours.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"an answer\n");
        drop(ours);
        channel.exchange().expect("the end is no failure");
        assert!(channel.line().is_none() && channel.heard.begun.is_empty());
    }
}
