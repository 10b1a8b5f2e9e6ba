//! The back end: one loop over all sockets, eventfds and the clock. Nothing in it waits for a peer.

mod scrape;

use self::scrape::{Scrapes, METRICS};
use crate::error::{Error, Explain, Result};
use crate::ivshmem::control::{Answer, Request, Status, LONGEST};
use crate::ivshmem::directory::Directory;
use crate::ivshmem::link::{Link, BYE, END, FORGET, HAND_OVER, MOST_VECTORS, STORE};
use crate::ivshmem::peer_table::PeerTable;
use crate::ivshmem::program::{Part, Program};
use crate::ivshmem::served::{name_of, new_bells, open_file, Parts, Peer, Served};
use crate::kernel::now;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::SocketFlags;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_transport::PoolRef;

/// Under which label the keeper has the lock.
pub const LOCK: &str = "lock";
const CONTROL: &str = "control";
/// Connections to the control socket at once.
const MOST_CLIENTS: usize = 64;
/// Connections accepted before others get their turn.
const AT_ONCE: usize = 16;
/// Names of machines that have not connected yet.
const MOST_NAMES: usize = 256;

/// How long work in the pools may go on when this process ends.
const SOON: Duration = Duration::from_millis(300);

/// While there is something to do besides.
const AT_ONCE_OR_NOT: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What an event is about. A number belongs to a pool or a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Signal,
    Clock,
    Keeper,
    Control,
    Client(u32),
    Listener(u32),
    Bell(u32, u16),
    Peer(u32, u16),
    Endpoint,
    Scrape(u32),
}

impl Token {
    fn word(self) -> u64 {
        let (kind, number, part) = match self {
            Token::Signal => (0, 0, 0),
            Token::Clock => (1, 0, 0),
            Token::Keeper => (2, 0, 0),
            Token::Control => (3, 0, 0),
            Token::Client(n) => (4, n, 0),
            Token::Listener(n) => (5, n, 0),
            Token::Bell(n, part) => (6, n, part),
            Token::Peer(n, part) => (7, n, part),
            Token::Endpoint => (8, 0, 0),
            Token::Scrape(n) => (9, n, 0),
        };
        kind << 48 | u64::from(part) << 32 | u64::from(number)
    }

    fn of(word: u64) -> Token {
        let (number, part) = (word as u32, (word >> 32) as u16);
        match word >> 48 {
            0 => Token::Signal,
            1 => Token::Clock,
            2 => Token::Keeper,
            3 => Token::Control,
            4 => Token::Client(number),
            5 => Token::Listener(number),
            6 => Token::Bell(number, part),
            7 => Token::Peer(number, part),
            8 => Token::Endpoint,
            _ => Token::Scrape(number),
        }
    }
}

/// A connection to the control socket.
struct Client {
    stream: UnixStream,
    heard: Vec<u8>,
    to_say: Vec<u8>,
}

/// How the loop goes on.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Restart,
    Stop,
}

struct Server<'a> {
    program: &'a Program,
    epoll: OwnedFd,
    signals: OwnedFd,
    clock: OwnedFd,
    link: Link,
    keeper: u32,
    lock: OwnedFd,
    control: UnixListener,
    pools: BTreeMap<u32, Served>,
    clients: BTreeMap<u32, Client>,
    names: HashMap<u32, String>,
    serial: u32,
    since: u64,
    ever_served: bool,
    scrapes: Scrapes,
}

/// Takes the lock of the directory; `None` if a back end or its keeper has it.
pub fn lock(directory: &Directory) -> Result<Option<OwnedFd>> {
    let path = directory.lock();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .explain(|| format!("could not open {}", path.display()))?;
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    match rustix::fs::flock(&file, operation) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(e) => return Err(e).explain(|| format!("could not lock {}", path.display())),
    }
    // Whoever held the lock before may have removed the file since it was opened.
    let ours = file.metadata().map(|meta| meta.ino()).ok();
    let there = fs::metadata(&path).map(|meta| meta.ino()).ok();
    Ok((ours == there).then(|| file.into()))
}

