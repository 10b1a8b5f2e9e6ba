//! A small HTTP server, of `GET /metrics` and of `vshmem top --web`. Each connection has one request, which
//! is limited in length and time.

use crate::buffered_socket::BufferedSocket;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
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

/// What a client asks for, by GET.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path.
    pub path: &'a str,
    /// What follows a question mark.
    pub query: &'a str,
    /// The header `Host`, without its port.
    pub host: Option<&'a str>,
}

/// What it gets.
pub struct Answer {
    /// The type of the contents.
    pub kind: &'static str,
    /// The contents.
    pub body: String,
}

/// A connection.
struct Connection {
    socket: BufferedSocket,
    since: Instant,
}

/// The listening socket, and its connections.
pub struct Endpoint {
    /// The address, as users write it.
    pub address: String,
    /// The socket.
    pub listener: OwnedFd,
    connections: BTreeMap<u32, Connection>,
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
        let connection = Connection { socket: BufferedSocket::new(socket), since: Instant::now() };
        self.connections.insert(number, connection);
        true
    }

    /// The connections, by number.
    pub fn connections(&self) -> impl Iterator<Item = (u32, &BufferedSocket)> {
        self.connections.iter().map(|(number, connection)| (*number, &connection.socket))
    }

    /// Reads or writes as much as it can without waiting, and responds to a request that is complete: with
    /// what `answer` has for it, or that there is no such page. A connection that is finished is closed.
    pub fn advance(&mut self, number: u32, answer: impl FnOnce(&Request<'_>) -> Option<Answer>) {
        let connection = self.connections.get_mut(&number);
        if !connection.is_some_and(|it| it.advance(answer).is_ok_and(|goes_on| goes_on)) {
            self.connections.remove(&number);
        }
    }

    /// Serves its connections until nothing has happened for this time, or something has.
    ///
    /// # Errors
    /// That of poll(2), EINTR among them.
    pub fn serve(
        &mut self,
        patience: Duration,
        mut answer: impl FnMut(&Request<'_>) -> Option<Answer>,
    ) -> io::Result<()> {
        let numbers: Vec<u32> = self.connections.keys().copied().collect();
        let accepts = if self.can_accept() { PollFlags::IN } else { PollFlags::empty() };
        let wanted = |socket: &BufferedSocket| match socket.unsent() {
            0 => PollFlags::IN,
            _ => PollFlags::OUT,
        };
        let sockets = self.connections.values().map(|it| PollFd::new(&it.socket, wanted(&it.socket)));
        let mut all: Vec<PollFd<'_>> = sockets.chain([PollFd::new(&self.listener, accepts)]).collect();
        let patience =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        poll(&mut all, Some(&patience))?;
        let has_event: Vec<bool> = all.iter().map(|it| !it.revents().is_empty()).collect();
        drop(all);
        for (number, _) in numbers.iter().zip(&has_event).filter(|(_, has_event)| **has_event) {
            self.advance(*number, &mut answer);
        }
        let next = numbers.last().map_or(0, |last| last + 1);
        if has_event.last() == Some(&true) {
            (next..).take_while(|number| self.accept(*number)).for_each(drop);
        }
        self.expire();
        Ok(())
    }

    /// Closes connections that have taken too long.
    pub fn expire(&mut self) {
        self.connections.retain(|_, connection| connection.since.elapsed() < TIMEOUT);
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

impl Connection {
    /// Receives, responds and sends; false if the connection is finished.
    fn advance(&mut self, answer: impl FnOnce(&Request<'_>) -> Option<Answer>) -> io::Result<bool> {
        let socket = &mut self.socket;
        if socket.unsent() == 0 {
            let is_open = socket.receive(MAX_REQUEST)?;
            if !is_complete(&socket.received) && socket.received.len() <= MAX_REQUEST {
                return Ok(is_open);
            }
            let response = respond(&socket.received, answer);
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
pub(crate) fn respond(request: &[u8], answer: impl FnOnce(&Request<'_>) -> Option<Answer>) -> String {
    let refusal =
        |status: &str, more: &str| response(status, more, "text/plain", &format!("{status}\n"), true);
    if !is_complete(request) {
        return refusal("431 Request Header Fields Too Large", "");
    }
    let text = String::from_utf8_lossy(request);
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    let [method, target, version] = words[..] else {
        return refusal("400 Bad Request", "");
    };
    if !version.starts_with("HTTP/1.") {
        return refusal("505 HTTP Version Not Supported", "");
    }
    if !matches!(method, "GET" | "HEAD") {
        return refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines.filter_map(|line| line.split_once(':'));
    let mut hosts = headers.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|(_, value)| without_port(value.trim()));
    match answer(&Request { path, query, host }) {
        Some(Answer { kind, body }) => response("200 OK", "", kind, &body, method == "GET"),
        None => refusal("404 Not Found", ""),
    }
}

/// A host's name or address, of a header that may have a port as well.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn response(status: &str, more: &str, kind: &str, body: &str, with_body: bool) -> String {
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n{more}Connection: close\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(request: &Request<'_>) -> Option<Answer> {
        (request.path == "/metrics").then(|| Answer { kind: "text/plain", body: "x 1\n".into() })
    }

    fn status(request: &str) -> String {
        let response = respond(request.as_bytes(), metrics);
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
        let head = respond(b"HEAD /metrics HTTP/1.1\r\n\r\n", metrics);
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"));
    }

    #[test]
    fn requests_are_taken_apart() {
        let seen = |text: &str, wanted: Request<'_>| {
            respond(text.as_bytes(), |request| {
                assert_eq!(*request, wanted);
                None
            });
        };
        let request = Request { path: "/data", query: "token=5", host: Some("127.0.0.1") };
        seen("GET /data?token=5 HTTP/1.1\r\nA: b\r\nhOst: 127.0.0.1:80\r\n\r\n", request);
        let request = Request { path: "/", query: "", host: Some("[::1]") };
        seen("GET / HTTP/1.1\nHost: [::1]\n\n", request);
        seen("GET /? HTTP/1.1\r\n\r\n", Request { path: "/", query: "", host: None });
    }

    #[test]
    fn clients_are_served_and_none_holds_the_others_up() {
        use std::io::{Read, Write};
        let mut endpoint = Endpoint::listen("0").unwrap();
        let connect = || std::net::TcpStream::connect(&endpoint.address).unwrap();
        let (_silent, mut half, mut asks) = (connect(), connect(), connect());
        half.write_all(b"GET /metr").unwrap();
        asks.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        for _ in 0..4 {
            endpoint.serve(Duration::from_millis(50), metrics).unwrap();
        }
        let mut got = String::new();
        asks.read_to_string(&mut got).unwrap();
        assert!(got.ends_with("\r\n\r\nx 1\n"), "{got}");
        assert_eq!(endpoint.connections.len(), 2, "the others wait");
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
