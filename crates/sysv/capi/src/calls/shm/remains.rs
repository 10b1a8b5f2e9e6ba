//! Attachments that end, or of which parts remain: noted inside the gate, counted off outside of it.

use crate::calls::again;
use crate::pools::caller::{caller_of, Caller};
use crate::pools::heirs;
use crate::process::attachments::{Piece, TABLE};
use crate::process::gate::Inside;
use crate::process::page::MAX_POOLS;
use core::ops::Range;
use vshmem_ipc::{shm, Errno};
use vshmem_pool::lock::SignalsBlocked;

/// The end of an attachment, of which this piece and all others, `n` in all, are attached no more.
pub fn given_up(piece: &Piece, n: u64) -> shm::Detached {
    shm::Detached { id: piece.id, source: piece.source, n, has_heirs: heirs::may_have(piece) }
}

/// The caller in the pools of attachments, with one budget for each, and the work that is left for outside of
/// the gate.
pub struct Owners {
    callers: Option<[Option<Caller>; MAX_POOLS]>,
    /// The pool whose lock is to be waited for.
    busy: Option<usize>,
    /// Pools in which attachments were given up.
    noted: [bool; MAX_POOLS],
}

impl Owners {
    #[inline(always)]
    pub fn new() -> Owners {
        Owners { callers: None, busy: None, noted: [false; MAX_POOLS] }
    }

    fn of(&mut self, pool: usize) -> Option<&Caller> {
        let callers = self.callers.get_or_insert([const { None }; MAX_POOLS]);
        let place = callers.get_mut(pool)?;
        if place.is_none() {
            *place = caller_of(pool).ok();
        }
        place.as_ref()
    }

    /// Notes that an attachment is given up, without a wait.
    pub fn note(&mut self, piece: &Piece) {
        let (pool, what) = (piece.pool as usize, given_up(piece, 1));
        if self.of(pool).is_some_and(|owner| shm::note_detached(&owner.ctx, &what)) {
            self.noted[pool] = true;
        }
    }

    /// Counts what is mapped as an attachment of its own, as far as the caller may attach the segment.
    pub fn attach(&mut self, piece: &Piece) -> Result<(), Errno> {
        let owner = self.of(piece.pool as usize).ok_or(Errno::EINVAL)?;
        shm::attach_by(&owner.ctx, piece.id, libc::SHM_RDONLY, piece.source).map(drop)
    }

    /// Waits, outside of the gate, for the lock that was not to be had inside. The call has one time for all
    /// pools. As in the kernel, a signal does not end the call.
    pub fn await_lock(&mut self, caller: &Caller) -> Result<(), Errno> {
        let other = self.busy.take().filter(|pool| *pool != caller.pool_index());
        let ctx = other.and_then(|pool| self.of(pool)).map_or(&caller.ctx, |other| &other.ctx);
        ctx.budget.add_wait(caller.ctx.budget.waited().saturating_sub(ctx.budget.waited()));
        let before = ctx.budget.waited();
        let free = again(|| match caller.is_parents() {
            true => Ok(()),
            false => vshmem_ipc::await_lock(ctx, &SignalsBlocked::attentive(ctx.kernel)),
        });
        if other.is_some() {
            caller.ctx.budget.add_wait(ctx.budget.waited() - before);
        }
        free
    }

    /// [`Owners::await_lock`] of a pool for what can be left undone. False: it is not to be had soon.
    pub fn await_lock_briefly(&mut self, pool: usize) -> bool {
        let await_lock = |ctx| vshmem_ipc::await_lock(ctx, &SignalsBlocked::brief(ctx.kernel));
        self.of(pool).is_some_and(|owner| await_lock(&owner.ctx).is_ok())
    }

    /// Counts off the attachments that were given up, outside of the gate, by a call that has waited for
    /// locks so long before, in nanoseconds. Where a lock is not to be had soon, others do.
    pub fn settle(&self, mut waited: u64) {
        let owners = self.callers.iter().flatten().zip(self.noted);
        for owner in owners.filter_map(|(owner, noted)| owner.as_ref().filter(|_| noted)) {
            let budget = &owner.ctx.budget;
            budget.refill();
            budget.add_wait(waited);
            shm::settle_all(&owner.ctx, &SignalsBlocked::brief(owner.ctx.kernel));
            waited = budget.waited();
        }
    }
}

/// Remains of attachments that a new mapping replaces in part: as the kernel does it, each piece counts.
/// Without SHM_REMAP, that part had been unmapped behind our back: otherwise the kernel had not given the
/// addresses out again. Those are two at the most, where the new mapping begins and ends.
#[derive(Default)]
pub struct Remains {
    of: [Option<(Piece, usize)>; 2],
    /// Is anything replaced at all?
    pub any: bool,
}

impl Remains {
    /// Counts the remains. Where the caller may not attach the segment any more, it just counts less.
    pub fn count(&mut self, gate: &Inside, range: &Range<usize>, owners: &mut Owners) -> Result<(), Errno> {
        let mut result = Ok(());
        TABLE.each_cut(gate, range, &mut |piece, remains| {
            self.any = true;
            let place = self.of.iter_mut().find(|place| place.is_none());
            let Some(place) = place.filter(|_| remains > 0) else { return };
            let mut counted = 0;
            while counted < remains && result.is_ok() {
                match owners.attach(&piece) {
                    Ok(()) => counted += 1,
                    Err(Errno::INSIDE) => {
                        owners.busy = Some(piece.pool as usize);
                        result = Err(Errno::INSIDE);
                    }
                    Err(_) => break,
                }
            }
            *place = Some((piece, counted));
        });
        result
    }

    /// Gives up the remains: there won't be any.
    pub fn give_up(&self, owners: &mut Owners) {
        for (piece, counted) in self.of.iter().flatten() {
            (0..*counted).for_each(|_| owners.note(piece));
        }
    }

    /// Gives up a piece that was cut, and of which so many pieces remain, if each of those is counted. One
    /// that is not is counted by the whole piece.
    pub fn note(&self, piece: &Piece, remains: usize, owners: &mut Owners) {
        let counted = self.of.iter().flatten().find(|(of, _)| of == piece).map_or(0, |(_, counted)| *counted);
        if counted == remains {
            owners.note(piece);
        }
    }
}
