//! The gate: the one lock of a process. Rare changes take it: opening a pool, becoming known to it, the table
//! of attachments, and the moment of a fork.
//!
//! A thread holds it with all signals blocked, so a handler never waits for its own thread. It lies in the
//! page that a child finds empty, so a child never waits for a thread that it doesn't have.
//!
//! No thread sleeps inside for anything in a pool: a lock there that is not free soon is not to be had
//! ([`vshmem_pool::Kernel::is_inside`]). A call that needs it leaves the gate, waits, and begins again. So
//! whatever a member writes into a pool, the gate is soon free. A thread that stands in line for it, with
//! signals let through, waits for work of its own process alone.
//!
//! The owner is known by the address of its thread-local block, which no two threads have at once and which
//! costs no system call. Only the owner writes that word, so a thread that finds its own address there is
//! inside. The locks of a pool that it takes there find signals blocked ([`is_inside`]), and leave them so.
//!
//! A thread that forks keeps the gate closed meanwhile, but is not inside, and signals go through: a child
//! has nothing to put back, so it need not run code of ours. A handler that comes then gets in.

use crate::process::page::{self, Page};
use crate::process::raw::{self, syscall};
use crate::process::tls;
use core::sync::atomic::Ordering;
use vshmem_ipc::Errno;

/// The gate's word: a thread is inside.
const CLOSED: u32 = 1;
/// A bit of it: a thread sleeps until the gate is open.
const WAITERS: u32 = 1 << 31;
/// Times that a thread yields before it sleeps: some milliseconds, since the gate is held for microseconds,
/// and an observer of a process that attaches a segment must not see it asleep.
const MOST_YIELDS: u32 = 5000;

/// A sleeper's longest sleep in nanoseconds: the thread that is to wake it may be in a handler that never
/// comes back.
const LONGEST_SLEEP_NS: i64 = 50_000_000;

/// A bit of the owner's word: it forks.
const FORKS: usize = 1;

/// A thread inside of the gate; it leaves when this is dropped.
pub struct Inside {
    page: &'static Page,
    mask: u64,
    /// The owner's word as it was: the gate was the thread's already, or 0.
    before: usize,
}

impl Inside {
    /// The process's page.
    pub fn page(&self) -> &'static Page {
        self.page
    }

    /// Has it interrupted a fork of the thread's own?
    pub fn is_in_fork(&self) -> bool {
        self.before & FORKS != 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.page.owner.store(self.before, Ordering::Relaxed);
        if self.before == 0 {
            open(self.page);
        }
        restore_signals(self.mask);
    }
}

/// Enters the gate; waits while another thread is inside. A thread that is inside already gets in again.
pub fn enter() -> Result<Inside, Errno> {
    let page = page::page().ok_or(Errno(libc::ENOMEM))?;
    Ok(enter_at(page))
}

fn enter_at(page: &'static Page) -> Inside {
    let (mut mine, mut gave_way) = (CLOSED, 0);
    loop {
        let mask = block_signals();
        if let Some(before) = lock(page, mine) {
            return Inside { page, mask, before };
        }
        restore_signals(mask);
        if gave_way < MOST_YIELDS {
            gave_way += 1;
            raw::give_way();
        } else {
            sleep(page);
            // More threads may sleep: one that slept wakes the next when it leaves.
            mine = CLOSED | WAITERS;
        }
    }
}

/// Blocks all signals; returns the mask before, which is that of all signals inside the gate.
pub fn block_signals() -> u64 {
    if is_inside() {
        return u64::MAX;
    }
    raw::block_signals()
}

/// Puts the mask that [`block_signals`] returned back. Inside the gate it stays as it is.
pub fn restore_signals(old: u64) {
    if !is_inside() {
        raw::restore_signals(old);
    }
}

/// Is the calling thread inside? Then it has all signals blocked.
#[inline(always)]
pub fn is_inside() -> bool {
    page::existing().is_some_and(is_owner)
}

#[inline(always)]
fn is_owner(page: &Page) -> bool {
    page.owner.load(Ordering::Relaxed) == tls::thread().addr()
}

/// Closes the gate by the word `mine`. Returns the owner's word as it was, if the gate was the thread's
/// already, else 0; `None`: another thread is inside.
fn lock(page: &Page, mine: u32) -> Option<usize> {
    let me = tls::thread().addr();
    let before = page.owner.load(Ordering::Relaxed);
    let was_mine = before & !FORKS == me;
    if !was_mine {
        page.gate.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).ok()?;
    }
    page.owner.store(me, Ordering::Relaxed);
    Some(if was_mine { before } else { 0 })
}

