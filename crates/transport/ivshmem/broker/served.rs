//! One pool: who is connected, and telling each what it does not know yet.
//!
//! There are no queues of messages. What a peer should know (who is here, with which eventfds) is compared with what the peer table says that
//! it was told, and the difference is sent as far as it reads. So a peer that never reads costs a fixed amount of memory, and a
//! new back end goes on where the old one ended.
//!
//! A peer stands in a place of the peer table, which is given to others after it; its number never is.
//!
//! # What a death leaves
//! The peer table is written after each message, so when a back end dies, of one message it is not known whether it was sent. It counts as
//! sent ([`PeerTable::settle`]). Nothing may be told twice: QEMU frees twice what is taken back twice, and takes a vector that comes
//! twice for the next one.

use crate::error::{Error, Explain, Result};
use crate::ivshmem::control::{MemberStatus, PeerStatus, PoolStatus};
use crate::ivshmem::doorbell_sender::{self, DoorbellSender};
use crate::ivshmem::message;
use crate::ivshmem::peer_table::{number_of, PeerTable, Told, MOST_PEERS};
use crate::ivshmem::ring::Rung;
use crate::kernel::{monotonic, now, Below};
use crate::mapped::{Mapped, Shared};
use crate::metrics;
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
use std::time::{Duration, Instant};
use vshmem_ipc::stats;
use vshmem_pool::layout::Kind;
use vshmem_pool::{memory_requests, Pool};
use vshmem_transport::PoolRef;

/// The place of the host itself, which is the first to be entered, and its number.
pub const HOST: u16 = 0;

/// A look for who watches is followed by so many times its length without one.
const REST: u32 = 10;

/// A connection.
pub struct Peer {
    /// To the machine.
    pub socket: OwnedFd,
    /// By which it is rung.
    pub bells: Vec<OwnedFd>,
    /// What it is called.
    pub name: String,
    /// It does not read now.
    pub behind: bool,
}

/// What is kept of a pool over the death of a back end.
pub struct Parts {
    /// The pool's name.
    pub name: String,
    /// The pool's file.
    pub file: OwnedFd,
    /// Where machines connect.
    pub listener: OwnedFd,
    /// Who is connected.
    pub peer_table: PeerTable,
    /// By which the host is rung.
    pub bells: Vec<OwnedFd>,
}

/// A pool that is served.
pub struct Served {
    /// What is kept.
    pub parts: Parts,
    /// Where machines connect.
    pub socket: PathBuf,
    /// Who is connected, by place.
    pub peers: BTreeMap<u16, Peer>,
    // Before the memory, in which its thread works.
    sender: DoorbellSender,
    below: Shared,
    pool: Pool,
    member: u16,
    ringing: Rung,
    rung: u64,
    worker: Option<Worker>,
    given_back: Arc<AtomicU64>,
    unfetched: memory_requests::Unfetched,
    looked: Option<Looked>,
}

/// What was told last to who watches.
struct Looked {
    at: Instant,
    took: Duration,
    found: metrics::Pool,
}

/// Makes the eventfds of a peer.
pub fn new_bells(vectors: usize) -> io::Result<Vec<OwnedFd>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..vectors).map(|_| Ok(eventfd(0, flags)?)).collect()
}

