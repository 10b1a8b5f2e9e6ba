//! Sharers: children of `clone` with CLONE_VM, processes of their own in the memory of another one. What a
//! process knows of itself lies in its memory, so a sharer has the slot and the attachments of the process
//! whose memory it is, as in the kernel. But its `SEM_UNDO` adjustments are its own, unless it is made with
//! CLONE_SYSVSEM, and are due when it ends. So its `semop` has a process slot of its own, which it takes when
//! it first needs one. A liveness lock would tell nothing: the memory holds it, and lives on. By the pid in
//! the slot others know that the sharer lives.
//!
//! A sharer has the thread-local block of the thread that has made it. That is marked as long as there is
//! such a sharer: calls of both take no shortcuts, and ask the kernel which of the two makes them. All other
//! threads and processes go on as ever.
//!
//! A sharer may end at any moment: its slot is then found dead as any other. Its entry in the page is freed
//! by the thread that has made it, at that one's next call, or by who needs an entry; no earlier than that
//! thread is done with it, and the sharer's process over.

use crate::pools::table::POOLS;
use crate::pools::{lists, revoked};
use crate::process::page::{self, pack, unpack, Page, Sharer, MAX_POOLS};
use crate::process::{raw, tls};
use crate::thread::errno::ErrnoGuard;
use crate::thread::interrupted;
use crate::thread::last_error::explain;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use vshmem_ipc::{liveness, Errno};
use vshmem_pool::layout::NO_LIVENESS_LOCK;
use vshmem_pool::{Ctx, ProcId};
use vshmem_transport::process;

impl Sharer {
    fn is_over(&self) -> bool {
        let pid = self.pid.load(Relaxed);
        self.is_made.load(Acquire) && (pid == 0 || process::is_over(pid))
    }

    /// Frees the entry of a sharer that needs it no more. One does it alone: it may be another's at once.
    fn free(&self) {
        if self.is_made.swap(false, AcqRel) {
            self.pid.store(0, Relaxed);
            self.me.iter().for_each(|me| me.store(0, Relaxed));
            self.maker.store(0, Release);
        }
    }

    fn take(&self) -> bool {
        self.maker.compare_exchange(0, tls::thread().addr(), AcqRel, Relaxed).is_ok()
    }

    fn is_mine(&self) -> bool {
        self.maker.load(Relaxed) == tls::thread().addr()
    }
}

/// The entry of a sharer that the calling thread makes now. `None`: it can have no list of its own.
#[cold]
pub fn make() -> Option<&'static Sharer> {
    let page = page::page()?;
    if page.pid.load(Relaxed) == 0 {
        // What a handler's child has of its parent, see `member`.
        interrupted::forget();
    }
    // Asked now: else a sharer might be the first to ask.
    page.pid();
    let take = || page.sharers.iter().find(|sharer| sharer.take());
    let sharer = take().or_else(|| {
        page.sharers.iter().filter(|sharer| sharer.is_over()).for_each(Sharer::free);
        take()
    })?;
    interrupted::mark(true);
    Some(sharer)
}

/// In the thread that has made a sharer: its pid, or `None` if it is none any more, or never was one.
pub fn made(sharer: &'static Sharer, pid: Option<u32>) {
    if let Some(pid) = pid {
        sharer.pid.store(pid, Relaxed);
    }
    sharer.is_made.store(true, Release);
    if pid.is_none() {
        sharer.free();
        unmark();
    }
}

/// In a new sharer.
pub fn begin(sharer: &'static Sharer) {
    let pid = raw::getpid();
    // One that had this pid is over, and may not have been forgotten yet.
    for other in page::existing().iter().flat_map(|page| &page.sharers) {
        let _ = other.pid.compare_exchange(pid, 0, Relaxed, Relaxed);
    }
    sharer.pid.store(pid, Relaxed);
}

/// Takes the mark from the calling thread, if it has no sharers, nor its process a list with others.
fn unmark() {
    if !page::existing().is_some_and(|page| page.sharers.iter().any(Sharer::is_mine)) && !lists::any() {
        interrupted::mark(false);
    }
}

/// The entry that the calling process, a sharer, has. To be called by a thread that is marked.
fn mine() -> Option<(&'static Sharer, u32)> {
    let (page, pid) = (page::existing()?, raw::getpid());
    if pid == page.pid() {
        page.sharers.iter().filter(|sharer| sharer.is_mine() && sharer.is_over()).for_each(Sharer::free);
        unmark();
        return None;
    }
    page.sharers.iter().find(|sharer| sharer.pid.load(Relaxed) == pid).map(|sharer| (sharer, pid))
}

