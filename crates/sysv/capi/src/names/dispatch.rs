//! Calls to the pool: by key where an IPC object is made or found, by id afterwards. All others go to the
//! kernel, by the system call instruction.

use crate::calls::{again, cmd, msg, sem, shm};
use crate::pools::caller::{caller, Caller};
use crate::process::config::config;
use crate::process::log::{self, Level};
use crate::process::raw::syscall;
use crate::thread::errno::{from_kernel, guard, Failure};
use vshmem_ipc::{is_ours, Errno};

/// A call by id. Where every key is ours, so is every id. Where some are, the kernel is asked about the
/// others; and since after very many IPC objects the kernel's ids have our bit too, also about those of ours
/// that the pool doesn't know.
#[inline(always)]
pub fn by_id<T: Failure>(
    name: &'static str,
    id: i32,
    ours: impl FnOnce() -> Result<T, Errno>,
    kernel: impl FnOnce() -> Result<T, Errno>,
) -> T {
    guard(name, move || {
        if is_ours(id) || config().takes_all() {
            match ours() {
                Err(Errno::EINVAL) if !config().takes_all() => kernel(),
                result => result,
            }
        } else {
            kernel()
        }
    })
}

/// A call by key.
#[inline(always)]
pub fn by_key(
    name: &'static str,
    key: i32,
    ours: impl FnOnce() -> Result<i32, Errno>,
    kernel: impl FnOnce() -> Result<i32, Errno>,
) -> i32 {
    let is_ours = config().takes(key);
    let id = guard(name, move || if is_ours { ours() } else { kernel() });
    if id >= 0 {
        let by = if is_ours { "the pool" } else { "the kernel, for VSHMEM_KEYS does not name the key" };
        log::say(Level::Debug, format_args!("{name}: the key {key:#x} has the id {id}, by {by}"));
    }
    id
}

/// One of the three `*ctl` calls.
pub struct Control {
    name: &'static str,
    number: i64,
    /// `semctl` alone has a semaphore's number before the command.
    has_number: bool,
    /// Commands that take an index for an id.
    by_index: [i32; 2],
    usage: i32,
    ours: fn(&Caller, i32, i32, i32, usize) -> Result<i32, Errno>,
}

/// `shmctl`.
pub const SHM: Control = Control {
    name: "shmctl",
    number: libc::SYS_shmctl,
    has_number: false,
    by_index: [shm::SHM_STAT, shm::SHM_STAT_ANY],
    usage: shm::SHM_INFO,
    ours: |caller, id, _, command, arg| shm::ctl(caller, id, command, arg),
};

/// `semctl`.
pub const SEM: Control = Control {
    name: "semctl",
    number: libc::SYS_semctl,
    has_number: true,
    by_index: [sem::SEM_STAT, sem::SEM_STAT_ANY],
    usage: sem::SEM_INFO,
    ours: sem::ctl,
};

/// `msgctl`.
pub const MSG: Control = Control {
    name: "msgctl",
    number: libc::SYS_msgctl,
    has_number: false,
    by_index: [msg::MSG_STAT, msg::MSG_STAT_ANY],
    usage: msg::MSG_INFO,
    ours: |caller, id, _, command, arg| msg::ctl(caller, id, command, arg),
};

impl Control {
    /// The call, wherever it belongs.
    pub fn call(&self, id: i32, number: i32, command: i32, arg: usize) -> i32 {
        let by_index = self.by_index.contains(&command);
        if !by_index && command != cmd::INFO && command != self.usage {
            let ours = || self.on_pool(id, number, command, arg);
            return by_id(self.name, id, ours, || self.on_kernel(id, number, command, arg));
        }
        guard(self.name, || self.global(by_index, id, number, command, arg))
    }

    /// A command that is not about one IPC object that its id names. Where every key is ours, it is the
    /// pool's. Where some are, limits and usage are the kernel's, and the pool's objects have the indices
    /// behind the kernel's.
    fn global(&self, by_index: bool, id: i32, number: i32, command: i32, arg: usize) -> Result<i32, Errno> {
        let config = config();
        if config.takes_all() {
            return self.on_pool(id, number, command, arg);
        }
        if !config.takes_any() {
            return self.on_kernel(id, number, command, arg);
        }
        let mut limits = [0u64; 16]; // room for any of the three structures
        let limits = limits.as_mut_ptr() as usize;
        let first_of_pool = self.on_kernel(0, 0, cmd::INFO, limits)? + 1;
        if !by_index {
            self.on_kernel(id, number, command, arg)?;
            return Ok(first_of_pool + self.on_pool(0, 0, cmd::INFO, limits)?);
        }
        if id < first_of_pool {
            return self.on_kernel(id, number, command, arg);
        }
        self.on_pool(id - first_of_pool, number, command, arg)
    }

    /// The call on the current pool.
    pub fn on_pool(&self, id: i32, number: i32, command: i32, arg: usize) -> Result<i32, Errno> {
        let caller = caller()?;
        caller.unless_revoked(again(|| (self.ours)(&caller, id, number, command, arg)))
    }

    /// The call on the current pool, for C.
    pub fn call_on_pool(&self, id: i32, number: i32, command: i32, arg: usize) -> i32 {
        guard(self.name, || self.on_pool(id, number, command, arg))
    }

    fn on_kernel(&self, id: i32, number: i32, command: i32, arg: usize) -> Result<i32, Errno> {
        // SAFETY: the kernel checks the address; the program asks for it.
        let result = unsafe {
            if self.has_number {
                syscall!(self.number, id, number, command, arg)
            } else {
                syscall!(self.number, id, command, arg)
            }
        };
        from_kernel(result).map(|r| r as i32)
    }
}
