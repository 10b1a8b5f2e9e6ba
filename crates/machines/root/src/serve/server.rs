//! The server: a thread for each connection of a machine, and bounds for all.

use super::contents::Contents;
use super::peer::Peer;
use super::protocol::{self, Export};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What clients can have at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections in all. Each may take the memory of the longest answer.
    pub connections: usize,
    /// Connections of one client, where clients can be told apart.
    pub each: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 512, each: 8, handshake: Duration::from_secs(10) }
    }
}

/// Serves the bytes of an image.
pub struct Server {
    contents: Arc<Contents>,
    id: String,
    limits: Limits,
    /// Connections by who has made them.
    clients: Mutex<HashMap<Peer, usize>>,
}

impl Export for Server {
    fn name(&self) -> &str {
        &self.id
    }

    fn length(&self) -> u64 {
        self.contents.image().length()
    }

    fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.contents.read(into, at)
    }
}

impl Server {
    /// One that serves these bytes.
    pub fn new(contents: Arc<Contents>, limits: Limits) -> Arc<Server> {
        let id = contents.image().id();
        Arc::new(Server { contents, id, limits, clients: HashMap::new().into() })
    }

    /// Takes connections until the listener fails. With `linger` it ends when there was none for so long.
    pub fn run(self: &Arc<Server>, listener: &UnixListener, linger: Option<Duration>) -> io::Result<()> {
        let mut lonely = Instant::now();
        loop {
            if let Some(linger) = linger {
                if self.connections() > 0 {
                    lonely = Instant::now();
                }
                if lonely.elapsed() >= linger {
                    return Ok(());
                }
                let mut listens = [PollFd::new(listener, PollFlags::IN)];
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                match poll(&mut listens, Some(&second)) {
                    Ok(0) | Err(Errno::INTR) => continue,
                    Ok(_) => (),
                    Err(why) => return Err(why.into()),
                }
            }
            match listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(why) if why.kind() == ErrorKind::Interrupted => (),
                Err(why) if why.kind() == ErrorKind::ConnectionAborted => (),
                // Descriptors or memory have run out: others are served on.
                Err(why) if is_passing(&why) => thread::sleep(Duration::from_millis(100)),
                Err(why) => return Err(why),
            }
        }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).values().sum()
    }

    /// Serves a connection in a thread of its own, if it is not one too many.
    fn take(self: &Arc<Server>, stream: UnixStream) {
        let Ok(peer) = Peer::of(&stream) else { return };
        let Some(place) = Place::new(self, peer) else { return };
        let server = self.clone();
        // Without a thread the connection ends here.
        let _ = thread::Builder::new().name("client".into()).stack_size(256 << 10).spawn(move || {
            let until = Instant::now() + server.limits.handshake;
            let mut client = Client { stream, until: Some(until) };
            // What a client does wrong, or that it has gone, ends its connection and nothing else.
            let _ = protocol::serve(&mut client, &*server, &mut |client| client.begin());
            drop(place);
        });
    }
}

fn is_passing(why: &io::Error) -> bool {
    let passing = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    why.raw_os_error().is_some_and(|code| passing.iter().any(|it| it.raw_os_error() == code))
}

/// A connection that counts.
struct Place {
    server: Arc<Server>,
    peer: Peer,
}

impl Place {
    fn new(server: &Arc<Server>, peer: Peer) -> Option<Place> {
        let mut clients = server.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let own = clients.get(&peer).copied().unwrap_or(0);
        let all: usize = clients.values().sum();
        let is_one = peer != Peer::Unseen;
        if is_one && own >= server.limits.each || all >= server.limits.connections {
            return None;
        }
        clients.insert(peer, own + 1);
        Some(Place { server: server.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.server.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match clients.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(clients.remove(&self.peer)),
        }
    }
}

/// A connection, with a deadline until its handshake is over.
struct Client {
    stream: UnixStream,
    until: Option<Instant>,
}

impl Client {
    /// A machine may be stopped, or read nothing, for as long as it likes.
    fn begin(&mut self) -> io::Result<()> {
        self.until = None;
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(into)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.stream.set_write_timeout(Some(left))?;
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
