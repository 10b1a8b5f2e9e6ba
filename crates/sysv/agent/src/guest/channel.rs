//! The front end's side of the channel to the host: a virtio-serial port.

use super::lines::Lines;
use super::port::{self, Poller};
use super::protocol::{MAX_LINE, PORT};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

/// Bytes of responses that the host may leave unread; further responses are dropped.
const MAX_UNSENT: usize = 4 * MAX_LINE;

/// An open port.
pub struct Channel {
    port: File,
    poller: Poller,
    received: Lines,
    unsent: VecDeque<u8>,
}

impl Channel {
    /// Opens the machine's port; `None` if it has none.
    pub fn find() -> io::Result<Option<Channel>> {
        let found = port::find(Path::new(port::PORTS), |name| name == PORT);
        let open =
            |device| File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(device);
        found.first().map(|device| Channel::on(open(device)?)).transpose()
    }

    /// A channel on a port that is open.
    fn on(port: File) -> io::Result<Channel> {
        let poller = Poller::new()?;
        poller.add(&port, 0)?;
        Ok(Channel { port, poller, received: Lines::default(), unsent: VecDeque::new() })
    }

    /// Sleeps until an event of the port, or the deadline.
    pub fn wait(&self, deadline: Instant) {
        let _ = self.poller.wait(Some(deadline));
    }

    /// Reads and writes as much as it can without waiting. An error: the port is gone.
    pub fn transfer(&mut self) -> io::Result<()> {
        self.read()?;
        port::write(&mut self.port, &mut self.unsent).map(drop)
    }

    /// The next complete line that was received.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        self.received.next()
    }

    /// Sends a line, now or as soon as the host reads.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        if self.unsent.len() > MAX_UNSENT {
            self.unsent.clear();
        }
        self.unsent.extend(line.as_bytes());
        self.unsent.push_back(b'\n');
        port::write(&mut self.port, &mut self.unsent).map(drop)
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    /// A socket serves as the port.
    #[test]
    fn requests_and_responses_pass_until_the_host_side_is_closed() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("set");
        let mut channel = Channel::on(File::from(OwnedFd::from(theirs))).expect("an epoll");
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
