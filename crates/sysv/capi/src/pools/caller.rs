//! The calling process in a pool. Its first call takes a process slot there, and opens the pool if need be.

use crate::pools::member::become_known;
use crate::pools::table::POOLS;
use crate::pools::{current, lists, revoked, sharers};
use crate::process::page::{self, unpack, Page, MAX_POOLS};
use crate::thread::interrupted;
use core::sync::atomic::Ordering;
use vshmem_ipc::Errno;
use vshmem_pool::{Ctx, Pool, ProcId};

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
///
/// # Errors
/// [`SHARED`], among others.
#[inline(always)]
pub fn adjuster() -> Result<Caller, Errno> {
    find(current::place(), true)
}

/// No program sees this one: the adjustments are to be handed over to a list that the process shares.
pub const SHARED: Errno = Errno(0x7ffc);

/// The process whose adjustments the caller's are, in the pool at a place, if it is known there.
pub fn known_adjuster(index: usize) -> Option<Ctx<'static>> {
    let is_known = |page: &&Page| page.memberships[index].me.load(Ordering::Acquire) != 0;
    page::existing().filter(is_known)?;
    find(index, true).ok().map(|caller| caller.ctx)
}

/// The calling process, or, as an `adjuster`, that by whose slot its adjustments go. Put together in one
/// place from words, not passed around: it stays in registers then.
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
    let (mut me, mut pid) = (unpack(me).ok_or(Errno::EINVAL)?, page.pid());
    if interrupted::must_look() {
        (me, pid) = look(index, me, pid, adjuster)?;
    }
    Ok(Caller { ctx: POOLS[index].ctx(me, pid), index, may_go })
}

/// Looks who calls, if the thread is marked, and ends the wait that it is in the middle of. Returns slot and
/// pid, of the process or, if it is a sharer that is to be known as an `adjuster`, its own.
#[cold]
#[inline(never)]
fn look(index: usize, me: ProcId, pid: u32, adjuster: bool) -> Result<(ProcId, u32), Errno> {
    let ctx = POOLS[index].ctx(me, pid);
    let own = if interrupted::is_marked() { sharers::own(&ctx, index, adjuster)? } else { None };
    if interrupted::is_waiting() {
        interrupted::end_wait(own.as_ref().unwrap_or(&ctx));
    }
    match own.filter(|_| adjuster) {
        Some(own) => Ok((own.me, own.pid)),
        None if adjuster && lists::shared(index).is_some() => Err(SHARED),
        None => Ok((me, pid)),
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
