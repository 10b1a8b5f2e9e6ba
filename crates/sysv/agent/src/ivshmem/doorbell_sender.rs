//! The doorbell sender: processes of the host can't ring machines' doorbells themselves, so they request it
//! in the pool, and a thread of the back end rings for them.
//!
//! It sleeps on a word of the pool, by futex, and not on descriptors of the back end's loop: so a process can
//! wake it without any connection to the back end. `vshmem_wait::across` argues why no wake-up is lost.

use rustix::io::write;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, Builder, JoinHandle};
use std::time::Duration;
use vshmem_pool::Pool;
use vshmem_wait::Scope;

/// Longest sleep, for the requests of processes that died before they woke it.
const MAX_SLEEP: Duration = Duration::from_millis(500);
/// Longest pause after a wake-up without a request; pauses grow up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The thread of the doorbell sender, and the state that it shares with the back end's loop.
pub struct DoorbellSender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Rings a doorbell. If the eventfd is full, the peer has not seen the previous event yet.
pub fn ring(eventfd: &impl AsFd) {
    let _ = write(eventfd, &1u64.to_ne_bytes());
}

struct Shared {
    pool: Pool,
    /// The doorbell of each peer, by its id.
    eventfds: Mutex<BTreeMap<u16, OwnedFd>>,
    ends: AtomicBool,
}

impl DoorbellSender {
    /// A doorbell sender for a pool, which must stay mapped until this is dropped.
    pub fn new(pool: Pool) -> DoorbellSender {
        let shared = Arc::new(Shared { pool, eventfds: Mutex::default(), ends: AtomicBool::new(false) });
        DoorbellSender { shared, thread: None }
    }

    /// Starts the thread. The peers must have been added: pending requests are carried out at once.
    pub fn start(&mut self) -> io::Result<()> {
        let of_thread = self.shared.clone();
        let thread = Builder::new().name("doorbells".into());
        self.thread = Some(thread.spawn(move || of_thread.run())?);
        Ok(())
    }

    /// Adds a peer whose doorbell can be rung.
    pub fn add(&self, peer: u16, eventfd: &impl AsFd) {
        // Without a free descriptor, the peer's threads look again by themselves, though late.
        if let Ok(eventfd) = eventfd.as_fd().try_clone_to_owned() {
            self.shared.eventfds().insert(peer, eventfd);
        }
    }

    /// Removes a peer.
    pub fn remove(&self, peer: u16) {
        self.shared.eventfds().remove(&peer);
    }
}

impl Drop for DoorbellSender {
    fn drop(&mut self) {
        self.shared.ends.store(true, SeqCst);
        let word = self.shared.pool.doorbell_requests();
        word.fetch_add(1, SeqCst);
        vshmem_wait::wake(word, u32::MAX, Scope::Kernel);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn eventfds(&self) -> MutexGuard<'_, BTreeMap<u16, OwnedFd>> {
        self.eventfds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let word = self.pool.doorbell_requests();
        let mut pause = Duration::ZERO;
        while !self.ends.load(SeqCst) {
            let seen = word.load(SeqCst);
            pause = if self.ring_requested() {
                Duration::ZERO
            } else {
                sleep(pause);
                (pause * 2).clamp(Duration::from_micros(1), LONGEST_PAUSE)
            };
            if vshmem_wait::wait(word, seen, Some(MAX_SLEEP), Scope::Kernel) == vshmem_wait::Waited::TimedOut
            {
                pause = Duration::ZERO;
            }
        }
    }

    /// Rings the doorbells that are requested; false if there was no request.
    fn ring_requested(&self) -> bool {
        let mut any = false;
        self.pool.take_doorbell_requests(|peer| {
            any = true;
            if let Some(eventfd) = self.eventfds().get(&peer) {
                ring(eventfd);
            }
        });
        any
    }
}
