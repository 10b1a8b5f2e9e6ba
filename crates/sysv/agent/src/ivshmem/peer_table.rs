//! A pool's peer table: the peers that are connected, and what each was told of each other. It lies in a
//! memfd that the keeper has too, so it survives the back end. Every change is one store.

use rustix::fs::{fstat, ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_pool::layout::MAX_MEMBERS;

/// Peers that a pool can have at once, the host included.
pub const MAX_PEERS: usize = 256;
const VERSION: u32 = 1;
/// The bit in [`Page::in_flight`] that says the message belongs to the greeting.
const GREETING: u64 = 1 << 40;

/// The entry of a peer.
#[repr(C)]
pub struct Entry {
    /// Rises with each connection to the pool; 0: the slot is free. The peer's id is this less 1.
    pub generation: AtomicU64,
    /// The number of messages of the greeting that were sent, of three.
    pub greeted: AtomicU32,
    /// The process at the other end.
    pub pid: AtomicU32,
    /// The time at which it connected, in seconds since the epoch.
    pub since: AtomicU64,
    /// Its name, padded with zeros.
    name: [AtomicU64; NAME],
}

/// Words of a name.
const NAME: usize = 4;

impl Entry {
    /// The machine's name.
    pub fn name(&self) -> String {
        let bytes: Vec<u8> = self
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sets the machine's name, of which 32 bytes are kept.
    pub fn set_name(&self, name: &str) {
        let mut bytes = name.bytes().chain(std::iter::repeat(0));
        for word in &self.name {
            let next = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            word.store(u64::from_le_bytes(next), Relaxed);
        }
    }
}

#[repr(C)]
struct Page {
    version: AtomicU32,
    vectors: AtomicU32,
    generation: AtomicU64,
    /// The message that is being sent: `recipient << 16 | subject`, + 1, perhaps with [`GREETING`]; 0: none.
    in_flight: AtomicU64,
    /// The value that is stored when that message was sent.
    in_flight_value: AtomicU64,
    entries: [Entry; MAX_PEERS],
    /// The last announcement of each subject to each recipient: `generation << 8 | vectors`.
    announced: [[AtomicU64; MAX_PEERS]; MAX_PEERS],
}

/// A pool's peer table, mapped.
pub struct PeerTable {
    /// The memfd.
    pub file: OwnedFd,
    page: NonNull<Page>,
}

/// The id of a peer. It is never used again: QEMU does not support that (it uses what it has freed).
pub fn peer_id(generation: u64) -> u16 {
    generation.wrapping_sub(1) as u16
}

/// The announcements of a subject that a recipient was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// The subject's generation then.
    pub generation: u64,
    /// The number of its vectors that were sent.
    pub vectors: usize,
}

impl PeerTable {
    /// Creates an empty table.
    pub fn new(vectors: usize) -> io::Result<PeerTable> {
        let file = memfd_create("vshmem-peers", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size_of::<Page>() as u64)?;
        let table = PeerTable::map(file)?;
        table.page().vectors.store(vectors as u32, Relaxed);
        table.page().version.store(VERSION, Relaxed);
        Ok(table)
    }

    /// Opens the table of a previous back end.
    pub fn open(file: OwnedFd) -> io::Result<PeerTable> {
        if fstat(&file)?.st_size as usize != size_of::<Page>() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let table = PeerTable::map(file)?;
        if table.page().version.load(Relaxed) != VERSION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(table)
    }

    fn map(file: OwnedFd) -> io::Result<PeerTable> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice, as long as the file.
        let page = unsafe { mmap(null_mut(), size_of::<Page>(), prot, flags, &file, 0) }?;
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(PeerTable { file, page })
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped for as long as this value lives; Page is made of atomics, for which all bit patterns
        // are valid.
        unsafe { self.page.as_ref() }
    }

    /// Vectors of each peer.
    pub fn vectors(&self) -> usize {
        self.page().vectors.load(Relaxed) as usize
    }

    /// The entry in a slot.
    pub fn entry(&self, slot: u16) -> &Entry {
        &self.page().entries[usize::from(slot) % MAX_PEERS]
    }

    /// Whether there is an id left for another peer.
    pub fn has_ids(&self) -> bool {
        self.page().generation.load(Relaxed) < 1 << 16
    }

    /// Enters a new peer, which was told nothing yet, in a slot. Its id is the next one that is not `taken`.
    pub fn add(&self, slot: u16, pid: u32, since: u64, taken: impl Fn(u16) -> bool) {
        let entry = self.entry(slot);
        for announced in &self.page().announced[usize::from(slot) % MAX_PEERS] {
            announced.store(0, Relaxed);
        }
        entry.greeted.store(0, Relaxed);
        entry.pid.store(pid, Relaxed);
        entry.since.store(since, Relaxed);
        let mut generation = self.page().generation.fetch_add(1, Relaxed) + 1;
        // A member that writes ids into the pool to use them up takes no more than all members can have.
        for _ in 0..MAX_MEMBERS {
            if !self.has_ids() || !taken(peer_id(generation)) {
                break;
            }
            generation = self.page().generation.fetch_add(1, Relaxed) + 1;
        }
        entry.generation.store(generation, SeqCst);
    }

    /// Frees a slot.
    pub fn remove(&self, slot: u16) {
        self.entry(slot).generation.store(0, SeqCst);
    }

    fn cell(&self, recipient: u16, subject: u16) -> &AtomicU64 {
        let row = &self.page().announced[usize::from(recipient) % MAX_PEERS];
        &row[usize::from(subject) % MAX_PEERS]
    }

    /// The announcements of `subject` that `recipient` was sent.
    pub fn announced(&self, recipient: u16, subject: u16) -> Announced {
        let word = self.cell(recipient, subject).load(Relaxed);
        Announced { generation: word >> 8, vectors: (word & 0xff) as usize }
    }

    /// Sends a message of the greeting, and then stores `greeted`.
    pub fn greet(
        &self,
        recipient: u16,
        greeted: u32,
        send: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let what = GREETING | u64::from(recipient) << 16;
        self.send(what, greeted.into(), send)
    }

    /// Sends `recipient` a message about `subject`, and then stores `announced`.
    pub fn announce(
        &self,
        recipient: u16,
        subject: u16,
        announced: Announced,
        send: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let what = u64::from(recipient) << 16 | u64::from(subject);
        let value = announced.generation << 8 | announced.vectors as u64 & 0xff;
        self.send(what, value, send)
    }

    fn send(&self, what: u64, value: u64, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let page = self.page();
        page.in_flight_value.store(value, SeqCst);
        page.in_flight.store(what + 1, SeqCst);
        let sent = send();
        if sent.is_ok() {
            self.store_sent(what, value);
        }
        page.in_flight.store(0, SeqCst);
        sent
    }

    fn store_sent(&self, what: u64, value: u64) {
        let (recipient, subject) = ((what >> 16) as u16, what as u16);
        if what & GREETING != 0 {
            self.entry(recipient).greeted.store(value as u32, SeqCst);
        } else {
            self.cell(recipient, subject).store(value, SeqCst);
        }
    }

    /// Completes a message that a previous back end was sending when it died. It counts as sent: a process
    /// that is killed in a system call that does not block dies after the call.
    pub fn complete_in_flight(&self) {
        let page = self.page();
        if let Some(what) = page.in_flight.load(SeqCst).checked_sub(1) {
            self.store_sent(what, page.in_flight_value.load(SeqCst));
            page.in_flight.store(0, SeqCst);
        }
    }
}

