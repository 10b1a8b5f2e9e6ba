//! The handler of SIGBUS, by which an agent survives the loss of a pool's memory while it is mapped: a
//! process that has the pool's file can truncate it, and a device can be unplugged. An access to a lost page
//! raises SIGBUS, which would end the agent for all of its pools. So the handler maps zeros over the whole
//! pool, in which there is nothing to do, and marks the pool as lost. The agent drops it within a second.

use libc::{c_int, c_void, siginfo_t};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Once;

/// Pools that an agent can guard at a time. Further ones are not guarded.
const MAX_GUARDED: usize = 1024;

struct Range {
    /// 0: unused.
    start: AtomicUsize,
    /// 0: not known yet.
    len: AtomicUsize,
    is_lost: AtomicBool,
}

static RANGES: [Range; MAX_GUARDED] = [const {
    Range { start: AtomicUsize::new(0), len: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; MAX_GUARDED];

/// A guarded mapping of a pool.
pub struct SigbusGuard(Option<&'static Range>);

impl SigbusGuard {
    /// Guards a range until this is dropped, which must be before the range is unmapped.
    pub fn new(start: usize, len: usize) -> SigbusGuard {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install_handler);
        let take = |range: &&Range| range.start.compare_exchange(0, start, SeqCst, SeqCst).is_ok();
        let range = RANGES.iter().find(take);
        if let Some(range) = range {
            range.is_lost.store(false, SeqCst);
            range.len.store(len, SeqCst);
        }
        SigbusGuard(range)
    }

    /// Whether a part of the range is lost.
    pub fn is_lost(&self) -> bool {
        self.0.is_some_and(|range| range.is_lost.load(SeqCst))
    }
}

impl Drop for SigbusGuard {
    fn drop(&mut self) {
        if let Some(range) = self.0 {
            range.len.store(0, SeqCst);
            range.start.store(0, SeqCst);
        }
    }
}

fn install_handler() {
    // SAFETY: all zeros is a valid action, with an empty mask; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives the handler its information.
    let at = unsafe { (*info).si_addr() } as usize;
    let hit = |range: &&Range| {
        let start = range.start.load(SeqCst);
        start != 0 && at.wrapping_sub(start) < range.len.load(SeqCst)
    };
    let replaced = RANGES.iter().find(hit).is_some_and(|range| {
        range.is_lost.store(true, SeqCst);
        let (start, len) = (range.start.load(SeqCst), range.len.load(SeqCst));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range is a pool's, whose memory other members may change to anything at any time, zeros
        // too.
        let zeros = unsafe {
            libc::mmap(start as *mut c_void, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        zeros != libc::MAP_FAILED
    });
    if !replaced {
        // The access is repeated, and ends the process.
        // SAFETY: a plain action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn lost_memory_reads_as_zeros() {
        let path = std::env::temp_dir().join(format!("vshmem-lost-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        std::fs::remove_file(&path).unwrap();
        let len = 1 << 16;
        let map = || {
            file.set_len(len as u64).unwrap();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping.
            let at = unsafe {
                libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>()
        };
        let (kept, gone) = (map(), map());
        let guards = [kept, gone].map(|at| SigbusGuard::new(at as usize, len));
        // SAFETY: both are mapped, and guarded.
        unsafe {
            gone.write_volatile(7);
            assert_eq!(kept.read_volatile(), 7);
            file.set_len(0).unwrap();
            assert_eq!(gone.add(len - 1).read_volatile(), 0);
            gone.write_volatile(8);
            assert_eq!(gone.read_volatile(), 8);
            assert!(!guards[0].is_lost() && guards[1].is_lost());
            assert_eq!(kept.read_volatile(), 0);
            assert!(guards[0].is_lost());
        }
        drop(guards);
        assert!(!SigbusGuard::new(gone as usize, len).is_lost(), "one that comes later");
    }
}
