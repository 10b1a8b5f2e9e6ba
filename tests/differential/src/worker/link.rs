//! The worker's line to the harness.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// A connection to the harness, with what was read but is not a whole line yet.
pub struct Link {
    socket_name: String,
    stream: UnixStream,
    pending: Vec<u8>,
}

impl Link {
    /// Connects to the abstract socket of this name and says who calls.
    pub fn connect(socket_name: &str) -> Link {
        let address = SocketAddr::from_abstract_name(socket_name).expect("a socket name");
        let stream = UnixStream::connect_addr(&address).expect("the harness listens");
        let mut link = Link { socket_name: socket_name.to_owned(), stream, pending: Vec::new() };
        link.write_line(&format!("hello {}", std::process::id()));
        link
    }

    /// A forked child's own connection; the parent's is closed in the child.
    pub fn reconnect(&mut self) {
        *self = Link::connect(&self.socket_name);
    }

    pub fn socket_name(&self) -> &str {
        &self.socket_name
    }

    /// The next command; `None` when the harness has hung up.
    pub fn read_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    pub fn write_line(&mut self, line: &str) {
        // If the harness is gone there is nobody to tell; the next read ends the worker.
        let _ = self.stream.write_all(format!("{line}\n").as_bytes());
    }
}
