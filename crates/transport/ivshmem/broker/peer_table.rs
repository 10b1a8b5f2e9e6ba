//! A pool's peer table: who is connected, and what each peer was told of each other. It lies in a memory file that the keeper has too, so
//! it survives the back end; every change is one store.

use rustix::fs::{fstat, ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_pool::layout::MAX_MEMBERS;

/// Peers that a pool can have at once, the host included.
pub const MOST_PEERS: usize = 256;
const VERSION: u32 = 1;
/// The message under way is one of those that come first.
const GREETING: u64 = 1 << 40;

/// One peer.
#[repr(C)]
pub struct Entry {
    /// Rises with each connection to the pool; 0: there is none. The peer's number is this less 1.
    pub generation: AtomicU64,
    /// How many of the three messages that come first were sent.
    pub greeted: AtomicU32,
    /// The process at the other end.
    pub pid: AtomicU32,
    /// Since when, in seconds since the epoch.
    pub since: AtomicU64,
    /// Its name, at most 32 bytes, with zeros behind.
    name: [AtomicU64; NAME],
}

/// Words of a name.
const NAME: usize = 4;

impl Entry {
    /// What the machine is called.
    pub fn name(&self) -> String {
        let bytes: Vec<u8> = self
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Calls the machine so.
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
    /// `client << 16 | subject`, + 1, of the message under way, and [`GREETING`]; 0: none.
    under_way: AtomicU64,
    /// What is written down when it has been sent.
    then: AtomicU64,
    entries: [Entry; MOST_PEERS],
    /// By client and subject: `generation << 8 | vectors told`.
    told: [[AtomicU64; MOST_PEERS]; MOST_PEERS],
}

/// The mapped table.
pub struct PeerTable {
    /// The memory file.
    pub file: OwnedFd,
    page: NonNull<Page>,
}

/// The number of a peer. It is never given to another: QEMU can't bear it (it uses what it has freed).
pub fn number_of(generation: u64) -> u16 {
    generation.wrapping_sub(1) as u16
}

/// What a client was told of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Which connection of the subject's number it was.
    pub generation: u64,
    /// Vectors.
    pub vectors: usize,
}

impl PeerTable {
    /// An empty one.
    pub fn new(vectors: usize) -> io::Result<PeerTable> {
        let file = memfd_create("vshmem-peers", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size_of::<Page>() as u64)?;
        let table = PeerTable::map(file)?;
        table.page().vectors.store(vectors as u32, Relaxed);
        table.page().version.store(VERSION, Relaxed);
        Ok(table)
    }

    /// One that a back end before this one has kept.
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
        // SAFETY: a new mapping at a place of the kernel's choice, as long as the file.
        let page = unsafe { mmap(null_mut(), size_of::<Page>(), prot, flags, &file, 0) }?;
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(PeerTable { file, page })
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped for as long as this value lives; Page is made of atomics, for which all bit patterns are valid.
        unsafe { self.page.as_ref() }
    }

    /// Vectors of each peer.
    pub fn vectors(&self) -> usize {
        self.page().vectors.load(Relaxed) as usize
    }

    /// A peer's entry.
    pub fn entry(&self, peer: u16) -> &Entry {
        &self.page().entries[usize::from(peer) % MOST_PEERS]
    }

    /// Whether there is a number left for another peer.
    pub fn has_numbers(&self) -> bool {
        self.page().generation.load(Relaxed) < 1 << 16
    }

    /// Enters a new peer in a place, who was told nothing. Its number is the next one that is not `taken`.
    pub fn enter(&self, peer: u16, pid: u32, since: u64, taken: impl Fn(u16) -> bool) {
        let entry = self.entry(peer);
        for told in &self.page().told[usize::from(peer) % MOST_PEERS] {
            told.store(0, Relaxed);
        }
        entry.greeted.store(0, Relaxed);
        entry.pid.store(pid, Relaxed);
        entry.since.store(since, Relaxed);
        let mut generation = self.page().generation.fetch_add(1, Relaxed) + 1;
        // Whoever takes numbers by writing them into the pool has no more than its members can have.
        for _ in 0..MAX_MEMBERS {
            if !self.has_numbers() || !taken(number_of(generation)) {
                break;
            }
            generation = self.page().generation.fetch_add(1, Relaxed) + 1;
        }
        entry.generation.store(generation, SeqCst);
    }

    /// Strikes a peer out.
    pub fn leave(&self, peer: u16) {
        self.entry(peer).generation.store(0, SeqCst);
    }

    fn cell(&self, client: u16, subject: u16) -> &AtomicU64 {
        let row = &self.page().told[usize::from(client) % MOST_PEERS];
        &row[usize::from(subject) % MOST_PEERS]
    }

    /// What `client` was told of `subject`.
    pub fn told(&self, client: u16, subject: u16) -> Told {
        let word = self.cell(client, subject).load(Relaxed);
        Told {
            generation: word >> 8,
            vectors: (word & 0xff) as usize,
        }
    }

    /// Sends a message of the greeting; if that succeeds, `greeted` is written down.
    pub fn greeting(
        &self,
        client: u16,
        greeted: u32,
        send: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let what = GREETING | u64::from(client) << 16;
        self.telling(what, greeted.into(), send)
    }

    /// Sends a message to `client` about `subject`; if that succeeds, `told` is written down.
    pub fn tell(
        &self,
        client: u16,
        subject: u16,
        told: Told,
        send: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let what = u64::from(client) << 16 | u64::from(subject);
        let then = told.generation << 8 | told.vectors as u64 & 0xff;
        self.telling(what, then, send)
    }

    fn telling(
        &self,
        what: u64,
        then: u64,
        send: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let page = self.page();
        page.then.store(then, SeqCst);
        page.under_way.store(what + 1, SeqCst);
        let sent = send();
        if sent.is_ok() {
            self.write(what, then);
        }
        page.under_way.store(0, SeqCst);
        sent
    }

    fn write(&self, what: u64, then: u64) {
        let (client, subject) = ((what >> 16) as u16, what as u16);
        if what & GREETING != 0 {
            self.entry(client).greeted.store(then as u32, SeqCst);
        } else {
            self.cell(client, subject).store(then, SeqCst);
        }
    }

    /// The back end before this one may have died with a message under way. It counts as sent: who is killed in a system call that
    /// does not wait, dies when that is done.
    pub fn settle(&self) {
        let page = self.page();
        if let Some(what) = page.under_way.load(SeqCst).checked_sub(1) {
            self.write(what, page.then.load(SeqCst));
            page.under_way.store(0, SeqCst);
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
    fn what_was_written_is_found_by_the_next() {
        let table = PeerTable::new(2).unwrap();
        table.enter(3, 77, 5, |_| false);
        let told = Told {
            generation: 1,
            vectors: 2,
        };
        assert!(table.tell(3, 0, told, || Ok(())).is_ok());
        let next = PeerTable::open(table.file.try_clone().unwrap()).unwrap();
        assert_eq!(next.vectors(), 2);
        assert_eq!(next.told(3, 0), told);
        assert_eq!(next.entry(3).pid.load(Relaxed), 77);
        next.entry(3)
            .set_name("a machine whose name is longer than there is room for");
        assert_eq!(table.entry(3).name(), "a machine whose name is longer t");
        next.enter(3, 78, 6, |_| false);
        assert_eq!(table.told(3, 0).vectors, 0);
    }

    #[test]
    fn numbers_that_others_have_are_left_out() {
        let table = PeerTable::new(1).unwrap();
        let enter = |taken: &[u16]| {
            table.enter(1, 77, 5, |number| taken.contains(&number));
            number_of(table.entry(1).generation.load(Relaxed))
        };
        assert_eq!(enter(&[]), 0);
        assert_eq!(enter(&[1, 2, 4]), 3);
        assert_eq!(enter(&[1, 2, 4]), 5);
    }

    #[test]
    fn a_message_that_failed_is_not_told() {
        let table = PeerTable::new(1).unwrap();
        let told = Told {
            generation: 1,
            vectors: 1,
        };
        let failed = table.tell(1, 2, told, || Err(io::ErrorKind::WouldBlock.into()));
        assert!(failed.is_err());
        assert_eq!(table.told(1, 2).vectors, 0);
    }

    #[test]
    fn a_message_under_way_counts_as_sent() {
        let table = PeerTable::new(1).unwrap();
        let told = Told {
            generation: 4,
            vectors: 1,
        };
        let next = PeerTable::open(table.file.try_clone().unwrap()).unwrap();
        // The next back end looks at what this one has left in the middle of a message.
        let looked = || {
            next.settle();
            assert_eq!(next.told(1, 2), told);
            Err(io::ErrorKind::WouldBlock.into())
        };
        assert!(table.tell(1, 2, told, looked).is_err());
        assert!(table.greeting(1, 2, || Ok(())).is_ok());
        next.settle();
        assert_eq!(next.entry(1).greeted.load(Relaxed), 2);
        assert_eq!(next.told(1, 2), told);
    }

    #[test]
    fn a_file_that_is_no_ledger_is_refused() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(PeerTable::open(file).is_err());
    }
}