/// Serves until it is told to stop. `link` leads to a keeper, which hands over what a back end before this one has left.
pub fn serve(program: &Program, link: Link) -> Result<()> {
    let mut server = Server::begin(program, link)?;
    server.log(&format!("serving, process {}", std::process::id()));
    loop {
        match server.round()? {
            Next::GoOn => (),
            Next::Restart => {
                server.log("beginning anew");
                server.end_work();
                let error = program.become_anew(&server.link);
                server.log(&format!("could not begin anew: {error}"));
                server.begin_work();
            }
            Next::Stop => {
                server.end();
                return Ok(());
            }
        }
    }
}

impl<'a> Server<'a> {
    fn begin(program: &'a Program, link: Link) -> Result<Server<'a>> {
        Directory::at(program.directory.path())?;
        raise_limit();
        let failed = || "could not set up the back end's loop".to_string();
        let mut kept = Kept::receive(&link)?;
        let lock = match kept.take(LOCK).pop() {
            Some(lock) => lock,
            None => self::lock(&program.directory)?.ok_or_else(|| {
                Error::new(format!(
                    "there is a back end in {} already",
                    program.directory.path().display()
                ))
            })?,
        };
        let control = match kept.take(CONTROL).pop() {
            Some(control) => control.into(),
            None => listen(&program.directory.control())?,
        };
        let mut server = Server {
            program,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).explain(failed)?,
            signals: crate::signals::descriptor().explain(failed)?,
            clock: clock().explain(failed)?,
            link,
            keeper: kept.keeper,
            lock,
            control,
            pools: BTreeMap::new(),
            clients: BTreeMap::new(),
            names: HashMap::new(),
            serial: 0,
            since: now(),
            ever_served: false,
            scrapes: Scrapes::default(),
        };
        if let Some((address, listener)) = kept.endpoint() {
            server.adopt_endpoint(address, listener);
        }
        // Before a pool is looked at: who can't ask it can kill it.
        let pid = program.directory.process();
        fs::write(&pid, format!("{}\n", std::process::id()))
            .explain(|| format!("could not write {}", pid.display()))?;
        server.store_own();
        let heard = [
            (server.signals.as_fd(), Token::Signal),
            (server.clock.as_fd(), Token::Clock),
            (server.link.as_fd(), Token::Keeper),
            (server.control.as_fd(), Token::Control),
        ];
        for (fd, token) in heard {
            server.watch(fd, token, EventFlags::IN).explain(failed)?;
        }
        server.take_over(kept);
        Ok(server)
    }

    /// Puts the pools and peers back that a back end before this one had.
    fn take_over(&mut self, mut kept: Kept) {
        self.let_go_of_unwanted(&mut kept);
        for name in kept.pools() {
            let restored = Parts::of(&name, kept.take(&format!("pool/{name}/")))
                .and_then(|parts| Served::new(parts, self.program.directory.pool(&name)));
            let mut served = match restored {
                Ok(served) => served,
                Err(error) => {
                    self.log(&format!("the pool {name} is lost: {error}"));
                    self.tell_keeper(FORGET, &format!("pool/{name}/"), &[]);
                    continue;
                }
            };
            for (number, mut fds) in kept.peers(&name) {
                if fds.is_empty() {
                    continue;
                }
                let bells = fds.split_off(1);
                let socket = fds.remove(0);
                let kept = socket.try_clone();
                if !served.adopt(number, socket, bells) {
                    // It was told nothing yet, or is on its way out.
                    if let Ok(socket) = kept {
                        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
                    }
                    self.tell_keeper(FORGET, &label(&name, number), &[]);
                }
            }
            served.settle();
            let pool = self.add(served);
            self.tell_all(pool);
        }
    }

