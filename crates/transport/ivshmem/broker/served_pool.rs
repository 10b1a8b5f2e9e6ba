//! A pool that is served: its peers, and announcing to each what it was not told yet.
//!
//! There are no queues of messages. What a peer should know (the peers that are connected, and their
//! eventfds) is compared with what it was told according to the peer table, and the difference is sent as far
//! as the peer reads. So a peer that never reads costs a fixed amount of memory, and a new back end goes on
//! where the previous one stopped.
//!
//! A peer has a slot of the peer table, which is used again after it, and an id, which is not.
//!
//! # When the back end dies
//! The peer table is written after each message. So when a back end dies, there is one message of which it is
//! not known whether it was sent. It counts as sent ([`PeerTable::complete_in_flight`]), because no message
//! may be sent twice: QEMU frees twice what is removed twice, and takes a vector that comes twice for the
//! next one.

mod collected;
mod metrics;

use self::collected::Collected;
use crate::error::{Error, Explain, Result};
use crate::ivshmem::control::{MemberStatus, PeerStatus, PoolStatus};
use crate::ivshmem::doorbell_sender::{self, DoorbellSender};
use crate::ivshmem::host_wakeup::HostWakeup;
use crate::ivshmem::message;
use crate::ivshmem::peer_table::{peer_id, Announced, PeerTable, MOST_PEERS};
use crate::joined_pool::{monotonic, now, JoinedPool};
use crate::owned_handle::{OwnedHandle, SharedPool};
use crate::reclaimer::Reclaimer;
use crate::worker::Worker;
use rustix::event::{eventfd, EventfdFlags};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;
use vshmem_pool::{memory_requests, Pool};
use vshmem_transport::PoolRef;

/// The slot of the host, which is the first to be added, and its peer id.
pub const HOST: u16 = 0;

/// A connected machine.
pub struct Peer {
    /// The connection.
    pub socket: OwnedFd,
    /// Its doorbell, an eventfd for each vector.
    pub eventfds: Vec<OwnedFd>,
    /// The machine's name.
    pub name: String,
    /// It does not read at present.
    pub behind: bool,
}

/// What the keeper stores of a pool, and its name.
pub struct StoredPool {
    /// The pool's name.
    pub name: String,
    /// The pool's file.
    pub file: OwnedFd,
    /// The socket to which machines connect.
    pub listener: OwnedFd,
    /// The peers that are connected.
    pub peer_table: PeerTable,
    /// The host's doorbell, an eventfd for each vector.
    pub eventfds: Vec<OwnedFd>,
}

/// A pool that is served.
pub struct ServedPool {
    /// What the keeper stores.
    pub stored: StoredPool,
    /// The path of the socket to which machines connect.
    pub socket: PathBuf,
    /// The connected machines, by slot.
    pub peers: BTreeMap<u16, Peer>,
    // Before the memory, in which its thread works.
    sender: DoorbellSender,
    joined: SharedPool,
    pool: Pool,
    member: u16,
    wakeup: HostWakeup,
    /// How often the host's doorbell was rung.
    doorbells: u64,
    worker: Option<Worker>,
    given_back: Arc<AtomicU64>,
    unfetched: memory_requests::Unfetched,
    collected: Option<Collected>,
}

/// Creates the eventfds of a peer.
pub fn new_eventfds(vectors: usize) -> io::Result<Vec<OwnedFd>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..vectors).map(|_| Ok(eventfd(0, flags)?)).collect()
}

impl ServedPool {
    /// Opens the pool and joins it.
    pub fn open(stored: StoredPool, socket: PathBuf) -> Result<ServedPool> {
        let refused = |why: String| Error::new(format!("could not open the pool {}: {why}", stored.name));
        // By its descriptor: its path may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", stored.file.as_raw_fd());
        let reference = PoolRef::at(path.as_bytes()).map_err(|e| refused(e.to_string()))?;
        let handle = vshmem_transport::open(&reference).map_err(|e| refused(e.to_string()))?;
        // SAFETY: the pool's memory is used by this, its doorbell sender and its worker. They end before the
        // handle is dropped, or share it.
        let handle = unsafe { OwnedHandle::new(handle) };
        let pool = Pool::open(handle.mem()).map_err(|e| refused(e.to_string()))?;
        let member = handle.join(&pool).map_err(|e| refused(e.to_string()))?;
        pool.set_member_peer(member, HOST, now());
        if stored.peer_table.entry(HOST).generation.load(Relaxed) == 0 {
            stored.peer_table.add(HOST, std::process::id(), now(), |_| false);
        }
        let served = ServedPool {
            stored,
            socket,
            peers: BTreeMap::new(),
            sender: DoorbellSender::new(pool),
            joined: Arc::new(JoinedPool::for_agent(handle, pool, member)),
            pool,
            member,
            wakeup: HostWakeup::default(),
            doorbells: 0,
            worker: None,
            given_back: Arc::default(),
            unfetched: memory_requests::Unfetched::default(),
            collected: None,
        };
        served.make_heartbeat();
        Ok(served)
    }