impl Drop for PeerTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), size_of::<Page>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_back_end_finds_what_was_written() {
        let table = PeerTable::new(2).unwrap();
        table.add(3, 77, 5, |_| false);
        let announced = Announced { generation: 1, vectors: 2 };
        assert!(table.announce(3, 0, announced, || Ok(())).is_ok());
        let next = PeerTable::open(table.file.try_clone().unwrap()).unwrap();
        assert_eq!(next.vectors(), 2);
        assert_eq!(next.announced(3, 0), announced);
        assert_eq!(next.entry(3).pid.load(Relaxed), 77);
        next.entry(3).set_name("a machine whose name is longer than there is room for");
        assert_eq!(table.entry(3).name(), "a machine whose name is longer t");
        next.add(3, 78, 6, |_| false);
        assert_eq!(table.announced(3, 0).vectors, 0);
    }

    #[test]
    fn ids_that_are_taken_are_skipped() {
        let table = PeerTable::new(1).unwrap();
        let add = |taken: &[u16]| {
            table.add(1, 77, 5, |id| taken.contains(&id));
            peer_id(table.entry(1).generation.load(Relaxed))
        };
        assert_eq!(add(&[]), 0);
        assert_eq!(add(&[1, 2, 4]), 3);
        assert_eq!(add(&[1, 2, 4]), 5);
    }

    #[test]
    fn a_message_that_failed_does_not_count() {
        let table = PeerTable::new(1).unwrap();
        let announced = Announced { generation: 1, vectors: 1 };
        let failed = table.announce(1, 2, announced, || Err(io::ErrorKind::WouldBlock.into()));
        assert!(failed.is_err());
        assert_eq!(table.announced(1, 2).vectors, 0);
    }

    #[test]
    fn a_message_in_flight_counts_as_sent() {
        let table = PeerTable::new(1).unwrap();
        let announced = Announced { generation: 4, vectors: 1 };
        let next = PeerTable::open(table.file.try_clone().unwrap()).unwrap();
        // The next back end takes over while this one is sending.
        let take_over = || {
            next.complete_in_flight();
            assert_eq!(next.announced(1, 2), announced);
            Err(io::ErrorKind::WouldBlock.into())
        };
        assert!(table.announce(1, 2, announced, take_over).is_err());
        assert!(table.greet(1, 2, || Ok(())).is_ok());
        next.complete_in_flight();
        assert_eq!(next.entry(1).greeted.load(Relaxed), 2);
        assert_eq!(next.announced(1, 2), announced);
    }

    #[test]
    fn a_file_that_is_no_table_is_refused() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(PeerTable::open(file).is_err());
    }
}
