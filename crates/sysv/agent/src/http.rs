//! The HTTP server of `GET /metrics`. Each connection has one request, which is limited in length and time.

use crate::buffered_socket::BufferedSocket;
use crate::metrics::CONTENT_TYPE;
use rustix::net::SocketFlags;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Explain, Result};

/// Connections at a time; further ones wait in the listening socket's backlog.
const MAX_CONNECTIONS: usize = 16;
/// Bytes of the longest request.
const MAX_REQUEST: usize = 8 << 10;
/// Time that a connection may take from being accepted to the last byte of the response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection, by which metrics are scraped.
struct Scrape {
    socket: BufferedSocket,
    since: Instant,
}

/// The listening socket, and its connections.
pub struct Endpoint {
    /// The address, as users write it.
    pub address: String,
    /// The socket.
    pub listener: OwnedFd,
    connections: BTreeMap<u32, Scrape>,
}

impl Endpoint {
    /// Listens at an address: a path, `IP:PORT`, or a port of the loopback interface.
    pub fn listen(address: &str) -> Result<Endpoint> {
        let failed = || format!("could not listen at {address}");
        let listener: OwnedFd = if address.contains('/') {
            remove_socket(Path::new(address));
            let listener = UnixListener::bind(address).explain(failed)?;
            fs::set_permissions(address, fs::Permissions::from_mode(0o600)).explain(failed)?;
            listener.set_nonblocking(true).explain(failed)?;
            listener.into()
        } else {
            let listener = TcpListener::bind(parse(address)?).explain(failed)?;
            listener.set_nonblocking(true).explain(failed)?;
            let at = listener.local_addr().explain(failed)?.to_string();
            return Ok(Endpoint::adopt(at, listener.into()));
        };
        Ok(Endpoint::adopt(address.into(), listener))
    }

    /// Takes over a socket that listens already.
    pub fn adopt(address: String, listener: OwnedFd) -> Endpoint {
        Endpoint { address, listener, connections: BTreeMap::new() }
    }

    /// Whether another connection may be accepted.
    pub fn can_accept(&self) -> bool {
        self.connections.len() < MAX_CONNECTIONS
    }

    /// Accepts a connection, if there is one and it may be accepted.
    pub fn accept(&mut self, number: u32) -> bool {
        if !self.can_accept() {
            return false;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else {
            return false;
        };
        let scrape = Scrape { socket: BufferedSocket::new(socket), since: Instant::now() };
        self.connections.insert(number, scrape);
        true
    }

    /// The connections, by number.
    pub fn connections(&self) -> impl Iterator<Item = (u32, &BufferedSocket)> {
        self.connections.iter().map(|(number, scrape)| (*number, &scrape.socket))
    }

    /// Reads or writes as much as it can without waiting, and responds to a request that is complete; `text`
    /// makes the metrics. A connection that is finished is closed.
    pub fn advance(&mut self, number: u32, text: impl FnOnce() -> String) {
        let scrape = self.connections.get_mut(&number);
        if !scrape.is_some_and(|scrape| scrape.advance(text).is_ok_and(|goes_on| goes_on)) {
            self.connections.remove(&number);
        }
    }

    /// Closes connections that have taken too long.
    pub fn expire(&mut self) {
        self.connections.retain(|_, scrape| scrape.since.elapsed() < TIMEOUT);
    }

    /// Closes the endpoint.
    pub fn close(self) {
        // The keeper still has a copy of the descriptor, which closing alone would leave listening.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if self.address.contains('/') {
            remove_socket(Path::new(&self.address));
        }
    }
}

/// Removes a path if it is a socket.
fn remove_socket(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        let _ = fs::remove_file(path);
    }
}

pub(crate) fn parse(address: &str) -> Result<SocketAddr> {
    if let Ok(port) = address.parse::<u16>() {
        return Ok((IpAddr::from(Ipv4Addr::LOCALHOST), port).into());
    }
    address.parse().map_err(|_| {
        error!("{address} is no address for metrics; give a port (of 127.0.0.1), IP:PORT, a path with a slash in it, or socket")
    })
}

impl Scrape {
    /// Receives, responds and sends; false if the connection is finished.
    fn advance(&mut self, text: impl FnOnce() -> String) -> io::Result<bool> {
        let socket = &mut self.socket;
        if socket.unsent() == 0 {
            let is_open = socket.receive(MAX_REQUEST)?;
            if !is_complete(&socket.received) && socket.received.len() <= MAX_REQUEST {
                return Ok(is_open);
            }
            let response = respond(&socket.received, text);
            socket.push(response.as_bytes());
        }
        socket.send()?;
        if socket.unsent() > 0 {
            return Ok(true);
        }
        let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Write);
        // Closing a socket with unread bytes resets the connection, and the peer loses the response.
        let mut rest = [0u8; 2048];
        for _ in 0..8 {
            if !matches!(rustix::io::read(&*socket, &mut rest), Ok(1..)) {
                break;
            }
        }
        Ok(false)
    }
}

/// Whether the head of a request is complete.
fn is_complete(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n")
}

/// The response to a request.
pub(crate) fn respond(request: &[u8], text: impl FnOnce() -> String) -> String {
    let refusal =
        |status: &str, more: &str| response(status, more, "text/plain", &format!("{status}\n"), true);
    if !is_complete(request) {
        return refusal("431 Request Header Fields Too Large", "");
    }
    let line = request.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [method, target, version] = words[..] else {
        return refusal("400 Bad Request", "");
    };
    if !version.starts_with("HTTP/1.") {
        return refusal("505 HTTP Version Not Supported", "");
    }
    if !matches!(method, "GET" | "HEAD") {
        return refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    }
    if target.split('?').next() != Some("/metrics") {
        return refusal("404 Not Found", "");
    }
    response("200 OK", "", CONTENT_TYPE, &text(), method == "GET")
}

fn response(status: &str, more: &str, kind: &str, body: &str, with_body: bool) -> String {
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        let response = respond(request.as_bytes(), || "x 1\n".into());
        response.split("\r\n").next().unwrap_or_default().into()
    }

    #[test]
    fn requests_get_their_status() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET /metrics?a=b HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status("GET /metrics HTTP/2\r\n\r\n"), "HTTP/1.1 505 HTTP Version Not Supported");
        assert_eq!(status("\r\n\r\n"), "HTTP/1.1 400 Bad Request");
        assert_eq!(status("GET /metrics HTTP/1.1\r\n"), "HTTP/1.1 431 Request Header Fields Too Large");
        let head = respond(b"HEAD /metrics HTTP/1.1\r\n\r\n", || "x 1\n".into());
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"));
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!(parse("9500").unwrap().to_string(), "127.0.0.1:9500");
        assert_eq!(parse("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(parse("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        for bad in ["", "localhost", "65536", "1.2.3.4", "a:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
