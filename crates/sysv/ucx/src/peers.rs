//! Pids that were found in the pool. UCX names a peer by its pid alone, which may be that of a process of
//! this kernel, too. Once the pool knew a pid, its end there is the peer's end: a stranger of this kernel
//! that has the same one does not keep it alive.

use crate::pool::Pool;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bound of the pids that Linux gives out (PID_MAX_LIMIT).
const PIDS: usize = 1 << 22;

/// A bit for each pid that was found. Only its pages with such bits take memory.
static FOUND: [AtomicU64; PIDS / 64] = [const { AtomicU64::new(0) }; PIDS / 64];

/// The state of a pid in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of the pool has it.
    Lives,
    /// A process of the pool had it, and none has it now.
    Gone,
    /// The pool does not know it.
    Unknown,
}

/// The state of this pid, which is remembered if it lives.
pub fn peer(pool: &Pool, pid: c_int) -> Peer {
    let Some((word, bit)) = place(pid) else {
        return Peer::Unknown;
    };
    if pool.has_process(pid) {
        word.fetch_or(bit, Relaxed);
        Peer::Lives
    } else if word.load(Relaxed) & bit != 0 {
        Peer::Gone
    } else {
        Peer::Unknown
    }
}

fn place(pid: c_int) -> Option<(&'static AtomicU64, u64)> {
    let pid = usize::try_from(pid).ok().filter(|pid| *pid > 0)?;
    Some((FOUND.get(pid / 64)?, 1 << (pid % 64)))
}