    /// Starts the worker. Its first pass is made at once, since a previous back end may have died with the
    /// pool's lock.
    pub fn start_worker(&mut self) -> io::Result<()> {
        let reclaimer = Reclaimer::new(self.stored.file.try_clone()?, self.given_back.clone());
        self.worker = Some(Worker::start(self.joined.clone(), &self.stored.name, reclaimer)?);
        Ok(())
    }

    /// Starts the doorbell sender, when all peers of a previous back end were restored.
    pub fn start_sender(&mut self) -> io::Result<()> {
        let started = self.sender.start();
        match started {
            Ok(()) => self.pool.join_doorbells(self.member, HOST),
            Err(_) => self.pool.leave_doorbells(self.member),
        }
        started
    }

    /// Restores a peer of a previous back end. False if it has no entry in the peer table.
    pub fn restore_peer(&mut self, slot: u16, socket: OwnedFd, eventfds: Vec<OwnedFd>) -> bool {
        let table = &self.stored.peer_table;
        let entry = table.entry(slot);
        let is_entered = entry.generation.load(Relaxed) != 0;
        if !is_entered || eventfds.len() != table.vectors() {
            return false;
        }
        let name = entry.name();
        if let Some(eventfd) = eventfds.first() {
            self.sender.add(self.peer_id(slot), eventfd);
        }
        let peer = Peer { socket, eventfds, name, behind: false };
        self.peers.insert(slot, peer);
        true
    }

    /// After the last [`ServedPool::restore_peer`]: completes what the previous back end was doing when it
    /// died.
    pub fn finish_restore(&mut self) {
        let table = &self.stored.peer_table;
        for slot in 1..MOST_PEERS as u16 {
            if !self.peers.contains_key(&slot) {
                table.remove(slot);
            }
        }
        table.complete_in_flight();
    }

    /// A slot for the next peer, if there is one, and an id.
    pub fn free_slot(&self) -> Option<u16> {
        let mut slots = 1..MOST_PEERS as u16;
        slots.find(|slot| !self.peers.contains_key(slot) && self.stored.peer_table.has_ids())
    }

    fn peer_id(&self, slot: u16) -> u16 {
        peer_id(self.stored.peer_table.entry(slot).generation.load(Relaxed))
    }

    /// Adds a peer whose descriptors the keeper has stored.
    pub fn add_peer(&mut self, slot: u16, peer: Peer, pid: u32) {
        // Machines go on with the ids that they had from an earlier back end, of which this one has no peer
        // table.
        let is_taken = |id| {
            let mut taken = false;
            self.pool.members(|index, _, alive| {
                let its = self.pool.member_peer(index).map(|(peer, _)| peer);
                taken |= alive && its == Some(id);
            });
            taken
        };
        self.stored.peer_table.add(slot, pid, now(), is_taken);
        self.stored.peer_table.entry(slot).set_name(&peer.name);
        if let Some(eventfd) = peer.eventfds.first() {
            self.sender.add(self.peer_id(slot), eventfd);
        }
        self.peers.insert(slot, peer);
    }

    /// Removes a peer, and declares its machine dead in the pool.
    pub fn remove_peer(&mut self, slot: u16) -> Option<Peer> {
        self.bind_members();
        let id = self.peer_id(slot);
        let peer = self.peers.remove(&slot)?;
        self.stored.peer_table.remove(slot);
        self.sender.remove(id);
        let pool = &self.pool;
        pool.members(|index, _, alive| {
            let is_it = pool.member_peer(index).is_some_and(|(peer, _)| peer == id);
            if alive && index != self.member && is_it {
                pool.declare_dead(index);
            }
        });
        Some(peer)
    }

    /// Announces to all peers what they were not told yet. Returns the slots of those whose connection is
    /// broken.
    pub fn announce(&mut self) -> Vec<u16> {
        let slots: Vec<u16> = self.peers.keys().copied().collect();
        slots.into_iter().filter(|slot| !self.announce_to(*slot)).collect()
    }