impl Served {
    /// Opens the pool, and becomes a member of it.
    pub fn new(parts: Parts, socket: PathBuf) -> Result<Served> {
        let refused =
            |why: String| Error::new(format!("could not open the pool {}: {why}", parts.name));
        // By its descriptor: its path may lead elsewhere by now.
        let link = format!("/proc/self/fd/{}", parts.file.as_raw_fd());
        let reference = PoolRef::at(link.as_bytes()).map_err(|e| refused(e.to_string()))?;
        let handle = vshmem_transport::open(&reference).map_err(|e| refused(e.to_string()))?;
        // SAFETY: the pool's memory is used by this, its doorbell sender and its worker, which all end before it or have it, too.
        let handle = unsafe { Mapped::new(handle) };
        let pool = Pool::open(handle.mem()).map_err(|e| refused(e.to_string()))?;
        let member = handle.join(&pool).map_err(|e| refused(e.to_string()))?;
        pool.set_member_peer(member, HOST, now());
        if parts.peer_table.entry(HOST).generation.load(Relaxed) == 0 {
            parts
                .peer_table
                .enter(HOST, std::process::id(), now(), |_| false);
        }
        let served = Served {
            parts,
            socket,
            peers: BTreeMap::new(),
            sender: DoorbellSender::new(pool),
            below: Arc::new(Below::for_a_loop(handle, pool, member)),
            pool,
            member,
            ringing: Rung::default(),
            rung: 0,
            worker: None,
            given_back: Arc::default(),
            unfetched: memory_requests::Unfetched::default(),
            looked: None,
        };
        served.tell_of_liveness();
        Ok(served)
    }

    /// Begins to clean up in the pool. At once, since a back end before this one may have died with the pool's lock.
    pub fn begin_work(&mut self) -> io::Result<()> {
        let reclaimer = Reclaimer::new(self.parts.file.try_clone()?, self.given_back.clone());
        self.worker = Some(Worker::start(
            self.below.clone(),
            &self.parts.name,
            reclaimer,
        )?);
        Ok(())
    }

    /// When all peers that it is to begin with are known: from now on it rings them for the host.
    pub fn begin(&mut self) -> io::Result<()> {
        let begun = self.sender.start();
        match begun {
            Ok(()) => self.pool.join_doorbells(self.member, HOST),
            Err(_) => self.pool.leave_doorbells(self.member),
        }
        begun
    }

    /// Puts a peer back whose connection was kept. Returns false if nothing is known of it.
    pub fn adopt(&mut self, place: u16, socket: OwnedFd, bells: Vec<OwnedFd>) -> bool {
        let table = &self.parts.peer_table;
        let entry = table.entry(place);
        let known = entry.generation.load(Relaxed) != 0;
        if !known || bells.len() != table.vectors() {
            return false;
        }
        let name = entry.name();
        if let Some(bell) = bells.first() {
            self.sender.know(self.number(place), bell);
        }
        let peer = Peer {
            socket,
            bells,
            name,
            behind: false,
        };
        self.peers.insert(place, peer);
        true
    }

    /// After the last [`Served::adopt`]: puts right what the back end before was doing when it died.
    pub fn settle(&mut self) {
        let table = &self.parts.peer_table;
        for place in 1..MOST_PEERS as u16 {
            if !self.peers.contains_key(&place) {
                table.leave(place);
            }
        }
        table.settle();
    }

    /// A place for the next peer, if there is one, and a number.
    pub fn free_place(&self) -> Option<u16> {
        let mut places = 1..MOST_PEERS as u16;
        places.find(|place| !self.peers.contains_key(place) && self.parts.peer_table.has_numbers())
    }

    fn number(&self, place: u16) -> u16 {
        number_of(self.parts.peer_table.entry(place).generation.load(Relaxed))
    }

    /// Enters a peer whose descriptors are with the keeper already.
    pub fn enter(&mut self, place: u16, peer: Peer, pid: u32) {
        // Machines of a back end that is gone for good, or that served the pool before, go on with the numbers that they had from it.
        let is_taken = |number| {
            let mut taken = false;
            self.pool.members(|index, _, alive| {
                let its = self.pool.member_peer(index).map(|(peer, _)| peer);
                taken |= alive && its == Some(number);
            });
            taken
        };
        self.parts.peer_table.enter(place, pid, now(), is_taken);
        self.parts.peer_table.entry(place).set_name(&peer.name);
        if let Some(bell) = peer.bells.first() {
            self.sender.know(self.number(place), bell);
        }
        self.peers.insert(place, peer);
    }