/// Sleeps until the gate is open, or a handler has run, but no longer than [`LONGEST_SLEEP_NS`].
fn sleep(page: &Page) {
    let seen = page.gate.load(Ordering::Relaxed);
    let marked = seen | WAITERS;
    let change = || page.gate.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed);
    if seen != 0 && change().is_ok() {
        let longest = libc::timespec { tv_sec: 0, tv_nsec: LONGEST_SLEEP_NS };
        futex(page, libc::FUTEX_WAIT, marked, &longest);
    }
}

fn open(page: &Page) {
    if page.gate.swap(0, Ordering::Release) & WAITERS != 0 {
        futex(page, libc::FUTEX_WAKE, 1, core::ptr::null());
    }
}

fn futex(page: &Page, operation: i32, value: u32, longest: *const libc::timespec) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is mapped for the process's life; a time span, or none.
    unsafe { syscall!(libc::SYS_futex, page.gate.as_ptr(), operation, value, longest) };
}

/// Enters the gate before a fork, if there is anything that it guards.
pub fn enter_for_fork() -> Option<Inside> {
    page::existing().filter(|page| !is_owner(page)).map(enter_at)
}

/// The fork may come: the gate stays closed, and signals go through again.
pub fn close_for_fork(inside: Inside) {
    let page = inside.page();
    page.forks.fetch_add(1, Ordering::Relaxed);
    page.owner.store(tls::thread().addr() | FORKS, Ordering::Relaxed);
    restore_signals(inside.mask);
    core::mem::forget(inside);
}

/// Enters the gate after a fork, in the parent, if the thread has closed it for that.
pub fn enter_after_fork() -> Option<Inside> {
    let is_mine = |page: &&Page| page.owner.load(Ordering::Relaxed) == tls::thread().addr() | FORKS;
    let mut inside = page::existing().filter(is_mine).map(enter_at)?;
    // A handler's own fork may have come in between, and is over.
    if inside.page.forks.fetch_sub(1, Ordering::Relaxed) == 1 {
        inside.before = 0;
    }
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_and_again_from_inside() {
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(|| {
                    for _ in 0..2000 {
                        let _outer = enter().unwrap();
                        assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
                        drop(enter().unwrap());
                        assert!(is_inside());
                        assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn signals_stay_blocked_until_the_outermost_leaves() {
        let before = raw::block_signals();
        raw::restore_signals(before);
        let outer = enter().unwrap();
        let mask = block_signals();
        restore_signals(mask);
        drop(enter().unwrap());
        // SIGKILL and SIGSTOP never are, and who emulates a process keeps the last two for itself.
        let never = 1 << 8 | 1 << 18 | 3 << 62;
        assert_eq!(raw::block_signals() | never, u64::MAX);
        drop(outer);
        assert_eq!(raw::block_signals(), before);
        raw::restore_signals(before);
    }

    #[test]
    fn who_forks_keeps_the_gate_closed_for_others_alone() {
        let before = raw::block_signals();
        raw::restore_signals(before);
        drop(enter().unwrap());
        let fork = || close_for_fork(enter_for_fork().unwrap());
        fork();
        assert!(!is_inside());
        assert_eq!(raw::block_signals(), before, "signals go through");
        raw::restore_signals(before);
        let other = thread::spawn(|| drop(enter().unwrap()));
        {
            // A handler that comes now.
            let handler = enter().unwrap();
            assert!(is_inside() && handler.is_in_fork());
            assert!(enter_for_fork().is_none(), "nothing forks in there");
        }
        fork();
        drop(enter_after_fork().unwrap());
        assert!(!other.is_finished(), "a handler's fork is over, but not the one that it interrupted");
        drop(enter_after_fork().unwrap());
        other.join().unwrap();
        assert!(enter_after_fork().is_none());
        assert!(!enter().unwrap().is_in_fork());
    }

    #[test]
    fn who_stands_in_line_gets_signals() {
        static HANDLED: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn handler(_: i32) {
            HANDLED.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGURG, handler as *const () as usize) };
        let (sender, receiver) = std::sync::mpsc::channel();
        let (may_enter, entered) = std::sync::mpsc::channel();
        // Before signals are blocked in here.
        let waits = thread::spawn(move || {
            // SAFETY: the calling thread.
            sender.send(unsafe { libc::pthread_self() }).unwrap();
            entered.recv().unwrap();
            drop(enter().unwrap());
        });
        let inside = enter().unwrap();
        may_enter.send(()).unwrap();
        let thread = receiver.recv().unwrap();
        for times in 1..=3 {
            // SAFETY: it lives: it can't get in.
            unsafe { libc::pthread_kill(thread, libc::SIGURG) };
            while HANDLED.load(Ordering::SeqCst) < times {
                thread::sleep(core::time::Duration::from_millis(1));
            }
        }
        drop(inside);
        waits.join().unwrap();
    }
}