    /// Serves those pools no longer that it is to begin without: none of them is opened.
    fn let_go_of_unwanted(&mut self, kept: &mut Kept) {
        let list = self.program.directory.without();
        let text = fs::read_to_string(&list).unwrap_or_default();
        let served = kept.pools();
        for name in text
            .lines()
            .filter(|name| served.iter().any(|it| it == name))
        {
            for (_, fds) in kept.peers(name) {
                // The keeper has it, too.
                let socket = fds.first();
                let _ = socket.map(|it| rustix::net::shutdown(it, rustix::net::Shutdown::Both));
            }
            let label = format!("pool/{name}/");
            self.tell_keeper(FORGET, &label, &[]);
            kept.take(&label);
            let _ = fs::remove_file(self.program.directory.pool(name));
            self.log(&format!(
                "begun without the pool {name}, as it was asked to: it is served no longer"
            ));
        }
        let _ = fs::remove_file(list);
    }

    /// Begins to watch a pool.
    fn add(&mut self, mut served: Served) -> u32 {
        self.serial += 1;
        let pool = self.serial;
        self.ever_served = true;
        if let Err(error) = served.begin() {
            self.log(&format!("machines are not rung for the host: {error}"));
        }
        let mut failed = self
            .watch(
                served.parts.listener.as_fd(),
                Token::Listener(pool),
                EventFlags::IN,
            )
            .is_err();
        for (vector, bell) in served.parts.bells.iter().enumerate() {
            let token = Token::Bell(pool, vector as u16);
            failed |= self.watch(bell.as_fd(), token, EventFlags::IN).is_err();
        }
        for (number, peer) in &served.peers {
            let token = Token::Peer(pool, *number);
            let flags = EventFlags::IN | EventFlags::RDHUP;
            failed |= self.watch(peer.socket.as_fd(), token, flags).is_err();
        }
        if failed {
            self.log("out of memory for watching a pool: some of its events are missed");
        }
        if let Err(error) = served.begin_work() {
            self.log(&format!(
                "nobody cleans up in {}: {error}",
                served.parts.name
            ));
        }
        served.tick();
        self.pools.insert(pool, served);
        pool
    }

    /// Stops working in the pools. Whoever does not stop soon is left behind, as if this process had been killed.
    fn end_work(&mut self) {
        self.pools.values_mut().for_each(Served::end_work);
        let deadline = Instant::now() + SOON;
        for served in self.pools.values_mut() {
            served.has_ended_work_by(deadline);
        }
    }

