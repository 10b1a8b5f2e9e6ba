//! What a pool needs of the kernel below when a process of Vshmem's own works on it: the back end, a front end, or a command that
//! looks or removes.

use std::borrow::Borrow;
use std::fs;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vshmem_pool::{Budget, Cred, Ctx, Kernel, Pool, ProcId, Waited};
use vshmem_transport::ids::{Ids, NOBODYS};
use vshmem_transport::{process, Handle};
use vshmem_wait::{Across, Heartbeat, Scope};

/// How long a loop may stand still for a lock: as long as it takes to find that its owner is dead, and some more.
const PATIENCE: u64 = 10_000_000;

/// The kernel under one pool.
pub struct Below<H> {
    /// What can be done with the pool's memory.
    pub handle: H,
    /// The pool.
    pub pool: Pool,
    /// This kernel, in the pool's member table.
    pub member: u16,
    heartbeat: Heartbeat,
    cred: Cred,
    groups: Vec<u32>,
    /// Nobody else uses the pool.
    alone: bool,
    patience: Option<u64>,
}

impl<H: Borrow<Handle> + Sync> Below<H> {
    /// For a loop that looks after others, too: it waits as little as it can, and for some milliseconds at the most.
    pub fn for_a_loop(handle: H, pool: Pool, member: u16) -> Below<H> {
        let (heartbeat, cred, groups) = (Heartbeat::new(), credentials(0), Vec::new());
        Below {
            handle,
            pool,
            member,
            heartbeat,
            cred,
            groups,
            alone: false,
            patience: Some(PATIENCE),
        }
    }

    /// For a command with these supplementary groups, whose user has its capabilities. Users and groups are called in the pool as `ids` says.
    pub fn for_a_command(
        handle: H,
        pool: Pool,
        member: u16,
        groups: &[u32],
        ids: &Ids,
    ) -> Below<H> {
        let mut alone = true;
        pool.members(|index, _, alive| alone &= index == member || !alive);
        let cred = credentials(capabilities());
        let outside = groups.iter().map(|group| ids.groups.outside(*group));
        Below {
            cred: Cred {
                uid: ids.users.outside(cred.uid),
                gid: ids.groups.outside(cred.gid),
                ..cred
            },
            groups: outside.collect(),
            alone,
            patience: None,
            ..Below::for_a_loop(handle, pool, member)
        }
    }

    /// From now on it waits for no lock longer than this.
    pub fn limit_patience(&mut self, most: Duration) {
        self.patience = Some(most.as_nanos() as u64);
    }

    /// What the upper half's calls take of the process `me`, which is this one.
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

    /// For waiting across machines.
    pub fn across(&self) -> Across<'_> {
        Across {
            pool: &self.pool,
            handle: self.handle.borrow(),
            member: self.member,
            heartbeat: &self.heartbeat,
        }
    }

    fn scope(&self) -> Scope<'_> {
        if self.alone && self.handle.borrow().can_futex() {
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
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// What ends a command.
const ENDINGS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Is such a signal on its way to the calling thread, when its mask is `old` again, and not ignored?
fn ends(signal: i32, old: u64) -> bool {
    // SAFETY: the kernel fills in both, for which zeros are a value; a signal's action is only read.
    let (is_pending, action) = unsafe {
        let mut pending = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        (libc::sigismember(&raw const pending, signal) == 1, action)
    };
    is_pending && old >> (signal - 1) & 1 == 0 && action.sa_sigaction != libc::SIG_IGN
}

/// Sets the calling thread's signal mask, all 64 bits of it; returns the one before.
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

impl<H: Borrow<Handle> + Sync> Kernel for Below<H> {
    fn alive(&self, slot: u32, pid: u32, started: u64) -> bool {
        process::is_alive(self.handle.borrow(), slot, pid, started)
    }

    fn has_executed(&self, pid: u32, started: u64) -> bool {
        process::has_executed(pid, started)
    }

    fn is_stopped(&self, pid: u32, started: u64) -> bool {
        process::is_stopped(pid, started)
    }

    fn block_signals(&self) -> u64 {
        // Where it is blocked, SIGBUS ends the process, whatever handler it has.
        const BUS_ERROR: u64 = 1 << (libc::SIGBUS - 1);
        change_mask(!BUS_ERROR)
    }

    fn restore_signals(&self, old: u64) {
        change_mask(old);
    }

    fn signal_waits(&self, old: u64) -> bool {
        ENDINGS.into_iter().any(|signal| ends(signal, old))
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.across().reserve(offset, len, self.patience)
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
        // Who lets a lock go on another kernel wakes nobody here, and a loop has other things to do.
        let longest = self.patience.map(|_| Duration::from_millis(1));
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
        self.patience
    }

    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        vshmem_wait::wake(word, n, self.scope())
    }

    fn spin_rounds(&self) -> u32 {
        match self.patience {
            Some(_) => 0,
            None => vshmem_wait::spin::rounds(Scope::Machines(self.across())),
        }
    }
}
