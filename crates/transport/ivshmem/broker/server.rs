//! The back end's loop over all sockets, eventfds and the timer. Nothing in it waits for a peer.

mod client;
mod scrape;
mod scrapes;
mod stored;

use self::client::Client;
use self::scrapes::Scrapes;
use self::stored::{peer_label, pool_label, StoredFds};
use crate::error::{Error, Explain, Result};
use crate::ivshmem::control::{Request, Response, Status};
use crate::ivshmem::directory::Directory;
use crate::ivshmem::fd_store::{Connection, MOST_VECTORS, REMOVE, STOP, STORE};
use crate::ivshmem::peer_table::PeerTable;
use crate::ivshmem::program::{Part, Program};
use crate::ivshmem::served_pool::{name_of, new_eventfds, open_file, Peer, ServedPool, StoredPool};
use crate::joined_pool::now;
use crate::peer::peer_of;
use crate::signals::{Signals, TERMINATION};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::SocketFlags;
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_transport::PoolRef;

/// The keeper's label of the lock.
pub const LOCK: &str = "lock";
/// The keeper's label of the control socket.
const CONTROL: &str = "control";
/// Most connections to the control socket at a time.
const MOST_CLIENTS: usize = 64;
/// Connections that are accepted before other events are handled.
const ACCEPTS_PER_EVENT: usize = 16;
/// Most names that are kept for machines which have not connected yet.
const MOST_NAMES: usize = 256;

/// How long the workers of pools may take to end.
const WORKERS_TIMEOUT: Duration = Duration::from_millis(300);

/// The timeout of a wait while there is other work to do.
const NO_WAIT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// What an event is about. The numbers are those of pools and connections, and of vectors and slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Signal,
    Timer,
    Keeper,
    Control,
    Client(u32),
    Listener(u32),
    Doorbell(u32, u16),
    Peer(u32, u16),
    Endpoint,
    Scrape(u32),
}

impl Token {
    fn word(self) -> u64 {
        let (kind, number, part) = match self {
            Token::Signal => (0, 0, 0),
            Token::Timer => (1, 0, 0),
            Token::Keeper => (2, 0, 0),
            Token::Control => (3, 0, 0),
            Token::Client(n) => (4, n, 0),
            Token::Listener(n) => (5, n, 0),
            Token::Doorbell(n, part) => (6, n, part),
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
            1 => Token::Timer,
            2 => Token::Keeper,
            3 => Token::Control,
            4 => Token::Client(number),
            5 => Token::Listener(number),
            6 => Token::Doorbell(number, part),
            7 => Token::Peer(number, part),
            8 => Token::Endpoint,
            _ => Token::Scrape(number),
        }
    }
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
    signals: Signals,
    timer: OwnedFd,
    keeper: Connection,
    keeper_pid: u32,
    lock: OwnedFd,
    control: UnixListener,
    pools: BTreeMap<u32, ServedPool>,
    clients: BTreeMap<u32, Client>,
    /// Names of machines, by their processes.
    names: HashMap<u32, String>,
    /// The last number of a pool or connection.
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
    // A previous back end may have removed the file since it was opened.
    let ours = file.metadata().map(|meta| meta.ino()).ok();
    let there = fs::metadata(&path).map(|meta| meta.ino()).ok();
    Ok((ours == there).then(|| file.into()))
}

/// Serves until it is asked to stop. Begins with the descriptors of a previous back end that the keeper has
/// stored.
pub fn serve(program: &Program, keeper: Connection) -> Result<()> {
    let mut server = Server::new(program, keeper)?;
    server.log(&format!("serving, process {}", std::process::id()));
    loop {
        match server.round()? {
            Next::GoOn => (),
            Next::Restart => {
                server.log("beginning anew");
                server.stop_workers();
                let error = program.reexec(&server.keeper);
                server.log(&format!("could not begin anew: {error}"));
                server.start_workers();
            }
            Next::Stop => {
                server.end();
                return Ok(());
            }
        }
    }
}