    /// Works in the pools again.
    fn begin_work(&mut self) {
        for served in self.pools.values_mut() {
            if let Err(error) = served.begin_work() {
                eprintln!(
                    "vshmem agent: nobody cleans up in {}: {error}",
                    served.parts.name
                );
            }
        }
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: Token, flags: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(token.word());
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    fn log(&self, text: &str) {
        eprintln!("vshmem agent: {}", crate::printable(text));
    }

    /// One round: waits for events and deals with them.
    fn round(&mut self) -> Result<Next> {
        let mut events = Vec::with_capacity(64);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let busy = self.pools.values().any(Served::is_busy);
        match epoll::wait(&self.epoll, buffer, busy.then_some(&AT_ONCE_OR_NOT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(e).explain(|| "could not wait for events".into()),
        }
        for event in events {
            let token = Token::of(event.data.u64());
            let next = match token {
                Token::Signal => self.signalled(),
                Token::Clock => self.tick(),
                Token::Keeper => {
                    self.new_keeper()?;
                    Next::GoOn
                }
                Token::Control => {
                    self.accept_client();
                    Next::GoOn
                }
                Token::Client(client) => self.hear(client),
                Token::Listener(pool) => {
                    self.accept_peers(pool);
                    Next::GoOn
                }
                Token::Bell(pool, vector) => {
                    self.rung(pool, vector);
                    Next::GoOn
                }
                Token::Peer(pool, number) => {
                    self.peer_event(pool, number, event.flags);
                    Next::GoOn
                }
                Token::Endpoint => {
                    self.accept_scrapes();
                    Next::GoOn
                }
                Token::Scrape(number) => {
                    self.scrape(number);
                    Next::GoOn
                }
            };
            if next != Next::GoOn {
                return Ok(next);
            }
        }
        let busy = self.pools.values_mut().filter(|served| served.is_busy());
        busy.for_each(Served::step);
        Ok(Next::GoOn)
    }

    fn signalled(&mut self) -> Next {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signals, &mut info) {
            // The number comes first.
            Ok(_) => match i32::from_ne_bytes([info[0], info[1], info[2], info[3]]) {
                libc::SIGHUP => Next::Restart,
                libc::SIGTERM | libc::SIGINT => Next::Stop,
                _ => Next::GoOn,
            },
            Err(_) => Next::GoOn,
        }
    }

    fn tick(&mut self) -> Next {
        let _ = rustix::io::read(&self.clock, &mut [0u8; 8]);
        let pools: Vec<u32> = self.pools.keys().copied().collect();
        for pool in pools {
            let Some(served) = self.pools.get_mut(&pool) else {
                continue;
            };
            served.tick();
            if served.is_lost() {
                let name = served.parts.name.clone();
                self.log(&format!("the pool {name} is lost: its file was truncated"));
                self.drop_pool(pool);
            } else if served.is_abandoned() {
                self.drop_pool(pool);
            } else if served.peers.values().any(|peer| peer.behind) {
                self.tell_all(pool);
            }
        }
        self.expire_scrapes();
        self.names
            .retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        if self.program.transient && self.ever_served && self.pools.is_empty() {
            return Next::Stop;
        }
        Next::GoOn
    }

    fn rung(&mut self, pool: u32, vector: u16) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        // Read before looking: who is served afterwards rings again.
        if let Some(bell) = served.parts.bells.get(usize::from(vector)) {
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
        served.rung();
    }

    fn accept_peers(&mut self, pool: u32) {
        for _ in 0..AT_ONCE {
            let Some(served) = self.pools.get(&pool) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(&served.parts.listener, flags) else {
                break;
            };
            if let Err(error) = self.welcome(pool, socket) {
                self.log(&format!("a machine was turned away: {error}"));
            }
        }
        self.tell_all(pool);
    }

    fn welcome(&mut self, pool: u32, socket: OwnedFd) -> Result<()> {
        let pid = allowed(socket.as_fd())?;
        let names = &self.names;
        let name = names.get(&pid).cloned().unwrap_or_else(|| name_of(pid));
        let Some(served) = self.pools.get_mut(&pool) else {
            return Ok(());
        };
        let number = served
            .free_place()
            .ok_or_else(|| Error::new("the pool has, or had, as many peers as it can have"))?;
        let bells = new_bells(served.parts.peer_table.vectors())
            .explain(|| "could not make eventfds".into())?;
        let label = label(&served.parts.name, number);
        let mut fds = vec![socket.as_fd()];
        fds.extend(bells.iter().map(AsFd::as_fd));
        // First to the keeper: whoever is in the peer table is with the keeper, too.
        let stored = self.link.send(STORE, &label, &fds);
        let token = Token::Peer(pool, number);
        let data = EventData::new_u64(token.word());
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, &socket, data, flags)
            .explain(|| "could not watch a connection".into())?;
        let peer = Peer {
            socket,
            bells,
            name,
            behind: false,
        };
        served.enter(number, peer, pid);
        if let Err(error) = stored {
            self.log(&format!("the keeper does not listen: {error}"));
        }
        Ok(())
    }

