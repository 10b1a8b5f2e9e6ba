//! A visit to a pool: this process joins it for the time of a look or a removal, as any program on Vshmem does.

use crate::error::{Error, Result};
use crate::host::command::Identity;
use crate::sample;
use std::fs;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use vshmem_ipc::{life, Ctx};
use vshmem_pool::layout::NO_LIFE_LOCK;
use vshmem_pool::{Cred, Kernel, Pool, ProcId, Waited};
use vshmem_port::{Handle, Life, PoolRef};
use vshmem_wait::{Across, Pulse, Scope};

/// An open pool, with this process in its table of processes.
pub struct Visitor {
    kernel: Host,
    me: ProcId,
    // Held, so that others see this process alive.
    _life: Life,
}

/// Takes a process slot, as [`life::claim`] does.
type Claim = fn(&Pool, &dyn Kernel, u16, u32, u64, &mut dyn FnMut(u32) -> bool) -> Option<ProcId>;

/// What the pool needs of this kernel.
struct Host {
    handle: Handle,
    pool: Pool,
    member: u16,
    pulse: Pulse,
    identity: Identity,
    caps: u64,
    alone: bool,
}

impl Visitor {
    /// Opens a pool and joins it.
    pub fn enter(reference: &PoolRef) -> Result<Visitor> {
        Visitor::enter_by(reference, life::claim)
    }

    /// The same, and, if there is a free slot, leaves what the dead have left as it is: to be counted.
    pub fn enter_beside_the_dead(reference: &PoolRef) -> Result<Visitor> {
        Visitor::enter_by(reference, |pool, kernel, member, pid, started, claim| {
            let me = pool.claim_process(kernel, member, pid, started, claim);
            me.or_else(|| life::claim(pool, kernel, member, pid, started, claim))
        })
    }

    fn enter_by(reference: &PoolRef, claim: Claim) -> Result<Visitor> {
        let refused =
            |why: String| Error::new(format!("could not open the pool {reference}: {why}"));
        let handle = vshmem_port::open(reference).map_err(|e| refused(e.to_string()).code(1))?;
        let pool = Pool::open(handle.mem()).map_err(|e| refused(e.to_string()))?;
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let boot = boot().ok_or_else(|| refused("this kernel has no boot id in /proc".into()))?;
        let member = pool
            .join(boot, name.trim().as_bytes())
            .map_err(|e| refused(e.to_string()))?;
        let mut kernel = Host {
            handle,
            pool,
            member,
            pulse: Pulse::new(),
            identity: Identity::current(),
            caps: capabilities(),
            alone: true,
        };
        pool.members(|index, _, alive| kernel.alone &= index == member || !alive);
        kernel.across().join();
        let mut life = None;
        let pid = std::process::id();
        let me = claim(&pool, &kernel, member, pid, 0, &mut |slot| {
            if let Some(other) = life.take() {
                // SAFETY: claimed by this process for a slot that it did not get, or does not need any more.
                unsafe { Life::end(other) };
            }
            life = kernel.handle.claim_life(slot);
            life.is_some()
        });
        match (me, life) {
            (Some(me), Some(life)) => Ok(Visitor {
                kernel,
                me,
                _life: life,
            }),
            _ => Err(refused("it has no room for another process".into())),
        }
    }

    /// What the upper half's calls take.
    pub fn context(&self) -> Ctx<'_> {
        Ctx {
            pool: &self.kernel.pool,
            kernel: &self.kernel,
            me: self.me,
            pid: std::process::id(),
            member: self.kernel.member,
        }
    }

    /// Ends as by a signal that can't be caught.
    #[cfg(test)]
    pub fn die(self) {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once, from what is never dropped or used again.
        unsafe { Life::end(std::ptr::read(&this._life)) };
    }

    /// Declares the machine of this name dead, so that nobody waits for what its processes held.
    pub fn bury(&self, machine: &str) {
        let Host { pool, member, .. } = &self.kernel;
        pool.members(|index, name, alive| {
            // This kernel may have the same name.
            if alive && index != *member && name == machine.as_bytes() {
                pool.bury_member(index);
            }
        });
    }

    /// The kernels that use the pool, or did.
    pub fn members(&self) -> Vec<sample::Member> {
        sample::members(&self.kernel.pool, &self.kernel.handle, Some(self.me))
    }

    /// The threads that wait in it.
    pub fn waiters(&self) -> Vec<sample::Waiter> {
        sample::waiters(&self.kernel.pool, &self.kernel.handle)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        vshmem_ipc::leave(&self.context());
        self.kernel.pool.free_process(self.me);
    }
}

impl Host {
    fn scope(&self) -> Scope<'_> {
        if self.alone && self.handle.can_futex() {
            Scope::Kernel
        } else {
            Scope::Machines(self.across())
        }
    }

    fn across(&self) -> Across<'_> {
        Across {
            pool: &self.pool,
            handle: &self.handle,
            member: self.member,
            pulse: &self.pulse,
        }
    }
}

impl Kernel for Host {
    fn alive(&self, slot: u32, _pid: u32, started: u64) -> bool {
        // Who has no life lock is left to those who can judge by its pid.
        started & NO_LIFE_LOCK != 0 || self.handle.alive(slot).unwrap_or(true)
    }

    fn block_signals(&self) -> u64 {
        change_mask(u64::MAX)
    }

    fn restore_signals(&self, old: u64) {
        change_mask(old);
    }

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
        // SAFETY: with a null pointer, time only returns the time.
        unsafe { libc::time(std::ptr::null_mut()) }
    }

    fn monotonic(&self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the structure lives across the call, which fills it.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn cred(&self) -> Cred {
        Cred {
            uid: self.identity.uid,
            gid: self.identity.gid,
            caps: self.caps,
        }
    }

    fn in_group(&self, gid: u32) -> bool {
        self.identity.gid == gid || self.identity.groups.contains(&gid)
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        match vshmem_wait::wait(word, expected, timeout, self.scope()) {
            vshmem_wait::Waited::Woken => Waited::Woken,
            vshmem_wait::Waited::TimedOut => Waited::TimedOut,
            vshmem_wait::Waited::Interrupted => Waited::Interrupted,
        }
    }

    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        vshmem_wait::wake(word, n, self.scope())
    }

    fn spin_rounds(&self) -> u32 {
        vshmem_wait::spin::rounds(Scope::Machines(self.across()))
    }
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

/// This process's effective capabilities.
fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// The boot of this kernel.
pub fn boot() -> Option<[u8; 16]> {
    parse_boot(&crate::host::state::boot_id())
}

fn parse_boot(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read() {
        let id = parse_boot("01234567-89ab-cdef-0011-223344556677").unwrap();
        assert_eq!(id[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(id[15], 0x77);
        assert_eq!(parse_boot("0123"), None);
        assert_eq!(parse_boot("x1234567-89ab-cdef-0011-223344556677"), None);
    }
}