/// Is the process with this pid a sharer of the caller's memory?
pub fn has(pid: u32) -> bool {
    page::existing().is_some_and(|page| page.sharers.iter().any(|sharer| sharer.pid.load(Relaxed) == pid))
}

/// The caller in its own slot, if it is a sharer that has one, or is to take one now; `process` is that whose
/// memory it is. To be called by a thread that is marked.
pub fn own(process: &Ctx<'static>, index: usize, takes: bool) -> Result<Option<Ctx<'static>>, Errno> {
    let Some((sharer, pid)) = mine() else { return Ok(None) };
    let me = match unpack(sharer.me[index].load(Acquire)) {
        None if takes => take_slot(process, index, sharer, pid)?,
        me => me,
    };
    Ok(me.map(|me| Ctx { me, pid, ..process.clone() }))
}

/// Takes a slot for the caller. `None`: nobody would notice that it is over, for it can't say when and in
/// which name spaces it began, or these are others than those of the process whose memory it is.
fn take_slot(of: &Ctx, index: usize, sharer: &Sharer, pid: u32) -> Result<Option<ProcId>, Errno> {
    let _errno = ErrnoGuard::now();
    let started = process::started();
    let spaces = (started >> 32) as u32;
    if spaces == 0 || spaces != of.namespace {
        return Ok(None);
    }
    let place = &POOLS[index];
    // SAFETY: the process whose memory it is, is known to the pool, so it is open.
    let handle = unsafe { &place.opened().handle };
    let is_free = &mut |slot| handle.alive(slot) != Some(true);
    let started = started | NO_LIVENESS_LOCK;
    let Some(me) = liveness::claim(of.pool, place, of.member, pid, started, is_free) else {
        explain(format_args!("the pool has no room for another process; make a larger pool"));
        return Err(Errno::ENOSPC);
    };
    let word = pack(me, handle.may_go());
    Ok(match sharer.me[index].compare_exchange(0, word, AcqRel, Acquire) {
        Ok(_) => Some(me),
        Err(its) => {
            // A handler was faster.
            of.pool.free_process(me);
            unpack(its)
        }
    })
}

/// Is the caller another process than its memory's?
pub fn is_one() -> bool {
    interrupted::is_marked() && page::existing().is_some_and(|page| page.pid() != raw::getpid())
}

/// Applies the adjustments of the caller, if it is a sharer, and gives its slots up. False: it is none.
pub fn end() -> bool {
    if !is_one() {
        return false;
    }
    let _errno = ErrnoGuard::now();
    for index in (0..MAX_POOLS).filter(|index| !revoked::is_revoked(*index)) {
        let Some((sharer, pid)) = mine() else { return true };
        let Some(me) = unpack(sharer.me[index].swap(0, AcqRel)) else { continue };
        let ctx = POOLS[index].ctx(me, pid);
        // A fault of ours must not end the process otherwise than it wanted to end.
        let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            if vshmem_ipc::leave(&ctx) {
                ctx.pool.free_process(me);
            }
        }));
    }
    true
}

/// The process has left a pool: sharers have no slots there any more.
pub fn forget_slots(page: &Page, index: usize) {
    let sharers = page.sharers.iter().filter(|sharer| sharer.maker.load(Relaxed) != 0);
    sharers.for_each(|sharer| sharer.me[index].store(0, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn so_many_at_a_time_and_others_when_they_are_over() {
        let all: Vec<_> = core::iter::from_fn(make).collect();
        assert_eq!(all.len(), page::existing().unwrap().sharers.len());
        assert!(interrupted::is_marked() && !is_one() && !end());
        // The first lives, the others were none, but for one that has been over since.
        let (first, last) = (all[0], all[all.len() - 1]);
        let mut over = std::process::Command::new("true").spawn().unwrap();
        made(first, Some(std::process::id()));
        made(last, Some(over.id()));
        assert!(has(over.id()));
        all[1..all.len() - 1].iter().for_each(|sharer| made(sharer, None));
        over.wait().unwrap();
        assert!(mine().is_none() && interrupted::is_marked(), "the process whose memory it is");
        assert!(!has(over.id()) && first.is_mine() && !last.is_mine());
        last.me[0].store(7, Relaxed);
        forget_slots(page::existing().unwrap(), 0);
        let again = make().unwrap();
        assert!(!core::ptr::eq(again, first));
        made(again, None);
        // Another one with the pid of one that is not forgotten yet.
        let same = make().unwrap();
        begin(same);
        assert_eq!((first.pid.load(Relaxed), same.pid.load(Relaxed)), (0, std::process::id()));
        made(same, None);
        assert!(mine().is_none() && !interrupted::is_marked() && !interrupted::must_look());
    }
}
