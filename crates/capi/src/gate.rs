//! The gate: the one lock of a process. It guards what changes rarely: opening a pool, becoming known to it,
//! the table of attachments, and the moment of a fork.
//!
//! A thread holds it with all signals blocked, so a handler never waits for its own thread. It lies in the
//! page that a child finds empty, so a child never waits for a thread that it doesn't have.
//!
//! The owner is known by the address of its thread-local block, which no two threads have at once and which
//! costs no system call. Only the owner writes that word, so a thread that finds its own address there is
//! inside. The locks of a pool that it takes there find signals blocked ([`is_inside`]), and leave them so.

use crate::page::{self, Page};
use crate::raw::{self, syscall};
use crate::tls::{self, Fork};
use core::sync::atomic::Ordering;
use vshmem_ipc::Errno;

/// A thread is inside.
const CLOSED: u32 = 1;
/// A thread sleeps until the gate is open.
const WAITERS: u32 = 1 << 31;
/// How often a thread yields before it sleeps, some milliseconds: the gate is held for microseconds, and an
/// observer of a process that attaches a segment must not see it asleep.
const AWAKE: u32 = 5000;

/// Entered; leaves when dropped.
pub struct Inside {
    page: &'static Page,
    mask: u64,
}

impl Inside {
    /// The process's page.
    pub fn page(&self) -> &'static Page {
        self.page
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        leave(self.page);
        restore_signals(self.mask);
    }
}

/// Enters the gate; waits while another thread is inside. A thread that is inside already gets in again.
pub fn enter() -> Result<Inside, Errno> {
    let page = page::page().ok_or(Errno(libc::ENOMEM))?;
    let mask = block_signals();
    lock(page);
    Ok(Inside { page, mask })
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

fn lock(page: &Page) {
    if is_owner(page) {
        page.depth.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut mine = CLOSED;
    let mut gave_way = 0;
    loop {
        match page.gate.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return page.owner.store(tls::thread().addr(), Ordering::Relaxed),
            Err(_) if gave_way < AWAKE => {
                gave_way += 1;
                raw::give_way();
            }
            Err(seen) => {
                let marked = seen | WAITERS;
                let change = page.gate.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed);
                if change.is_ok() {
                    futex(page, libc::FUTEX_WAIT, marked);
                }
                // More threads may sleep: one that slept wakes the next when it leaves.
                mine = CLOSED | WAITERS;
            }
        }
    }
}

fn leave(page: &Page) {
    if page.depth.load(Ordering::Relaxed) > 0 {
        page.depth.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    page.owner.store(0, Ordering::Relaxed);
    if page.gate.swap(0, Ordering::Release) & WAITERS != 0 {
        futex(page, libc::FUTEX_WAKE, 1);
    }
}

fn futex(page: &Page, operation: i32, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is mapped for the process's life.
    unsafe { syscall!(libc::SYS_futex, page.gate.as_ptr(), operation, value, 0usize) };
}

fn fork_record() -> &'static mut Fork {
    // SAFETY: the thread's own record, used by fork handlers only, which run one after the other on a thread.
    unsafe { &mut (*crate::tls::thread()).fork }
}

/// Before a fork: enters the gate for good. False: there is no page, so nothing is open.
pub fn close_for_fork() -> bool {
    let Some(page) = page::existing() else { return false };
    let record = fork_record();
    let mask = block_signals();
    lock(page);
    if record.closed == 0 {
        record.mask = mask;
    }
    record.closed += 1;
    true
}

/// After a fork, in the parent.
pub fn open_in_parent() {
    if let (true, Some(page)) = (finish_fork(), page::existing()) {
        leave(page);
        restore_after_outermost();
    }
}

/// After a fork, in the child: its page is empty, so it is outside; only the mask is left to be put back.
pub fn open_in_child() {
    if finish_fork() {
        restore_after_outermost();
    }
}

/// Did the innermost fork under way close the gate?
pub fn is_closed_for_fork() -> bool {
    fork_record().closed != 0
}

fn finish_fork() -> bool {
    let record = fork_record();
    let was_closed = record.closed != 0;
    if was_closed {
        record.closed -= 1;
    }
    was_closed
}

fn restore_after_outermost() {
    let record = fork_record();
    if record.closed == 0 {
        raw::restore_signals(record.mask);
    }
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
}
