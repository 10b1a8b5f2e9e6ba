//! Why a pool does not give an IPC object: more than the error's number tells.

use crate::pools::caller::Caller;
use crate::thread::last_error::explain;
use core::fmt;
use vshmem_ipc::{sem, shm, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, PAGE};

/// An IPC object that was asked for.
pub enum Asked {
    /// A segment of so many bytes.
    Segment(u64),
    /// A set of so many semaphores.
    Set(u64),
    /// A queue.
    Queue,
}

impl Asked {
    fn word(&self) -> &'static str {
        match self {
            Asked::Segment(_) => "segment",
            Asked::Set(_) => "semaphore set",
            Asked::Queue => "queue",
        }
    }

    /// The option of ipcrm(1) that takes its key.
    fn option(&self) -> &'static str {
        match self {
            Asked::Segment(_) => "-M",
            Asked::Set(_) => "-S",
            Asked::Queue => "-Q",
        }
    }
}

/// Gives the reason for the error of a `*get` call, which it returns.
#[cold]
#[inline(never)]
pub fn of_get(caller: &Caller, key: i32, asked: &Asked, error: Errno) -> Errno {
    match error {
        Errno::ENOMEM => no_room(caller, asked),
        Errno::ENOSPC => at_a_limit(caller, asked),
        Errno::EINVAL if key != libc::IPC_PRIVATE => too_small(caller, key, asked),
        Errno::EACCES => explain(format_args!(
            "the permissions of the {} with the key {key:#x} don't let user {} do this; vshmem ipcs shows \
             whose it is. A rootless container has the user's own number with --userns=keep-id",
            asked.word(),
            caller.ctx.kernel.cred().uid
        )),
        _ => {}
    }
    error
}

const LARGER: &str =
    "make a larger pool (vshmem pool create --size, or VSHMEM_POOL_SIZE for one that is made \
                      at first use), or remove what nobody needs (vshmem ipcs, vshmem ipcrm)";

fn no_room(caller: &Caller, asked: &Asked) {
    let pool = caller.pool();
    let all = u64::from(pool.geometry().pages.count);
    let free = all.saturating_sub(pool.kind_root(Kind::Shm).total.load(Relaxed));
    match asked {
        Asked::Segment(size) if size.div_ceil(PAGE) > free => {
            let (size, free, all) = (Bytes(*size), Bytes(free * PAGE), Bytes(all * PAGE));
            explain(format_args!(
                "the pool has no room for {size}: of its {all} for segments {free} are free; {LARGER}"
            ));
        }
        Asked::Segment(size) => explain(format_args!(
            "there is no memory for {}: the pool is in pieces, its file system is full, or this kernel has none \
             left; {LARGER}",
            Bytes(*size)
        )),
        _ => explain(format_args!("the pool has no room for another {}; {LARGER}", asked.word())),
    }
}

fn at_a_limit(caller: &Caller, asked: &Asked) {
    let (limits, pool) = (caller.pool().limits(), caller.pool());
    let is_full = |kind, limit: u32| pool.kind_root(kind).used.load(Relaxed) >= u64::from(limit);
    let (name, limit) = match asked {
        Asked::Segment(_) if is_full(Kind::Shm, limits.shmmni) => ("shmmni", u64::from(limits.shmmni)),
        Asked::Segment(_) => ("shmall", limits.shmall),
        Asked::Set(_) if is_full(Kind::Sem, limits.semmni) => ("semmni", limits.semmni.into()),
        Asked::Set(_) => ("semmns", limits.semmns.into()),
        Asked::Queue => ("msgmni", limits.msgmni.into()),
    };
    explain(format_args!(
        "the pool's limit {name} is {limit}, and is reached: remove what nobody needs (vshmem ipcs, vshmem ipcrm), \
         or make a pool with a higher one (vshmem pool create --limit {name}=NUMBER)"
    ));
}

/// A segment or set of the key may be there from before, with another size.
fn too_small(caller: &Caller, key: i32, asked: &Asked) {
    let c = &caller.ctx;
    let (found, wanted) = match asked {
        Asked::Segment(size) => (shm::get(c, key, 0, 0).ok().and_then(|id| shm::size(c, id)), *size),
        Asked::Set(count) => {
            let set = sem::get(c, key, 0, 0).and_then(|id| sem::nsems(c, id));
            (set.ok().map(|count| count as u64), *count)
        }
        Asked::Queue => return,
    };
    if let Some(found) = found.filter(|found| *found < wanted) {
        let (word, option) = (asked.word(), asked.option());
        explain(format_args!(
            "a {word} with the key {key:#x} is there, of the size {found}, and {wanted} are asked for; if nobody \
             needs it: vshmem ipcrm {option} {key:#x}"
        ));
    }
}

/// A number of bytes as people read it.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 20 => write!(f, "{bytes} bytes"),
            bytes => write!(f, "{} MiB", bytes >> 20),
        }
    }
}