    /// Strikes a peer out; its machine is dead for this pool. Returns it.
    pub fn leave(&mut self, place: u16) -> Option<Peer> {
        self.bind_members();
        let number = self.number(place);
        let peer = self.peers.remove(&place)?;
        self.parts.peer_table.leave(place);
        self.sender.forget(number);
        let pool = &self.pool;
        pool.members(|index, _, alive| {
            let is_it = pool
                .member_peer(index)
                .is_some_and(|(peer, _)| peer == number);
            if alive && index != self.member && is_it {
                pool.declare_dead(index);
            }
        });
        Some(peer)
    }

    /// Tells everybody what is new.
    pub fn tell_all(&mut self) -> Vec<u16> {
        let numbers: Vec<u16> = self.peers.keys().copied().collect();
        numbers
            .into_iter()
            .filter(|number| !self.tell(*number))
            .collect()
    }

    /// Tells one peer what it does not know, as far as it reads. False if the connection is broken.
    pub fn tell(&mut self, client: u16) -> bool {
        let result = self.try_tell(client);
        let Some(peer) = self.peers.get_mut(&client) else {
            return true;
        };
        let again = |e: &io::Error| {
            // Linux limits how many descriptors of a user are under way at once.
            e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ETOOMANYREFS)
        };
        peer.behind = result.as_ref().is_err_and(again);
        peer.behind || result.is_ok()
    }

    fn try_tell(&self, client: u16) -> io::Result<()> {
        self.greet(client)?;
        for subject in 0..MOST_PEERS as u16 {
            if subject != client {
                self.tell_about(client, subject)?;
            }
        }
        // Its own vectors come last: then it knows everybody.
        self.tell_about(client, client)
    }

    fn greet(&self, client: u16) -> io::Result<()> {
        let Some(peer) = self.peers.get(&client) else {
            return Ok(());
        };
        let greeted = &self.parts.peer_table.entry(client).greeted;
        let memory = Some(self.parts.file.as_fd());
        let greeting = [
            (message::VERSION, None),
            (i64::from(self.number(client)), None),
            (message::MEMORY, memory),
        ];
        for (number, with) in greeting.into_iter().skip(greeted.load(Relaxed) as usize) {
            let next = greeted.load(Relaxed) + 1;
            let send = || message::send(peer.socket.as_fd(), number, with);
            self.parts.peer_table.greeting(client, next, send)?;
        }
        Ok(())
    }

    fn tell_about(&self, client: u16, subject: u16) -> io::Result<()> {
        let table = &self.parts.peer_table;
        let Some(peer) = self.peers.get(&client) else {
            return Ok(());
        };
        let here = table.entry(subject).generation.load(Relaxed);
        let mut told = table.told(client, subject);
        if told.generation != here {
            // Another stood in this place. That it is gone is not told: QEMU frees twice what belonged to a peer that is gone, when
            // its device is unplugged.
            told = Told {
                generation: 0,
                vectors: 0,
            };
        }
        if here == 0 {
            return Ok(());
        }
        let bells = self.bells(subject);
        for (vector, bell) in bells.iter().enumerate().skip(told.vectors) {
            let after = Told {
                generation: here,
                vectors: vector + 1,
            };
            let number = number_of(here).into();
            let send = || message::send(peer.socket.as_fd(), number, Some(bell.as_fd()));
            table.tell(client, subject, after, send)?;
        }
        Ok(())
    }

    fn bells(&self, subject: u16) -> &[OwnedFd] {
        match subject {
            HOST => &self.parts.bells,
            _ => self.peers.get(&subject).map_or(&[], |peer| &peer.bells),
        }
    }

    /// The host was rung.
    pub fn rung(&mut self) {
        self.rung += 1;
        self.ringing.begin(&self.pool);
        self.step();
        self.give_memory();
    }

    /// Answers the machines that ask for memory.
    fn give_memory(&self) {
        let give = |offset, len| self.below.handle.reserve(offset, len);
        self.pool.serve_memory_requests(give, |member| {
            let number = self.pool.member_peer(member).map(|(number, _)| number);
            let mut peers = self.peers.iter();
            let asked = peers.find(|(place, _)| Some(self.number(**place)) == number);
            if let Some(bell) = asked.and_then(|(_, peer)| peer.bells.first()) {
                doorbell_sender::ring(bell);
            }
        });
    }

    /// Says in the pool that the back end lives, and whether machines can ask it for memory.
    fn tell_of_liveness(&self) {
        self.pool.set_gives(!self.below.handle.is_reserved());
        self.pool.heartbeat(monotonic());
    }

    /// Once a second: says that the back end lives, and finds out which member is which peer.
    pub fn tick(&mut self) {
        self.tell_of_liveness();
        self.bind_members();
        self.give_memory();
        self.pool.forget_unfetched(&mut self.unfetched);
    }

    /// Is there something to do before the next tick?
    pub fn is_busy(&self) -> bool {
        self.ringing.is_busy()
    }

    /// Does a little of it.
    pub fn step(&mut self) {
        self.ringing.go_on(&self.pool, self.member);
    }

    /// Before this process ends or becomes another program: it is no process of the pool any more, as soon as its work there allows.
    pub fn end_work(&mut self) {
        if let Some(worker) = &self.worker {
            worker.ask_to_end();
        }
    }

    /// Waits for that.
    pub fn has_ended_work_by(&mut self, deadline: Instant) -> bool {
        let worker = self.worker.as_ref();
        worker.is_none_or(|worker| worker.has_ended_by(deadline))
    }

    /// The back end ends in good order.
    pub fn say_good_bye(&self) {
        self.pool.leave_doorbells(self.member);
        self.pool.set_gives(false);
        self.pool.heartbeat(0);
    }

    /// A part of the pool's memory has gone away.
    pub fn is_lost(&self) -> bool {
        self.below.handle.is_lost()
    }

    /// The pool's file has no name any more, and no machine uses it.
    pub fn is_abandoned(&self) -> bool {
        let links = rustix::fs::fstat(&self.parts.file).map_or(1, |stat| stat.st_nlink);
        links == 0 && self.peers.is_empty()
    }

    /// A member that has not said itself which peer it is, is known by its name. Of several by which a machine went, as it was started
    /// anew, the newest lives: one that this back end, or one before it, has not seen yet. Entries are used again, so their order says
    /// less. Of entries that a kernel made at the same time by mistake, the first counts.
    fn bind_members(&mut self) {
        let pool = &self.pool;
        for (place, peer) in &self.peers {
            let number = self.number(*place);
            let mut found = Vec::new();
            pool.members(|index, name, alive| {
                let known = pool.member_peer(index);
                let is_it = known.is_some_and(|(peer, _)| peer == number)
                    || known.is_none() && name == peer.name.as_bytes();
                if alive && index != self.member && is_it {
                    let unseen = known.is_none_or(|(_, since)| since == 0);
                    found.push((unseen, index, pool.member_identity(index)));
                }
            });
            let Some((unseen, _, identity)) = found.iter().max().copied() else {
                continue;
            };
            let first = found
                .iter()
                .filter(|found| found.2 == identity)
                .map(|found| found.1)
                .min();
            for (_, index, _) in found.iter().filter(|found| Some(found.1) != first) {
                pool.declare_dead(*index);
            }
            if let Some(first) = first.filter(|_| unseen) {
                let since = self.parts.peer_table.entry(*place).since.load(Relaxed);
                pool.set_member_peer(first, number, since);
            }
        }
    }

    /// For the control socket.
    pub fn status(&self) -> PoolStatus {
        let path = format!("/proc/self/fd/{}", self.parts.file.as_raw_fd());
        let path = fs::read_link(path).unwrap_or_default();
        let peers = self.peers.iter().map(|(place, peer)| {
            let entry = self.parts.peer_table.entry(*place);
            PeerStatus {
                peer: self.number(*place),
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
            name: self.parts.name.clone(),
            path: path.to_string_lossy().trim_end_matches(" (deleted)").into(),
            size: self.pool.mem().len() as u64,
            vectors: self.parts.peer_table.vectors(),
            socket: self.socket.to_string_lossy().into_owned(),
            rung: self.rung,
            given_back: self.given_back.load(Relaxed),
            quarantined: self.quarantined(),
            peers: peers.collect(),
            members,
        }
    }

    fn quarantined(&self) -> Option<u64> {
        self.worker.as_ref().and_then(Worker::quarantined)
    }

    /// For who watches: what was found last, if there was a look yet.
    pub fn metrics(&self) -> Option<&metrics::Pool> {
        self.looked.as_ref().map(|looked| &looked.found)
    }

    /// When it was looked at last for who watches.
    pub fn looked_at(&self) -> Option<Instant> {
        self.looked.as_ref().map(|looked| looked.at)
    }

    /// Looks again for who watches, unless that took long and not long ago: what lies in a pool decides how long, up to some tenths of a
    /// second, and others wait meanwhile.
    pub fn look(&mut self) {
        let begun = Instant::now();
        let rests = |looked: &Looked| begun < looked.at + looked.took * REST;
        if self.looked.as_ref().is_some_and(rests) {
            return;
        }
        let found = self.find();
        let took = begun.elapsed();
        let at = Instant::now();
        self.looked = Some(Looked { at, took, found });
    }

    /// Nothing is locked, and nothing that is read is believed.
    fn find(&self) -> metrics::Pool {
        let (pool, handle) = (&self.pool, &self.below.handle);
        let back = &mut |at, len| handle.reserve(at, len);
        let totals = stats::totals(pool);
        let mut members = Vec::new();
        pool.members(|member, name, alive| {
            members.push(metrics::Member {
                member,
                name: String::from_utf8_lossy(name).into_owned(),
                alive,
                processes: 0,
                sleepers: 0,
            });
        });
        let of = |members: &mut Vec<metrics::Member>, member| {
            members.iter().position(|m| m.member == member)
        };
        stats::processes(pool, back, |_, who| {
            if let Some(i) = of(&mut members, who.member) {
                members[i].processes += 1;
            }
        });
        let mut sleepers = [0; 2];
        stats::sleepers(pool, back, |sleeper| {
            sleepers[usize::from(sleeper.kind == Kind::Msg)] += 1;
            if let Some(i) = of(&mut members, sleeper.who.member) {
                members[i].sleepers += 1;
            }
        });
        let (mut messages, mut text) = (0, 0);
        stats::queues(pool, back, |queue| {
            messages += u64::from(queue.messages());
            text += u64::from(queue.bytes());
        });
        let blocks = rustix::fs::fstat(&self.parts.file).map_or(0, |stat| stat.st_blocks);
        metrics::Pool {
            name: self.parts.name.clone(),
            size: pool.mem().len() as u64,
            memory: blocks as u64 * 512,
            segments: totals.segment_bytes,
            free: totals.page_bytes - totals.segment_bytes,
            objects: totals.objects,
            semaphores: totals.semaphores,
            messages,
            text,
            sleepers,
            peers: self.peers.len() as u64,
            rung: self.rung,
            given_back: self.given_back.load(Relaxed),
            quarantined: self.quarantined().is_some(),
            members,
        }
    }
}

/// Opens the file of a pool that is to be served, after a look at what it is.
pub fn open_file(reference: &PoolRef) -> Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(reference.path().to_bytes()));
    let fd = vshmem_transport::open_local_file(reference)
        .map_err(|why| Error::new(format!("could not open {}: {why}", path.display())))?;
    // SAFETY: opened for this.
    let file = fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let meta = file
        .metadata()
        .explain(|| format!("could not look at {}", path.display()))?;
    if !meta.is_file() || !meta.len().is_power_of_two() {
        return Err(Error::new(format!(
            "{} can't be a machine's device: it must be a file whose size is a power of two",
            path.display()
        )));
    }
    Ok(file.into())
}

/// What a machine is called: QEMU's -name, else its program and number.
pub fn name_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|b| *b == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let given = words.iter().position(|word| word == "-name");
    if let Some(value) = given.and_then(|at| words.get(at + 1)) {
        let name = value.split(',').next().unwrap_or_default();
        return name.strip_prefix("guest=").unwrap_or(name).into();
    }
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", program.trim())
}