    /// Announces to one peer what it was not told yet, as far as it reads. False if the connection is broken.
    fn announce_to(&mut self, recipient: u16) -> bool {
        let result = self.send_difference(recipient);
        let Some(peer) = self.peers.get_mut(&recipient) else {
            return true;
        };
        let is_temporary = |e: &io::Error| {
            // Linux limits how many descriptors of a user are in flight.
            e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ETOOMANYREFS)
        };
        peer.behind = result.as_ref().is_err_and(is_temporary);
        peer.behind || result.is_ok()
    }

    fn send_difference(&self, recipient: u16) -> io::Result<()> {
        self.greet(recipient)?;
        for subject in 0..MOST_PEERS as u16 {
            if subject != recipient {
                self.announce_subject(recipient, subject)?;
            }
        }
        // Its own vectors come last: by then it knows all others.
        self.announce_subject(recipient, recipient)
    }

    fn greet(&self, recipient: u16) -> io::Result<()> {
        let Some(peer) = self.peers.get(&recipient) else {
            return Ok(());
        };
        let greeted = &self.stored.peer_table.entry(recipient).greeted;
        let memory = Some(self.stored.file.as_fd());
        let greeting =
            [(message::VERSION, None), (i64::from(self.peer_id(recipient)), None), (message::MEMORY, memory)];
        for (number, fd) in greeting.into_iter().skip(greeted.load(Relaxed) as usize) {
            let next = greeted.load(Relaxed) + 1;
            let send = || message::send(peer.socket.as_fd(), number, fd);
            self.stored.peer_table.greet(recipient, next, send)?;
        }
        Ok(())
    }

    fn announce_subject(&self, recipient: u16, subject: u16) -> io::Result<()> {
        let table = &self.stored.peer_table;
        let Some(peer) = self.peers.get(&recipient) else {
            return Ok(());
        };
        let generation = table.entry(subject).generation.load(Relaxed);
        let mut announced = table.announced(recipient, subject);
        if announced.generation != generation {
            // That the previous peer in this slot is gone is not announced: QEMU would free its eventfds, and
            // free them again when its own device is unplugged.
            announced.vectors = 0;
        }
        if generation == 0 {
            return Ok(());
        }
        let eventfds = self.eventfds(subject);
        for (vector, eventfd) in eventfds.iter().enumerate().skip(announced.vectors) {
            let after = Announced { generation, vectors: vector + 1 };
            let id = peer_id(generation).into();
            let send = || message::send(peer.socket.as_fd(), id, Some(eventfd.as_fd()));
            table.announce(recipient, subject, after, send)?;
        }
        Ok(())
    }

    fn eventfds(&self, slot: u16) -> &[OwnedFd] {
        match slot {
            HOST => &self.stored.eventfds,
            _ => self.peers.get(&slot).map_or(&[], |peer| &peer.eventfds),
        }
    }

    /// The host's doorbell was rung.
    pub fn doorbell_rung(&mut self) {
        self.doorbells += 1;
        self.wakeup.start(&self.pool);
        self.step();
        self.serve_memory_requests();
    }

    fn serve_memory_requests(&self) {
        let give = |offset, len| self.joined.handle.reserve(offset, len);
        self.pool.serve_memory_requests(give, |member| {
            let id = self.pool.member_peer(member).map(|(id, _)| id);
            let mut peers = self.peers.iter();
            let requester = peers.find(|(slot, _)| Some(self.peer_id(**slot)) == id);
            if let Some(eventfd) = requester.and_then(|(_, peer)| peer.eventfds.first()) {
                doorbell_sender::ring(eventfd);
            }
        });
    }

    /// Makes a heartbeat, and says in the pool whether machines can request memory.
    fn make_heartbeat(&self) {
        self.pool.set_gives(!self.joined.handle.is_reserved());
        self.pool.heartbeat(monotonic());
    }

    /// Once a second: makes a heartbeat, and finds out which member is which peer.
    pub fn tick(&mut self) {
        self.make_heartbeat();
        self.bind_members();
        self.serve_memory_requests();
        self.pool.forget_unfetched(&mut self.unfetched);
    }

    /// Whether there is work before the next event.
    pub fn is_busy(&self) -> bool {
        self.wakeup.is_pending()
    }

    /// Does a little of it.
    pub fn step(&mut self) {
        self.wakeup.step(&self.pool, self.member);
    }

    /// Asks the worker to end, before this process ends or executes another program.
    pub fn stop_worker(&mut self) {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
    }

    /// Waits for the worker's end until a deadline. False: it has not ended.
    pub fn wait_for_worker(&mut self, deadline: Instant) -> bool {
        let worker = self.worker.as_ref();
        worker.is_none_or(|worker| worker.wait_until(deadline))
    }

    /// Says in the pool that it is not served any more.
    pub fn end_heartbeat(&self) {
        self.pool.leave_doorbells(self.member);
        self.pool.set_gives(false);
        self.pool.heartbeat(0);
    }

    /// Whether a part of the pool's memory is lost.
    pub fn is_lost(&self) -> bool {
        self.joined.handle.is_lost()
    }

    /// Whether the pool's file was removed, and no machine is connected.
    pub fn is_abandoned(&self) -> bool {
        let links = rustix::fs::fstat(&self.stored.file).map_or(1, |stat| stat.st_nlink);
        links == 0 && self.peers.is_empty()
    }

    /// Finds out which member each peer is. A member that has not written its peer id is found by its name.
    /// If several have the name, since the machine was restarted, the newest is alive: the one that no back
    /// end has seen before. (The order of entries says less, since they are used again.) Of entries with the
    /// same identity, which a kernel made at the same time by mistake, the first counts.
    fn bind_members(&mut self) {
        let pool = &self.pool;
        for (slot, peer) in &self.peers {
            let id = self.peer_id(*slot);
            let mut found = Vec::new();
            pool.members(|index, name, alive| {
                let known = pool.member_peer(index);
                let is_it = known.is_some_and(|(peer, _)| peer == id)
                    || known.is_none() && name == peer.name.as_bytes();
                if alive && index != self.member && is_it {
                    let is_new = known.is_none_or(|(_, since)| since == 0);
                    found.push((is_new, index, pool.member_identity(index)));
                }
            });
            let Some((is_new, _, identity)) = found.iter().max().copied() else {
                continue;
            };
            let first = found.iter().filter(|found| found.2 == identity).map(|found| found.1).min();
            for (_, index, _) in found.iter().filter(|found| Some(found.1) != first) {
                pool.declare_dead(*index);
            }
            if let Some(first) = first.filter(|_| is_new) {
                let since = self.stored.peer_table.entry(*slot).since.load(Relaxed);
                pool.set_member_peer(first, id, since);
            }
        }
    }

    /// The status for the control socket.
    pub fn status(&self) -> PoolStatus {
        let path = format!("/proc/self/fd/{}", self.stored.file.as_raw_fd());
        let path = fs::read_link(path).unwrap_or_default();
        let peers = self.peers.iter().map(|(slot, peer)| {
            let entry = self.stored.peer_table.entry(*slot);
            PeerStatus {
                peer: self.peer_id(*slot),
                name: peer.name.clone(),
                pid: entry.pid.load(Relaxed),
                since: entry.since.load(Relaxed),
                behind: peer.behind,
            }
        });
        let mut members = Vec::new();
        self.pool.members(|index, name, alive| {
            let known = self.pool.member_peer(index);
            members.push(MemberStatus {
                member: index,
                name: String::from_utf8_lossy(name).into_owned(),
                alive,
                peer: known.map(|(peer, _)| peer),
                since: known.map(|(_, since)| since).filter(|since| *since != 0),
            });
        });
        PoolStatus {
            name: self.stored.name.clone(),
            path: path.to_string_lossy().trim_end_matches(" (deleted)").into(),
            size: self.pool.mem().len() as u64,
            vectors: self.stored.peer_table.vectors(),
            socket: self.socket.to_string_lossy().into_owned(),
            rung: self.doorbells,
            given_back: self.given_back.load(Relaxed),
            quarantined: self.quarantined(),
            peers: peers.collect(),
            members,
        }
    }

    fn quarantined(&self) -> Option<u64> {
        self.worker.as_ref().and_then(Worker::quarantined)
    }
}

/// Opens the file of a pool that is to be served, if its type and size are right.
pub fn open_file(reference: &PoolRef) -> Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(reference.path().to_bytes()));
    let fd = vshmem_transport::open_local_file(reference)
        .map_err(|why| Error::new(format!("could not open {}: {why}", path.display())))?;
    // SAFETY: opened by the call, and owned here.
    let file = fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let meta = file.metadata().explain(|| format!("could not look at {}", path.display()))?;
    if !meta.is_file() || !meta.len().is_power_of_two() {
        return Err(Error::new(format!(
            "{} can't be a machine's device: it must be a file whose size is a power of two",
            path.display()
        )));
    }
    Ok(file.into())
}

/// The name of a machine, by its process: QEMU's -name, or else the program and the pid.
pub fn name_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
    let given = words.iter().position(|word| word == "-name");
    if let Some(value) = given.and_then(|at| words.get(at + 1)) {
        let name = value.split(',').next().unwrap_or_default();
        return name.strip_prefix("guest=").unwrap_or(name).into();
    }
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", program.trim())
}
