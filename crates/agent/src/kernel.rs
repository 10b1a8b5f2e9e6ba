//! What a pool needs of the host's kernel when the back end works on it: as little waiting as there can be.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vshmem_pool::layout::NO_LIFE_LOCK;
use vshmem_pool::{Cred, Kernel, Pool, Waited};
use vshmem_port::Handle;
use vshmem_wait::{Across, Pulse, Scope};

/// How long the loop may stand still for a lock: as long as it takes to find that its owner is dead, and some more.
const PATIENCE: u64 = 10_000_000;

/// The kernel under one pool.
pub struct Below<'a> {
    handle: &'a Handle,
    pool: &'a Pool,
    host: u16,
    pulse: Pulse,
}

impl<'a> Below<'a> {
    /// Under the pool with this handle, where the host is the member `host`.
    pub fn new(handle: &'a Handle, pool: &'a Pool, host: u16) -> Below<'a> {
        Below {
            handle,
            pool,
            host,
            pulse: Pulse::new(),
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope::Machines(Across {
            pool: self.pool,
            handle: self.handle,
            member: self.host,
            pulse: &self.pulse,
        })
    }
}

/// Nanoseconds of the host's monotonic clock.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds since the epoch.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

impl Kernel for Below<'_> {
    fn alive(&self, slot: u32, _pid: u32, started: u64) -> bool {
        // Who has no life lock is left to those who can judge by its pid.
        started & NO_LIFE_LOCK != 0 || self.handle.alive(slot).unwrap_or(true)
    }

    // The back end handles no signal: those that it hears of are blocked all the time.
    fn block_signals(&self) -> u64 {
        0
    }

    fn restore_signals(&self, _old: u64) {}

    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.handle.reserve(offset, len)
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        self.handle.release(offset, len)
    }

    fn room(&self) -> Option<u64> {
        self.handle.statfs_room()
    }

    fn now(&self) -> i64 {
        now() as i64
    }

    fn monotonic(&self) -> u64 {
        monotonic()
    }

    fn cred(&self) -> Cred {
        // SAFETY: both take nothing and always succeed.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        Cred { uid, gid, caps: 0 }
    }

    fn in_group(&self, gid: u32) -> bool {
        self.cred().gid == gid
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        // Who lets a lock go in a machine wakes nobody here.
        let short = Duration::from_millis(1);
        let timeout = timeout.map_or(short, |timeout| timeout.min(short));
        match vshmem_wait::wait(word, expected, Some(timeout), self.scope()) {
            vshmem_wait::Waited::Woken => Waited::Woken,
            vshmem_wait::Waited::TimedOut => Waited::TimedOut,
            vshmem_wait::Waited::Interrupted => Waited::Interrupted,
        }
    }

    fn patience(&self) -> Option<u64> {
        Some(PATIENCE)
    }

    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        vshmem_wait::wake(word, n, self.scope())
    }

    fn spin_rounds(&self) -> u32 {
        0
    }
}
