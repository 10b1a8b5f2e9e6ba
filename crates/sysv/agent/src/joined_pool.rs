//! A joined pool: one that a process of Vshmem's own (the back end, a front end, or a command) is in, with
//! the kernel's functions that the upper half needs there.

use std::borrow::Borrow;
use std::fs;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vshmem_pool::{Budget, Cred, Ctx, Kernel, Pool, ProcId, Waited};
use vshmem_transport::ids::{Ids, NOBODYS};
use vshmem_transport::{process, Handle};
use vshmem_wait::{Across, Heartbeat, Scope};

/// Nanoseconds that an agent may wait for a lock: longer than it takes to find that the owner is
/// dead.
const AGENT_LOCK_WAIT: u64 = 10_000_000;

/// A pool of which this kernel is a member.
pub struct JoinedPool<H> {
    /// The pool's memory.
    pub handle: H,
    /// The pool.
    pub pool: Pool,
    /// This kernel, in the pool's member table.
    pub member: u16,
    heartbeat: Heartbeat,
    cred: Cred,
    groups: Vec<u32>,
    /// No other member is alive.
    is_only_member: bool,
    /// Longest wait for a lock, in nanoseconds.
    lock_wait: Option<u64>,
}

impl<H: Borrow<Handle> + Sync> JoinedPool<H> {
    /// The pool of an agent, which serves others, too, and so waits some milliseconds for a lock at the most.
    pub fn for_agent(handle: H, pool: Pool, member: u16) -> JoinedPool<H> {
        let (heartbeat, cred, groups) = (Heartbeat::new(), credentials(0), Vec::new());
        JoinedPool {
            handle,
            pool,
            member,
            heartbeat,
            cred,
            groups,
            is_only_member: false,
            lock_wait: Some(AGENT_LOCK_WAIT),
        }
    }

    /// The pool of a command with these supplementary groups, and with this process's capabilities. `ids`
    /// maps users and groups to those in the pool.
    pub fn for_command(handle: H, pool: Pool, member: u16, groups: &[u32], ids: &Ids) -> JoinedPool<H> {
        let mut is_only_member = true;
        pool.members(|index, _, alive| is_only_member &= index == member || !alive);
        let cred = credentials(capabilities());
        let outside = groups.iter().map(|group| ids.groups.outside(*group));
        JoinedPool {
            cred: Cred { uid: ids.users.outside(cred.uid), gid: ids.groups.outside(cred.gid), ..cred },
            groups: outside.collect(),
            is_only_member,
            lock_wait: None,
            ..JoinedPool::for_agent(handle, pool, member)
        }
    }

    /// Limits how long a lock is waited for.
    pub fn limit_lock_wait(&mut self, most: Duration) {
        self.lock_wait = Some(most.as_nanos() as u64);
    }

    /// The context of the upper half's calls for the process `me`, which is this one.
    pub fn context(&self, me: ProcId) -> Ctx<'_> {
        Ctx {
            pool: &self.pool,
            kernel: self,
            me,
            pid: std::process::id(),
            namespace: 0,
            member: self.member,
            budget: Budget::default(),
        }
    }

    /// The pool as waiting across machines sees it.
    pub fn across(&self) -> Across<'_> {
        Across {
            pool: &self.pool,
            handle: self.handle.borrow(),
            member: self.member,
            heartbeat: &self.heartbeat,
        }
    }

    fn scope(&self) -> Scope<'_> {
        if self.is_only_member && self.handle.borrow().can_futex() {
            Scope::Kernel
        } else {
            Scope::Machines(self.across())
        }
    }
}

/// Nanoseconds of the kernel's monotonic clock.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds since the epoch.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

fn credentials(caps: u64) -> Cred {
    // SAFETY: both take nothing and always succeed.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Cred { uid, gid, caps }
}

/// This process's effective capabilities.
fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// The signals that end a command.
const TERMINATION_SIGNALS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Whether a signal is pending, not ignored, and will be delivered once the calling thread's mask is `old`
/// again.
fn is_due(signal: i32, old: u64) -> bool {
    // SAFETY: the kernel fills in both, and zeros are valid for both; a signal's action is only read.
    let (is_pending, action) = unsafe {
        let mut pending = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        (libc::sigismember(&raw const pending, signal) == 1, action)
    };
    is_pending && old >> (signal - 1) & 1 == 0 && action.sa_sigaction != libc::SIG_IGN
}

/// Sets the calling thread's signal mask, all 64 bits of it; returns the previous one.
fn change_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both masks are 8 bytes long, as the last argument says.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut old,
            size_of::<u64>(),
        );
    }
    old
}

impl<H: Borrow<Handle> + Sync> Kernel for JoinedPool<H> {
    fn alive(&self, slot: u32, pid: u32, started: u64) -> bool {
        process::is_alive(self.handle.borrow(), slot, pid, started)
    }

    fn has_executed(&self, pid: u32, started: u64) -> bool {
        process::has_executed(pid, started)
    }

    fn is_stopped(&self, pid: u32, started: u64) -> bool {
        process::is_stopped(pid, started)
    }

    fn is_mapped(&self, source: u64) -> bool {
        self.handle.borrow().is_mapped(source) != Some(false)
    }

    fn block_signals(&self) -> u64 {
        // A SIGBUS that is blocked ends the process in spite of its handler.
        const BUS_ERROR: u64 = 1 << (libc::SIGBUS - 1);
        change_mask(!BUS_ERROR)
    }

    fn restore_signals(&self, old: u64) {
        change_mask(old);
    }

    fn signal_waits(&self, old: u64) -> bool {
        TERMINATION_SIGNALS.into_iter().any(|signal| is_due(signal, old))
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.across().reserve(offset, len, self.lock_wait)
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        self.handle.borrow().release(offset, len)
    }

    fn available_memory(&self) -> Option<u64> {
        self.handle.borrow().available_memory()
    }

    fn now(&self) -> i64 {
        now() as i64
    }

    fn monotonic(&self) -> u64 {
        monotonic()
    }

    fn cred(&self) -> Cred {
        self.cred
    }

    fn rules_pool(&self) -> bool {
        !self.handle.borrow().is_device()
    }

    fn in_group(&self, gid: u32) -> bool {
        gid != NOBODYS && (self.cred.gid == gid || self.groups.contains(&gid))
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        // A process of another kernel that releases a lock wakes no thread here, and an agent has others to
        // serve.
        let longest = self.lock_wait.map(|_| Duration::from_millis(1));
        let timeout = match (timeout, longest) {
            (Some(timeout), Some(longest)) => Some(timeout.min(longest)),
            (timeout, longest) => timeout.or(longest),
        };
        match vshmem_wait::wait(word, expected, timeout, self.scope()) {
            vshmem_wait::Waited::Woken => Waited::Woken,
            vshmem_wait::Waited::TimedOut => Waited::TimedOut,
            vshmem_wait::Waited::Interrupted => Waited::Interrupted,
        }
    }

    fn patience(&self) -> Option<u64> {
        self.lock_wait
    }

    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        vshmem_wait::wake(word, n, self.scope())
    }

    fn spin_rounds(&self) -> u32 {
        match self.lock_wait {
            Some(_) => 0,
            None => vshmem_wait::rounds(Scope::Machines(self.across())),
        }
    }
}