    fn peer_event(&mut self, pool: u32, number: u16, flags: EventFlags) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        let Some(peer) = served.peers.get(&number) else {
            return;
        };
        let ended = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(ended) && has_ended(peer.socket.as_fd()) {
            self.part(pool, number);
            self.tell_all(pool);
        } else if flags.contains(EventFlags::OUT) {
            self.tell_all(pool);
        }
    }

    /// A peer is gone.
    fn part(&mut self, pool: u32, number: u16) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        let Some(peer) = served.leave(number) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &peer.socket);
        // The keeper has it too, so closing alone would not tell a peer that is turned out.
        let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        let label = label(&served.parts.name, number);
        self.tell_keeper(FORGET, &label, &[]);
    }

    /// Tells all peers of a pool what they don't know; those whose connection breaks are gone, which is news again.
    fn tell_all(&mut self, pool: u32) {
        while let Some(served) = self.pools.get_mut(&pool) {
            let broken = served.tell_all();
            for (number, peer) in &served.peers {
                let mut flags = EventFlags::IN | EventFlags::RDHUP;
                flags.set(EventFlags::OUT, peer.behind);
                let data = EventData::new_u64(Token::Peer(pool, *number).word());
                let _ = epoll::modify(&self.epoll, &peer.socket, data, flags);
            }
            if broken.is_empty() {
                return;
            }
            for number in broken {
                self.part(pool, number);
            }
        }
    }

    fn tell_keeper(&self, letter: u8, label: &str, fds: &[BorrowedFd<'_>]) {
        if let Err(error) = self.link.send(letter, label, fds) {
            self.log(&format!("the keeper does not listen: {error}"));
        }
    }

    fn store_own(&self) {
        self.tell_keeper(STORE, LOCK, &[self.lock.as_fd()]);
        self.tell_keeper(STORE, CONTROL, &[self.control.as_fd()]);
        self.store_endpoint();
    }

    fn store_pool(&self, served: &Served) {
        let parts = &served.parts;
        let mut fds = vec![
            parts.file.as_fd(),
            parts.listener.as_fd(),
            parts.peer_table.file.as_fd(),
        ];
        fds.extend(parts.bells.iter().map(AsFd::as_fd));
        self.tell_keeper(STORE, &format!("pool/{}/", parts.name), &fds);
        for (number, peer) in &served.peers {
            let mut fds = vec![peer.socket.as_fd()];
            fds.extend(peer.bells.iter().map(AsFd::as_fd));
            self.tell_keeper(STORE, &label(&parts.name, *number), &fds);
        }
    }

    /// The keeper has died: another one gets everything.
    fn new_keeper(&mut self) -> Result<()> {
        if !matches!(self.link.receive(), Ok(None) | Err(_)) {
            return Ok(());
        }
        self.log("the keeper has died; another one is started");
        let failed = || "could not start a keeper".to_string();
        let (ours, theirs) = Link::pair().explain(failed)?;
        self.program.start(Part::Keeper, &theirs).explain(failed)?;
        drop(theirs);
        let _ = epoll::delete(&self.epoll, &self.link);
        self.link = ours;
        self.keeper = Kept::receive(&self.link)?.keeper;
        self.watch(self.link.as_fd(), Token::Keeper, EventFlags::IN)
            .explain(failed)?;
        self.store_own();
        self.pools
            .values()
            .for_each(|served| self.store_pool(served));
        Ok(())
    }

    fn accept_client(&mut self) {
        for _ in 0..AT_ONCE {
            let Ok((stream, _)) = self.control.accept() else {
                return;
            };
            let fine = allowed(stream.as_fd()).is_ok() && self.clients.len() < MOST_CLIENTS;
            if !fine || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.serial += 1;
            let token = Token::Client(self.serial);
            if self.watch(stream.as_fd(), token, EventFlags::IN).is_ok() {
                let client = Client {
                    stream,
                    heard: Vec::new(),
                    to_say: Vec::new(),
                };
                self.clients.insert(self.serial, client);
            }
        }
    }

    /// Something happened on a connection to the control socket.
    fn hear(&mut self, number: u32) -> Next {
        let Some(mut client) = self.clients.remove(&number) else {
            return Next::GoOn;
        };
        let mut next = Next::GoOn;
        let open = client.read().is_ok() && {
            while let Some(line) = client.line() {
                next = self.answer(&mut client, &line);
                if next != Next::GoOn {
                    break;
                }
            }
            client.write().is_ok()
        };
        if open {
            let mut flags = EventFlags::IN;
            // Who does not read its answers is not listened to.
            if !client.to_say.is_empty() {
                flags = EventFlags::OUT;
            }
            let data = EventData::new_u64(Token::Client(number).word());
            if epoll::modify(&self.epoll, &client.stream, data, flags).is_ok() {
                self.clients.insert(number, client);
            }
        }
        next
    }

    fn answer(&mut self, client: &mut Client, line: &[u8]) -> Next {
        let mut next = Next::GoOn;
        let outcome = match serde_json::from_slice(line) {
            Ok(Request::List {}) => {
                client.say(&self.status());
                return next;
            }
            Ok(Request::Serve { pool, vectors }) => self.serve_pool(&pool, vectors).map(Some),
            Ok(Request::Drop { pool }) => self.drop_named(&pool).map(|()| None),
            Ok(Request::Name { pid, name }) => {
                self.call(pid, name);
                Ok(None)
            }
            Ok(Request::Metrics { address }) => self.serve_metrics(address),
            Ok(Request::Restart {}) => {
                next = Next::Restart;
                Ok(None)
            }
            Ok(Request::Stop {}) => {
                next = Next::Stop;
                Ok(None)
            }
            Err(e) => Err(Error::new(format!("that is no request: {e}"))),
        };
        client.say(&match outcome {
            Ok(socket) => Answer {
                socket,
                error: None,
            },
            Err(error) => Answer {
                socket: None,
                error: Some(error.to_string()),
            },
        });
        if self.program.transient && self.ever_served && self.pools.is_empty() {
            next = Next::Stop;
        }
        next
    }

    fn status(&self) -> Status {
        Status {
            pid: std::process::id(),
            keeper: self.keeper,
            since: self.since,
            transient: self.program.transient,
            metrics: self.metrics_address(),
            pools: self.pools.values().map(Served::status).collect(),
        }
    }

    fn call(&mut self, pid: u32, name: String) {
        for served in self.pools.values_mut() {
            for (number, peer) in &mut served.peers {
                let of = served.parts.peer_table.entry(*number);
                if of.pid.load(std::sync::atomic::Ordering::Relaxed) == pid {
                    of.set_name(&name);
                    peer.name = of.name();
                }
            }
        }
        if self.names.len() < MOST_NAMES {
            self.names.insert(pid, name);
        }
    }

    /// Serves a pool; returns where machines connect.
    fn serve_pool(&mut self, pool: &str, vectors: usize) -> Result<String> {
        if vectors == 0 || vectors > MOST_VECTORS {
            return Err(Error::new(format!(
                "a peer has 1 to {MOST_VECTORS} vectors"
            )));
        }
        let reference = vshmem_transport::resolve(pool.as_bytes())
            .map_err(|e| Error::new(format!("there is no pool {pool}: {e}")))?;
        let name = pool_name(&reference);
        let socket = self.program.directory.pool(&name);
        let file = open_file(&reference)?;
        let same = |a: &OwnedFd, b: &OwnedFd| {
            let id = |fd| rustix::fs::fstat(fd).map(|s| (s.st_dev, s.st_ino)).ok();
            id(a) == id(b)
        };
        if let Some(served) = self.pools.values().find(|p| p.parts.name == name) {
            if !same(&served.parts.file, &file) {
                return Err(Error::new(format!("another pool named {name} is served")));
            }
            if served.parts.peer_table.vectors() != vectors {
                return Err(Error::new(format!(
                    "{name} is served with {} vectors",
                    served.parts.peer_table.vectors()
                )));
            }
            return Ok(socket.to_string_lossy().into_owned());
        }
        let parts = Parts {
            listener: listen(&socket)?.into(),
            peer_table: PeerTable::new(vectors).explain(|| "could not make a peer table".into())?,
            bells: new_bells(vectors).explain(|| "could not make eventfds".into())?,
            name,
            file,
        };
        let served = Served::new(parts, socket.clone()).inspect_err(|_| {
            let _ = fs::remove_file(&socket);
        })?;
        self.store_pool(&served);
        self.add(served);
        Ok(socket.to_string_lossy().into_owned())
    }

    fn drop_named(&mut self, name: &str) -> Result<()> {
        let found = self.pools.iter().find(|(_, p)| p.parts.name == name);
        let Some((&pool, _)) = found else {
            return Err(Error::new(format!("no pool {name} is served")));
        };
        self.drop_pool(pool);
        Ok(())
    }

    fn drop_pool(&mut self, pool: u32) {
        let Some(served) = self.pools.remove(&pool) else {
            return;
        };
        served.say_good_bye();
        self.tell_keeper(FORGET, &format!("pool/{}/", served.parts.name), &[]);
        let _ = fs::remove_file(&served.socket);
        let watched = served.parts.bells.iter().chain([&served.parts.listener]);
        for fd in watched.chain(served.peers.values().map(|peer| &peer.socket)) {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// Ends in good order.
    fn end(&mut self) {
        self.end_work();
        let pools: Vec<u32> = self.pools.keys().copied().collect();
        pools.into_iter().for_each(|pool| self.drop_pool(pool));
        self.end_metrics();
        self.tell_keeper(BYE, "", &[]);
        self.program.directory.remove();
        self.log("ended");
    }
}

impl Client {
    /// Reads what is there; an error if the connection is over or a line too long.
    fn read(&mut self) -> io::Result<()> {
        let mut part = [0u8; 4096];
        while self.to_say.is_empty() {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.heard.extend_from_slice(&part[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            if self.heard.len() > LONGEST {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    /// The next whole line, if its answer has room.
    fn line(&mut self) -> Option<Vec<u8>> {
        if self.to_say.len() > LONGEST {
            return None;
        }
        let end = self.heard.iter().position(|b| *b == b'\n')?;
        Some(self.heard.drain(..=end).collect())
    }

    fn say(&mut self, answer: &impl serde::Serialize) {
        let text = serde_json::to_vec(answer).expect("an answer is plain data");
        self.to_say.extend(text);
        self.to_say.push(b'\n');
        let _ = self.write();
    }

    /// Writes as much as goes.
    fn write(&mut self) -> io::Result<()> {
        while !self.to_say.is_empty() {
            match self.stream.write(&self.to_say) {
                Ok(len) => drop(self.to_say.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// What the keeper has handed over.
struct Kept {
    entries: BTreeMap<String, Vec<OwnedFd>>,
    keeper: u32,
}

impl Kept {
    fn receive(link: &Link) -> Result<Kept> {
        let failed = || "the keeper does not hand over what it has".to_string();
        link.send(HAND_OVER, "", &[]).explain(failed)?;
        let mut entries = BTreeMap::new();
        loop {
            match link.receive().explain(failed)? {
                Some((END, label, _)) => {
                    let keeper = label.parse().unwrap_or(0);
                    return Ok(Kept { entries, keeper });
                }
                Some((_, label, fds)) => drop(entries.insert(label, fds)),
                None => return Err(Error::new(failed())),
            }
        }
    }

    fn take(&mut self, label: &str) -> Vec<OwnedFd> {
        self.entries.remove(label).unwrap_or_default()
    }

    /// The endpoint for metrics: its address and its socket.
    fn endpoint(&mut self) -> Option<(String, OwnedFd)> {
        let label = self
            .entries
            .keys()
            .find(|label| label.starts_with(METRICS))?
            .clone();
        let listener = self.take(&label).pop()?;
        Some((label[METRICS.len()..].into(), listener))
    }

    fn pools(&self) -> Vec<String> {
        let names = self.entries.keys().filter_map(|label| {
            let name = label.strip_prefix("pool/")?.strip_suffix('/')?;
            (!name.contains('/')).then(|| name.to_string())
        });
        names.collect()
    }

    fn peers(&mut self, pool: &str) -> Vec<(u16, Vec<OwnedFd>)> {
        let prefix = format!("pool/{pool}/peer/");
        let labels: Vec<String> = self
            .entries
            .keys()
            .filter(|label| label.starts_with(&prefix))
            .cloned()
            .collect();
        let peer = |label: String| {
            let number = label[prefix.len()..].trim_end_matches('/').parse().ok()?;
            Some((number, self.take(&label)))
        };
        labels.into_iter().filter_map(peer).collect()
    }
}

impl Parts {
    fn of(name: &str, fds: Vec<OwnedFd>) -> Result<Parts> {
        let missing = || Error::new("some of its descriptors are missing");
        let mut fds = fds.into_iter();
        let (file, listener) = (
            fds.next().ok_or_else(missing)?,
            fds.next().ok_or_else(missing)?,
        );
        let table = PeerTable::open(fds.next().ok_or_else(missing)?)
            .explain(|| "its peer table can't be read".into())?;
        let bells: Vec<OwnedFd> = fds.collect();
        if bells.len() != table.vectors() {
            return Err(missing());
        }
        Ok(Parts {
            name: name.into(),
            file,
            listener,
            peer_table: table,
            bells,
        })
    }
}

/// Under which label the keeper has a peer.
fn label(pool: &str, number: u16) -> String {
    format!("pool/{pool}/peer/{number}/")
}

/// The name that a pool is served by: its own, else that of its file.
fn pool_name(reference: &PoolRef) -> String {
    let path = reference.path().to_string_lossy();
    let name = match reference.name() {
        b"" => path.rsplit('/').next().unwrap_or_default().into(),
        name => String::from_utf8_lossy(name),
    };
    name.chars().take(64).collect()
}

/// Listens at a path in the private directory; what lies there was left by a back end that is gone.
fn listen(path: &Path) -> Result<UnixListener> {
    let _ = fs::remove_file(path);
    let failed = || format!("could not listen at {}", path.display());
    let listener = UnixListener::bind(path).explain(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).explain(failed)?;
    listener.set_nonblocking(true).explain(failed)?;
    Ok(listener)
}

/// The process at the other end, if it is this user's or root's.
fn allowed(socket: BorrowedFd<'_>) -> Result<u32> {
    let who = rustix::net::sockopt::socket_peercred(socket)
        .explain(|| "the process at the other end is not known".into())?;
    let uid = who.uid.as_raw();
    // SAFETY: takes nothing and always succeeds.
    if uid != 0 && uid != unsafe { libc::geteuid() } {
        return Err(Error::new(format!("user {uid} has no business here")));
    }
    Ok(who.pid.as_raw_nonzero().get() as u32)
}

/// A peer never says anything: what can be read is the end, or a peer that does not keep to the protocol.
fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    !matches!(
        rustix::net::recv(socket, &mut [0u8; 16], flags),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR)
    )
}

/// A clock that ticks once a second.
fn clock() -> io::Result<OwnedFd> {
    use rustix::time::{
        timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags,
        TimerfdTimerFlags, Timespec,
    };
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let clock = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let every = Itimerspec {
        it_interval: second,
        it_value: second,
    };
    timerfd_settime(&clock, TimerfdTimerFlags::empty(), &every)?;
    Ok(clock)
}

/// Many machines need many descriptors.
fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure lives across the calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_told_apart() {
        for token in [
            Token::Signal,
            Token::Client(u32::MAX),
            Token::Bell(7, 31),
            Token::Peer(9, 255),
            Token::Endpoint,
            Token::Scrape(5),
        ] {
            assert_eq!(Token::of(token.word()), token);
        }
    }
}
