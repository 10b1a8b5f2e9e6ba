//! A served pool, and its peers.
//!
//! A peer has a slot of the peer table, which is used again after it, and an id, which is not.

mod announce;
mod collected;
mod members;
mod metrics;
mod status;

use self::collected::Collected;
use crate::ivshmem::doorbell_sender::{self, DoorbellSender};
use crate::ivshmem::host_wakeup::HostWakeup;
use crate::ivshmem::peer_table::{peer_id, PeerTable, MAX_PEERS};
use crate::joined_pool::{monotonic, now, JoinedPool};
use crate::owned_handle::{OwnedHandle, SharedPool};
use crate::reclaimer::Reclaimer;
use crate::worker::Worker;
use rustix::event::{eventfd, EventfdFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;
use vshmem_base::error::{error, Result};
use vshmem_pool::{memory_requests, Pool};
use vshmem_transport::PoolRef;

/// The slot of the host, which is the first to be added, and its peer id.
pub const HOST: u16 = 0;

/// Bytes of memory, where the pool lies, that only small requests get: a member that was refused a large
/// segment can then still make smaller ones, for which tables must grow.
const LAST_MEMORY: u64 = 1 << 20;
/// Bytes of a small request.
const SMALL: u64 = 64 << 10;

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

/// The descriptors of a pool that the keeper stores, and the pool's name.
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
    /// The descriptors that the keeper stores.
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
    /// The number of times that the host's doorbell was rung.
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
        let refused = |why: String| error!("could not open the pool {}: {why}", stored.name);
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

    /// Completes the message that the previous back end was sending when it died. To be called after the last
    /// [`ServedPool::restore_peer`].
    pub fn finish_restore(&mut self) {
        let table = &self.stored.peer_table;
        for slot in 1..MAX_PEERS as u16 {
            if !self.peers.contains_key(&slot) {
                table.remove(slot);
            }
        }
        table.complete_in_flight();
    }

    /// A slot for the next peer, if there is one, and an id.
    pub fn free_slot(&self) -> Option<u16> {
        let mut slots = 1..MAX_PEERS as u16;
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

    /// Handles a ring of the host's doorbell.
    pub fn doorbell_rung(&mut self) {
        self.doorbells += 1;
        self.wakeup.start(&self.pool);
        self.step();
        self.serve_memory_requests();
    }

    fn serve_memory_requests(&self) {
        let handle = &self.joined.handle;
        // Where the kernel can't say what has memory (before Linux 6.5), all is given.
        let lacks = |offset, len| handle.backed(offset, len).map_or(0, |backed| len.saturating_sub(backed));
        let leaves_some = |lack| handle.free_memory().is_none_or(|free| free >= lack + LAST_MEMORY);
        let is_spared = |lack| lack <= SMALL || leaves_some(lack);
        let give = |offset, len| is_spared(lacks(offset, len)) && handle.reserve(offset, len);
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

    /// Makes a heartbeat, and binds peers to members. To be called once a second.
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

    /// Does a little of that work.
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

    fn quarantined(&self) -> Option<u64> {
        self.worker.as_ref().and_then(Worker::quarantined)
    }
}
