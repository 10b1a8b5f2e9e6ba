//! The calling process in a pool. Its first call takes a process slot there, and opens the pool if need be.

use crate::pools::member::become_known;
use crate::pools::table::POOLS;
use crate::pools::{current, revoked, sharers};
use crate::process::page::{self, unpack, Page, MAX_POOLS};
use crate::thread::interrupted;
use core::sync::atomic::Ordering;
use vshmem_ipc::Errno;
use vshmem_pool::{Ctx, Pool};

/// A process that calls, in one pool.
pub struct Caller {
    /// The process, for the upper half.
    pub ctx: Ctx<'static>,
    index: usize,
    may_go: bool,
}

impl Caller {
    /// The pool's place among the open ones.
    pub fn pool_index(&self) -> usize {
        self.index
    }

    /// May the pool be taken away while it is in use?
    #[inline(always)]
    pub fn may_go(&self) -> bool {
        self.may_go
    }

    /// Is it the caller of the parent, of which a handler has forked this process?
    pub fn is_parents(&self) -> bool {
        self.ctx.kernel.is_child_of(self.ctx.pid)
    }

    /// The pool's structures.
    #[inline(always)]
    pub fn pool(&self) -> &'static Pool {
        self.ctx.pool
    }
}

/// The calling process in the pool that calls go to.
#[inline(always)]
pub fn caller() -> Result<Caller, Errno> {
    caller_of(current::place())
}

/// The calling process in the pool at a place.
#[inline(always)]
pub fn caller_of(index: usize) -> Result<Caller, Errno> {
    find(index, false)
}

/// The calling process in the pool that calls go to, by the slot that its `SEM_UNDO` adjustments are of.
#[inline(always)]
pub fn adjuster() -> Result<Caller, Errno> {
    find(current::place(), true)
}

/// The process whose adjustments the caller's are, in the pool at a place, if it is known there.
pub fn known_adjuster(index: usize) -> Option<Ctx<'static>> {
    let is_known = |page: &&Page| page.memberships[index].me.load(Ordering::Acquire) != 0;
    page::existing().filter(is_known)?;
    find(index, true).ok().map(|caller| caller.ctx)
}

/// The calling process, or, as an `adjuster`, that by whose slot its adjustments go. Put together in one place
/// from words, not passed around: it stays in registers then.
#[inline(always)]
fn find(index: usize, adjuster: bool) -> Result<Caller, Errno> {
    let known = page::existing()
        .map(|page| (page, page.memberships[index].me.load(Ordering::Acquire)))
        .filter(|(_, me)| *me != 0);
    let (page, me) = match known {
        Some(known) => known,
        None => become_known(index)?,
    };
    let may_go = page::may_go(me);
    let me = unpack(me).ok_or(Errno::EINVAL)?;
    let ctx = POOLS[index].ctx(me, page.pid());
    let caller = Caller { ctx, index, may_go };
    if interrupted::must_look() {
        return look(caller, adjuster);
    }
    Ok(caller)
}

/// Looks who calls, if the thread is marked, and ends the wait that it is in the middle of.
#[cold]
#[inline(never)]
fn look(caller: Caller, adjuster: bool) -> Result<Caller, Errno> {
    let own = if interrupted::is_marked() { sharers::own(&caller, adjuster)? } else { None };
    if interrupted::is_waiting() {
        interrupted::end_wait(own.as_ref().unwrap_or(&caller.ctx));
    }
    match own.filter(|_| adjuster) {
        Some(ctx) => Ok(Caller { ctx, ..caller }),
        None => Ok(caller),
    }
}

/// Ends the wait that the calling thread, which is in a handler, is in the middle of: nobody may serve it any
/// more, not even a child.
pub fn end_wait() {
    let Some(page) = page::existing().filter(|_| interrupted::is_waiting()) else { return };
    for index in (0..MAX_POOLS).filter(|index| !revoked::is_revoked(*index)) {
        if page.memberships[index].me.load(Ordering::Acquire) != 0 {
            let _ = caller_of(index);
        }
    }
}

/// Makes the process known to the pools to which its parent was: before it changes attachments.
pub fn know_inherited() {
    let me = |index: usize| page::existing().map_or(0, |p| p.memberships[index].me.load(Ordering::Acquire));
    for (index, place) in POOLS.iter().enumerate() {
        if place.is_open() && me(index) == 0 && place.last_me.load(Ordering::Relaxed) != 0 {
            // What it may not be known to counts nothing.
            let _ = caller_of(index);
        }
    }
}

/// The calling process in the pool that calls go to, if it is known there. Can't panic, so a call may ask
/// before it has [`crate::thread::errno::guard`] around it.
#[inline(always)]
pub fn known() -> Option<Ctx<'static>> {
    known_in(current::place())
}

/// The calling process in the pool at a place, if it is known there.
#[inline(always)]
pub fn known_in(index: usize) -> Option<Ctx<'static>> {
    let index = index % MAX_POOLS;
    let page = page::existing().filter(|_| !interrupted::must_look())?;
    let me = unpack(page.memberships[index].me.load(Ordering::Acquire))?;
    match page.pid.load(Ordering::Relaxed) {
        0 => None,
        pid => Some(POOLS[index].ctx(me, pid)),
    }
}