impl<'a> Server<'a> {
    fn new(program: &'a Program, keeper: Connection) -> Result<Server<'a>> {
        Directory::at(program.directory.path())?;
        raise_limit();
        let failed = || "could not set up the back end's loop".to_string();
        let mut stored = StoredFds::fetch(&keeper)?;
        let lock = match stored.take(LOCK).pop() {
            Some(lock) => lock,
            None => self::lock(&program.directory)?.ok_or_else(|| {
                Error::new(format!("there is a back end in {} already", program.directory.path().display()))
            })?,
        };
        let control = match stored.take(CONTROL).pop() {
            Some(control) => control.into(),
            None => listen(&program.directory.control())?,
        };
        let mut server = Server {
            program,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).explain(failed)?,
            signals: Signals::watch(&TERMINATION).explain(failed)?,
            timer: timer().explain(failed)?,
            keeper,
            keeper_pid: stored.keeper_pid,
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
        if let Some((address, listener)) = stored.endpoint() {
            server.adopt_endpoint(address, listener);
        }
        // Before a pool is opened: a back end that hangs there can be killed.
        let path = program.directory.pid_file();
        fs::write(&path, format!("{}\n", std::process::id()))
            .explain(|| format!("could not write {}", path.display()))?;
        server.store_own();
        let watched = [
            (server.signals.as_fd(), Token::Signal),
            (server.timer.as_fd(), Token::Timer),
            (server.keeper.as_fd(), Token::Keeper),
            (server.control.as_fd(), Token::Control),
        ];
        for (fd, token) in watched {
            server.watch(fd, token, EventFlags::IN).explain(failed)?;
        }
        server.restore(stored);
        Ok(server)
    }

    /// Restores the pools and peers of a previous back end.
    fn restore(&mut self, mut stored: StoredFds) {
        self.drop_excluded(&mut stored);
        for name in stored.pools() {
            let restored = StoredPool::of(&name, stored.take(&pool_label(&name)))
                .and_then(|pool| ServedPool::open(pool, self.program.directory.pool(&name)));
            let mut served = match restored {
                Ok(served) => served,
                Err(error) => {
                    self.log(&format!("the pool {name} is lost: {error}"));
                    self.tell_keeper(REMOVE, &pool_label(&name), &[]);
                    continue;
                }
            };
            for (slot, mut fds) in stored.peers(&name) {
                if fds.is_empty() {
                    continue;
                }
                let eventfds = fds.split_off(1);
                let socket = fds.remove(0);
                let copy = socket.try_clone();
                if !served.restore_peer(slot, socket, eventfds) {
                    // It was not entered yet, or was removed already.
                    if let Ok(socket) = copy {
                        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
                    }
                    self.tell_keeper(REMOVE, &peer_label(&name, slot), &[]);
                }
            }
            served.finish_restore();
            let pool = self.add(served);
            self.announce(pool);
        }
    }

    /// Drops the pools that are excluded, without opening them.
    fn drop_excluded(&mut self, stored: &mut StoredFds) {
        let list = self.program.directory.excluded();
        let text = fs::read_to_string(&list).unwrap_or_default();
        let served = stored.pools();
        for name in text.lines().filter(|name| served.iter().any(|it| it == name)) {
            for (_, fds) in stored.peers(name) {
                // The keeper has it too, so closing it would not end the connection.
                let socket = fds.first();
                let _ = socket.map(|it| rustix::net::shutdown(it, rustix::net::Shutdown::Both));
            }
            let label = pool_label(name);
            self.tell_keeper(REMOVE, &label, &[]);
            stored.take(&label);
            let _ = fs::remove_file(self.program.directory.pool(name));
            self.log(&format!("begun without the pool {name}, as it was asked to: it is served no longer"));
        }
        let _ = fs::remove_file(list);
    }

    /// Starts to serve a pool; returns its number.
    fn add(&mut self, mut served: ServedPool) -> u32 {
        self.serial += 1;
        let pool = self.serial;
        self.ever_served = true;
        if let Err(error) = served.start_sender() {
            self.log(&format!("machines are not rung for the host: {error}"));
        }
        let mut failed =
            self.watch(served.stored.listener.as_fd(), Token::Listener(pool), EventFlags::IN).is_err();
        for (vector, eventfd) in served.stored.eventfds.iter().enumerate() {
            let token = Token::Doorbell(pool, vector as u16);
            let watched = self.watch(eventfd.as_fd(), token, EventFlags::IN);
            failed |= watched.is_err();
        }
        for (slot, peer) in &served.peers {
            let token = Token::Peer(pool, *slot);
            let flags = EventFlags::IN | EventFlags::RDHUP;
            failed |= self.watch(peer.socket.as_fd(), token, flags).is_err();
        }
        if failed {
            self.log("out of memory for watching a pool: some of its events are missed");
        }
        if let Err(error) = served.start_worker() {
            self.log(&format!("nobody cleans up in {}: {error}", served.stored.name));
        }
        served.tick();
        self.pools.insert(pool, served);
        pool
    }

    /// Stops the workers. One that does not end soon is left behind, as if this process had been killed.
    fn stop_workers(&mut self) {
        self.pools.values_mut().for_each(ServedPool::stop_worker);
        let deadline = Instant::now() + WORKERS_TIMEOUT;
        for served in self.pools.values_mut() {
            served.wait_for_worker(deadline);
        }
    }

    /// Starts the workers again.
    fn start_workers(&mut self) {
        for served in self.pools.values_mut() {
            if let Err(error) = served.start_worker() {
                eprintln!("vshmem agent: nobody cleans up in {}: {error}", served.stored.name);
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

    /// One round of the loop: waits for events and handles them.
    fn round(&mut self) -> Result<Next> {
        let mut events = Vec::with_capacity(64);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let busy = self.pools.values().any(ServedPool::is_busy);
        match epoll::wait(&self.epoll, buffer, busy.then_some(&NO_WAIT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(e).explain(|| "could not wait for events".into()),
        }
        for event in events {
            let token = Token::of(event.data.u64());
            let next = match token {
                Token::Signal => self.signalled(),
                Token::Timer => self.tick(),
                Token::Keeper => {
                    self.new_keeper()?;
                    Next::GoOn
                }
                Token::Control => {
                    self.accept_client();
                    Next::GoOn
                }
                Token::Client(number) => self.client_event(number),
                Token::Listener(pool) => {
                    self.accept_peers(pool);
                    Next::GoOn
                }
                Token::Doorbell(pool, vector) => {
                    self.doorbell_rung(pool, vector);
                    Next::GoOn
                }
                Token::Peer(pool, slot) => {
                    self.peer_event(pool, slot, event.flags);
                    Next::GoOn
                }
                Token::Endpoint => {
                    self.accept_scrapes();
                    Next::GoOn
                }
                Token::Scrape(number) => {
                    self.scrape_event(number);
                    Next::GoOn
                }
            };
            if next != Next::GoOn {
                return Ok(next);
            }
        }
        let busy = self.pools.values_mut().filter(|served| served.is_busy());
        busy.for_each(ServedPool::step);
        Ok(Next::GoOn)
    }

    fn signalled(&mut self) -> Next {
        match self.signals.next() {
            Some(libc::SIGHUP) => Next::Restart,
            Some(_) => Next::Stop,
            None => Next::GoOn,
        }
    }

    fn tick(&mut self) -> Next {
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        let pools: Vec<u32> = self.pools.keys().copied().collect();
        for pool in pools {
            let Some(served) = self.pools.get_mut(&pool) else {
                continue;
            };
            served.tick();
            if served.is_lost() {
                let name = served.stored.name.clone();
                self.log(&format!("the pool {name} is lost: its file was truncated"));
                self.drop_pool(pool);
            } else if served.is_abandoned() {
                self.drop_pool(pool);
            } else if served.peers.values().any(|peer| peer.behind) {
                self.announce(pool);
            }
        }
        self.expire_scrapes();
        self.names.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        if self.program.transient && self.ever_served && self.pools.is_empty() {
            return Next::Stop;
        }
        Next::GoOn
    }

    /// A machine has rung the host's doorbell.
    fn doorbell_rung(&mut self, pool: u32, vector: u16) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        // Reset first: a waiter that is served after the scan has the doorbell rung again.
        if let Some(eventfd) = served.stored.eventfds.get(usize::from(vector)) {
            let _ = rustix::io::read(eventfd, &mut [0u8; 8]);
        }
        served.doorbell_rung();
    }

    fn accept_peers(&mut self, pool: u32) {
        for _ in 0..ACCEPTS_PER_EVENT {
            let Some(served) = self.pools.get(&pool) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(&served.stored.listener, flags) else {
                break;
            };
            if let Err(error) = self.add_peer(pool, socket) {
                self.log(&format!("a machine was turned away: {error}"));
            }
        }
        self.announce(pool);
    }

    fn add_peer(&mut self, pool: u32, socket: OwnedFd) -> Result<()> {
        let pid = check_peer_process(socket.as_fd())?;
        let names = &self.names;
        let name = names.get(&pid).cloned().unwrap_or_else(|| name_of(pid));
        let Some(served) = self.pools.get_mut(&pool) else {
            return Ok(());
        };
        let slot = served
            .free_slot()
            .ok_or_else(|| Error::new("the pool has, or had, as many peers as it can have"))?;
        let eventfds =
            new_eventfds(served.stored.peer_table.vectors()).explain(|| "could not make eventfds".into())?;
        let label = peer_label(&served.stored.name, slot);
        let mut fds = vec![socket.as_fd()];
        fds.extend(eventfds.iter().map(AsFd::as_fd));
        // First to the keeper, so that it has all peers that are in the peer table.
        let stored = self.keeper.send(STORE, &label, &fds);
        let token = Token::Peer(pool, slot);
        let data = EventData::new_u64(token.word());
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, &socket, data, flags).explain(|| "could not watch a connection".into())?;
        let peer = Peer { socket, eventfds, name, behind: false };
        served.add_peer(slot, peer, pid);
        if let Err(error) = stored {
            self.log(&format!("the keeper does not listen: {error}"));
        }
        Ok(())
    }

    fn peer_event(&mut self, pool: u32, slot: u16, flags: EventFlags) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        let Some(peer) = served.peers.get(&slot) else {
            return;
        };
        let ended = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(ended) && has_ended(peer.socket.as_fd()) {
            self.remove_peer(pool, slot);
            self.announce(pool);
        } else if flags.contains(EventFlags::OUT) {
            self.announce(pool);
        }
    }

    fn remove_peer(&mut self, pool: u32, slot: u16) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        let Some(peer) = served.remove_peer(slot) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &peer.socket);
        // The keeper has it too, so closing it would not end the connection.
        let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        let label = peer_label(&served.stored.name, slot);
        self.tell_keeper(REMOVE, &label, &[]);
    }

