//! The server of the back end: its loop over all sockets, eventfds and the timer, which never waits for a
//! peer.

mod events;
mod peers;
mod requests;
mod restore;
mod scrape;

use self::events::{Events, Source};
use crate::buffered_socket::BufferedSocket;
use crate::http::Endpoint;
use crate::ivshmem::directory::Directory;
use crate::ivshmem::fd_store::{Connection, REMOVE, STOP, STORE};
use crate::ivshmem::program::{Part, Program};
use crate::ivshmem::served_pool::ServedPool;
use crate::ivshmem::stored::{peer_label, pool_label, StoredFds, CONTROL, LOCK};
use crate::joined_pool::now;
use crate::peer::peer_of;
use rustix::event::PollFlags;
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::signal_descriptor::{Signals, TERMINATION};

/// Connections that are accepted before other events are handled.
const ACCEPTS_PER_EVENT: usize = 16;

/// Time that the workers of pools may take to end.
const WORKERS_TIMEOUT: Duration = Duration::from_millis(300);

/// Time for which a back end that ends with its last pool waits for the first one: the command that started
/// it may be killed before it requests that.
const FIRST_POOL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two ticks, in which the back end looks after its pools.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// The next action of the loop.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Restart,
    Stop,
}

struct Server<'a> {
    program: &'a Program,
    signals: Signals,
    keeper: Connection,
    keeper_pid: u32,
    lock: OwnedFd,
    control: UnixListener,
    pools: BTreeMap<u32, ServedPool>,
    clients: BTreeMap<u32, BufferedSocket>,
    /// Names of machines, by their processes.
    names: HashMap<u32, String>,
    /// The last number of a pool or connection.
    serial: u32,
    since: u64,
    begun: Instant,
    ever_served: bool,
    next: Next,
    next_tick: Instant,
    /// The endpoint for metrics, if they are served.
    endpoint: Option<Endpoint>,
    /// The time at which metrics were collected last, and their text.
    last_metrics: Option<(Instant, String)>,
}

