//! The host rings: its processes can't ring machines themselves, so they say in the pool which members are to be rung, and a thread of
//! the back end does it.
//!
//! It sleeps on a word of the pool, by futex, and not on the loop's descriptors: a process that never heard of the back end can wake it so.
//! Why no ring is lost is argued in `vshmem_wait::across`.

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

/// It looks at least so often, for those who died between saying whom to ring and waking it.
const LOOK: Duration = Duration::from_millis(500);
/// Who wakes it for nothing has to wait the next time, up to so long.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The thread, and what it shares with the loop.
pub struct DoorbellSender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Rings one. One that was rung so often that its eventfd is full has not heard the last ring yet.
pub fn ring(bell: &impl AsFd) {
    let _ = write(bell, &1u64.to_ne_bytes());
}

struct Shared {
    pool: Pool,
    /// By which each peer is rung, by its number.
    bells: Mutex<BTreeMap<u16, OwnedFd>>,
    ends: AtomicBool,
}

impl DoorbellSender {
    /// For a pool that must stay mapped until this is dropped.
    pub fn new(pool: Pool) -> DoorbellSender {
        let shared = Arc::new(Shared {
            pool,
            bells: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        DoorbellSender {
            shared,
            thread: None,
        }
    }

    /// Starts the thread. Whoever is to be rung must be known by now: what was asked for while there was no back end is done at once.
    pub fn start(&mut self) -> io::Result<()> {
        let of_thread = self.shared.clone();
        let thread = Builder::new().name("doorbells".into());
        self.thread = Some(thread.spawn(move || of_thread.run())?);
        Ok(())
    }

    /// A peer can be rung from now on.
    pub fn know(&self, peer: u16, bell: &impl AsFd) {
        // A peer that can't be rung for want of a descriptor looks by itself, though late.
        if let Ok(bell) = bell.as_fd().try_clone_to_owned() {
            self.shared.bells().insert(peer, bell);
        }
    }

    /// A peer is gone.
    pub fn forget(&self, peer: u16) {
        self.shared.bells().remove(&peer);
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
    fn bells(&self) -> MutexGuard<'_, BTreeMap<u16, OwnedFd>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let word = self.pool.doorbell_requests();
        let mut pause = Duration::ZERO;
        while !self.ends.load(SeqCst) {
            let seen = word.load(SeqCst);
            pause = if self.ring_all() {
                Duration::ZERO
            } else {
                sleep(pause);
                (pause * 2).clamp(Duration::from_micros(1), LONGEST_PAUSE)
            };
            if vshmem_wait::wait(word, seen, Some(LOOK), Scope::Kernel)
                == vshmem_wait::Waited::TimedOut
            {
                pause = Duration::ZERO;
            }
        }
    }

    /// Rings all that are to be rung; false if there was none.
    fn ring_all(&self) -> bool {
        let mut any = false;
        self.pool.take_doorbell_requests(|peer| {
            any = true;
            if let Some(bell) = self.bells().get(&peer) {
                ring(bell);
            }
        });
        any
    }
}