    /// Announces to all peers of a pool what they were not told yet. A peer whose connection is broken is
    /// removed.
    fn announce(&mut self, pool: u32) {
        while let Some(served) = self.pools.get_mut(&pool) {
            let broken = served.announce();
            for (slot, peer) in &served.peers {
                let mut flags = EventFlags::IN | EventFlags::RDHUP;
                flags.set(EventFlags::OUT, peer.behind);
                let data = EventData::new_u64(Token::Peer(pool, *slot).word());
                let _ = epoll::modify(&self.epoll, &peer.socket, data, flags);
            }
            if broken.is_empty() {
                return;
            }
            for slot in broken {
                self.remove_peer(pool, slot);
            }
        }
    }

    fn tell_keeper(&self, letter: u8, label: &str, fds: &[BorrowedFd<'_>]) {
        if let Err(error) = self.keeper.send(letter, label, fds) {
            self.log(&format!("the keeper does not listen: {error}"));
        }
    }

    fn store_own(&self) {
        self.tell_keeper(STORE, LOCK, &[self.lock.as_fd()]);
        self.tell_keeper(STORE, CONTROL, &[self.control.as_fd()]);
        self.store_endpoint();
    }

    fn store_pool(&self, served: &ServedPool) {
        let stored = &served.stored;
        let mut fds = vec![stored.file.as_fd(), stored.listener.as_fd(), stored.peer_table.file.as_fd()];
        fds.extend(stored.eventfds.iter().map(AsFd::as_fd));
        self.tell_keeper(STORE, &pool_label(&stored.name), &fds);
        for (slot, peer) in &served.peers {
            let mut fds = vec![peer.socket.as_fd()];
            fds.extend(peer.eventfds.iter().map(AsFd::as_fd));
            self.tell_keeper(STORE, &peer_label(&stored.name, *slot), &fds);
        }
    }

    /// Starts another keeper if this one has died, and has it store all descriptors.
    fn new_keeper(&mut self) -> Result<()> {
        if !matches!(self.keeper.receive(), Ok(None) | Err(_)) {
            return Ok(());
        }
        self.log("the keeper has died; another one is started");
        let failed = || "could not start a keeper".to_string();
        let (ours, theirs) = Connection::pair().explain(failed)?;
        self.program.start(Part::Keeper, &theirs).explain(failed)?;
        drop(theirs);
        let _ = epoll::delete(&self.epoll, &self.keeper);
        self.keeper = ours;
        self.keeper_pid = StoredFds::fetch(&self.keeper)?.keeper_pid;
        self.watch(self.keeper.as_fd(), Token::Keeper, EventFlags::IN).explain(failed)?;
        self.store_own();
        self.pools.values().for_each(|served| self.store_pool(served));
        Ok(())
    }

    fn accept_client(&mut self) {
        for _ in 0..ACCEPTS_PER_EVENT {
            let Ok((stream, _)) = self.control.accept() else {
                return;
            };
            let is_allowed = check_peer_process(stream.as_fd()).is_ok();
            let accepts = is_allowed && self.clients.len() < MOST_CLIENTS;
            if !accepts || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.serial += 1;
            let token = Token::Client(self.serial);
            if self.watch(stream.as_fd(), token, EventFlags::IN).is_ok() {
                self.clients.insert(self.serial, Client::new(stream));
            }
        }
    }

    /// Something happened on a connection to the control socket.
    fn client_event(&mut self, number: u32) -> Next {
        let Some(mut client) = self.clients.remove(&number) else {
            return Next::GoOn;
        };
        let mut next = Next::GoOn;
        let is_open = client.read().is_ok() && {
            while let Some(line) = client.line() {
                next = self.respond(&mut client, &line);
                if next != Next::GoOn {
                    break;
                }
            }
            client.write().is_ok()
        };
        if is_open {
            // A client that does not read its responses sends no more requests.
            let flags = match client.has_unsent() {
                true => EventFlags::OUT,
                false => EventFlags::IN,
            };
            let data = EventData::new_u64(Token::Client(number).word());
            if epoll::modify(&self.epoll, &client, data, flags).is_ok() {
                self.clients.insert(number, client);
            }
        }
        next
    }

    fn respond(&mut self, client: &mut Client, line: &[u8]) -> Next {
        let mut next = Next::GoOn;
        let outcome = match serde_json::from_slice(line) {
            Ok(Request::List {}) => {
                client.send(&self.status());
                return next;
            }
            Ok(Request::Serve { pool, vectors }) => self.serve_pool(&pool, vectors).map(Some),
            Ok(Request::Drop { pool }) => self.drop_named(&pool).map(|()| None),
            Ok(Request::Name { pid, name }) => {
                self.set_name(pid, name);
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
        client.send(&match outcome {
            Ok(socket) => Response { socket, error: None },
            Err(error) => Response { socket: None, error: Some(error.to_string()) },
        });
        if self.program.transient && self.ever_served && self.pools.is_empty() {
            next = Next::Stop;
        }
        next
    }

    fn status(&self) -> Status {
        Status {
            pid: std::process::id(),
            keeper: self.keeper_pid,
            since: self.since,
            transient: self.program.transient,
            metrics: self.metrics_address(),
            pools: self.pools.values().map(ServedPool::status).collect(),
        }
    }

    fn set_name(&mut self, pid: u32, name: String) {
        for served in self.pools.values_mut() {
            for (slot, peer) in &mut served.peers {
                let entry = served.stored.peer_table.entry(*slot);
                if entry.pid.load(std::sync::atomic::Ordering::Relaxed) == pid {
                    entry.set_name(&name);
                    peer.name = entry.name();
                }
            }
        }
        if self.names.len() < MOST_NAMES {
            self.names.insert(pid, name);
        }
    }

    /// Serves a pool; returns the socket to which machines connect.
    fn serve_pool(&mut self, pool: &str, vectors: usize) -> Result<String> {
        if vectors == 0 || vectors > MOST_VECTORS {
            return Err(Error::new(format!("a peer has 1 to {MOST_VECTORS} vectors")));
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
        if let Some(served) = self.pools.values().find(|p| p.stored.name == name) {
            if !same(&served.stored.file, &file) {
                return Err(Error::new(format!("another pool named {name} is served")));
            }
            if served.stored.peer_table.vectors() != vectors {
                return Err(Error::new(format!(
                    "{name} is served with {} vectors",
                    served.stored.peer_table.vectors()
                )));
            }
            return Ok(socket.to_string_lossy().into_owned());
        }
        let stored = StoredPool {
            listener: listen(&socket)?.into(),
            peer_table: PeerTable::new(vectors).explain(|| "could not make a peer table".into())?,
            eventfds: new_eventfds(vectors).explain(|| "could not make eventfds".into())?,
            name,
            file,
        };
        let served = ServedPool::open(stored, socket.clone()).inspect_err(|_| {
            let _ = fs::remove_file(&socket);
        })?;
        self.store_pool(&served);
        self.add(served);
        Ok(socket.to_string_lossy().into_owned())
    }

    fn drop_named(&mut self, name: &str) -> Result<()> {
        let found = self.pools.iter().find(|(_, p)| p.stored.name == name);
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
        served.end_heartbeat();
        self.tell_keeper(REMOVE, &pool_label(&served.stored.name), &[]);
        let _ = fs::remove_file(&served.socket);
        let watched = served.stored.eventfds.iter();
        let watched = watched.chain([&served.stored.listener]);
        for fd in watched.chain(served.peers.values().map(|peer| &peer.socket)) {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// Ends as requested.
    fn end(&mut self) {
        self.stop_workers();
        let pools: Vec<u32> = self.pools.keys().copied().collect();
        pools.into_iter().for_each(|pool| self.drop_pool(pool));
        self.end_metrics();
        self.tell_keeper(STOP, "", &[]);
        self.program.directory.remove();
        self.log("ended");
    }
}

/// The name under which a pool is served: its own, or else that of its file.
fn pool_name(reference: &PoolRef) -> String {
    let path = reference.path().to_string_lossy();
    let name = match reference.name() {
        b"" => path.rsplit('/').next().unwrap_or_default().into(),
        name => String::from_utf8_lossy(name),
    };
    name.chars().take(64).collect()
}

/// Listens at a path in the private directory. A file there was left by a previous back end.
fn listen(path: &Path) -> Result<UnixListener> {
    let _ = fs::remove_file(path);
    let failed = || format!("could not listen at {}", path.display());
    let listener = UnixListener::bind(path).explain(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).explain(failed)?;
    listener.set_nonblocking(true).explain(failed)?;
    Ok(listener)
}

/// The process at the other end; an error unless it is this user's or root's.
fn check_peer_process(socket: BorrowedFd<'_>) -> Result<u32> {
    let (pid, uid) = peer_of(socket).explain(|| "the process at the other end is not known".into())?;
    if uid != 0 && uid != geteuid().as_raw() {
        return Err(Error::new(format!("user {uid} has no business here")));
    }
    Ok(pid as u32)
}

/// Whether a connection has ended. Peers never send anything, so one that does has violated the protocol.
fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    !matches!(
        rustix::net::recv(socket, &mut [0u8; 16], flags),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR)
    )
}

/// A timer that expires once a second.
fn timer() -> io::Result<OwnedFd> {
    use rustix::time::{
        timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags,
        Timespec,
    };
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let every = Itimerspec { it_interval: second, it_value: second };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    Ok(timer)
}

/// Raises the limit of descriptors, for many machines.
fn raise_limit() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_told_apart() {
        for token in [
            Token::Signal,
            Token::Client(u32::MAX),
            Token::Doorbell(7, 31),
            Token::Peer(9, 255),
            Token::Endpoint,
            Token::Scrape(5),
        ] {
            assert_eq!(Token::of(token.word()), token);
        }
    }
}