/// Serves until it is asked to stop. Begins with the descriptors of a previous back end that the keeper has
/// stored.
pub fn serve(program: &Program, keeper: Connection) -> Result<()> {
    let mut server = Server::new(program, keeper)?;
    server.log(&format!("serving, process {}", std::process::id()));
    loop {
        server.round()?;
        match std::mem::replace(&mut server.next, Next::GoOn) {
            Next::GoOn => (),
            Next::Restart => {
                server.log("restarting");
                server.stop_workers();
                let error = program.reexec(&server.keeper);
                server.log(&format!("could not restart: {error}"));
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
        let mut stored = StoredFds::fetch(&keeper)?;
        let lock = match stored.take(LOCK).pop() {
            Some(lock) => lock,
            None => program.directory.try_lock()?.ok_or_else(|| {
                error!("an agent serves pools in {} already", program.directory.path().display())
            })?,
        };
        let control = match stored.take(CONTROL).pop() {
            Some(control) => control.into(),
            None => listen(&program.directory.control())?,
        };
        let mut server = Server {
            program,
            signals: Signals::watch(&TERMINATION).explain(|| "could not wait for signals".into())?,
            keeper,
            keeper_pid: stored.keeper_pid,
            lock,
            control,
            pools: BTreeMap::new(),
            clients: BTreeMap::new(),
            names: HashMap::new(),
            serial: 0,
            since: now(),
            begun: Instant::now(),
            ever_served: false,
            next: Next::GoOn,
            next_tick: Instant::now() + TICK_INTERVAL,
            endpoint: stored.endpoint().map(|(address, listener)| Endpoint::adopt(address, listener)),
            last_metrics: None,
        };
        // Before a pool is opened: a back end that hangs there can be killed.
        let path = program.directory.pid_file();
        fs::write(&path, format!("{}\n", std::process::id()))
            .explain(|| format!("could not write {}", path.display()))?;
        server.store_own();
        server.restore(stored);
        Ok(server)
    }

    /// Starts to serve a pool; returns its number.
    fn add(&mut self, mut served: ServedPool) -> u32 {
        self.serial += 1;
        self.ever_served = true;
        if let Err(error) = served.start_sender() {
            self.log(&format!("machines are not rung for the host: {error}"));
        }
        if let Err(error) = served.start_worker() {
            self.log(&format!("no worker cleans up in {}: {error}", served.stored.name));
        }
        served.tick();
        self.pools.insert(self.serial, served);
        self.serial
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
                eprintln!("vshmem agent: no worker cleans up in {}: {error}", served.stored.name);
            }
        }
    }

    fn log(&self, text: &str) {
        eprintln!("vshmem agent: {}", vshmem_base::printable(text));
    }

    /// The events of all present sources.
    fn events(&self) -> Events<'_> {
        let mut events = Events::default();
        events.watch(Source::Signal, &self.signals, PollFlags::IN);
        events.watch(Source::Keeper, &self.keeper, PollFlags::IN);
        events.watch(Source::Control, &self.control, PollFlags::IN);
        for (number, client) in &self.clients {
            events.watch_either(Source::Client(*number), client);
        }
        for (pool, served) in &self.pools {
            events.watch(Source::Listener(*pool), &served.stored.listener, PollFlags::IN);
            for (vector, eventfd) in served.stored.eventfds.iter().enumerate() {
                events.watch(Source::Doorbell(*pool, vector), eventfd, PollFlags::IN);
            }
            for (slot, peer) in &served.peers {
                let mut flags = PollFlags::IN | PollFlags::RDHUP;
                flags.set(PollFlags::OUT, peer.behind);
                events.watch(Source::Peer(*pool, *slot), &peer.socket, flags);
            }
        }
        if let Some(endpoint) = &self.endpoint {
            if endpoint.can_accept() {
                events.watch(Source::Endpoint, &endpoint.listener, PollFlags::IN);
            }
            for (number, connection) in endpoint.connections() {
                events.watch_either(Source::Scrape(number), connection);
            }
        }
        events
    }

    /// One round of the loop: waits for events and handles them.
    fn round(&mut self) -> Result<()> {
        let is_busy = self.pools.values().any(ServedPool::is_busy);
        let until_tick = self.next_tick.saturating_duration_since(Instant::now());
        let most = if is_busy { Duration::ZERO } else { until_tick };
        for (source, flags) in self.events().wait(most).explain(|| "could not wait for events".into())? {
            match source {
                Source::Signal => self.signalled(),
                Source::Keeper => self.new_keeper()?,
                Source::Control => self.accept_clients(),
                Source::Client(number) => self.client_event(number),
                Source::Listener(pool) => self.accept_peers(pool),
                Source::Doorbell(pool, vector) => self.doorbell_rung(pool, vector),
                Source::Peer(pool, slot) => self.peer_event(pool, slot, flags),
                Source::Endpoint => self.accept_scrapes(),
                Source::Scrape(number) => self.scrape_event(number),
            }
            if self.next != Next::GoOn {
                return Ok(());
            }
        }
        let busy = self.pools.values_mut().filter(|served| served.is_busy());
        busy.for_each(ServedPool::step);
        if self.next_tick <= Instant::now() {
            self.tick();
        }
        if self.program.transient && self.pools.is_empty() && !self.awaits_first_pool() {
            self.next = Next::Stop;
        }
        Ok(())
    }

    /// Whether it has served no pool yet, and may be about to.
    fn awaits_first_pool(&self) -> bool {
        !self.ever_served && (!self.clients.is_empty() || self.begun.elapsed() < FIRST_POOL_TIMEOUT)
    }

    fn signalled(&mut self) {
        match self.signals.next() {
            Some(libc::SIGHUP) => self.next = Next::Restart,
            Some(_) => self.next = Next::Stop,
            None => {}
        }
    }

    /// Looks after the pools, and closes connections that have taken too long.
    fn tick(&mut self) {
        self.next_tick = Instant::now() + TICK_INTERVAL;
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
        self.endpoint.iter_mut().for_each(Endpoint::expire);
        self.names.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
    }

    /// Handles a ring of the host's doorbell.
    fn doorbell_rung(&mut self, pool: u32, vector: usize) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        // Reset first: a waiter that is served after the scan has the doorbell rung again.
        if let Some(eventfd) = served.stored.eventfds.get(vector) {
            let _ = rustix::io::read(eventfd, &mut [0u8; 8]);
        }
        served.doorbell_rung();
    }

    fn tell_keeper(&self, letter: u8, label: &str, fds: &[BorrowedFd<'_>]) {
        if let Err(error) = self.keeper.send(letter, label, fds) {
            self.log(&format!("the process that restarts this one can't be reached: {error}"));
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
        self.log("the process that restarts this one has died; another one is started");
        let failed = || "could not start the process that restarts this one".to_string();
        let (ours, theirs) = Connection::pair().explain(failed)?;
        self.program.start(Part::Keeper, &theirs).explain(failed)?;
        drop(theirs);
        self.keeper = ours;
        self.keeper_pid = StoredFds::fetch(&self.keeper)?.keeper_pid;
        self.store_own();
        self.pools.values().for_each(|served| self.store_pool(served));
        Ok(())
    }

    fn drop_pool(&mut self, pool: u32) {
        let Some(served) = self.pools.remove(&pool) else {
            return;
        };
        served.end_heartbeat();
        self.tell_keeper(REMOVE, &pool_label(&served.stored.name), &[]);
        let _ = fs::remove_file(&served.socket);
    }

    /// Prepares the end that was requested.
    fn end(&mut self) {
        self.stop_workers();
        let pools: Vec<u32> = self.pools.keys().copied().collect();
        pools.into_iter().for_each(|pool| self.drop_pool(pool));
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.close();
        }
        self.tell_keeper(STOP, "", &[]);
        self.program.directory.remove();
        self.log("ended");
    }
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
        return Err(error!("user {uid} may not connect"));
    }
    Ok(pid as u32)
}

/// Raises the limit of descriptors, for many machines.
fn raise_limit() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}
