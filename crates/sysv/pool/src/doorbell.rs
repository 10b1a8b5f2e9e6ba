//! Doorbells: the member of a waiting thread, and whether that can count on its kernel's doorbell.
//!
//! A thread that waits on its record's status may sleep until its kernel's doorbell is rung only if every
//! member whose processes might serve it rings doorbells. Each member writes down for itself that it does,
//! before its first process can serve anybody.

use crate::atomic::AtomicU32;
use crate::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use crate::layout::{Member, Waiter, MAX_MEMBERS};
use crate::member::{FREE, LIVE};
use crate::{Pool, ProcId};

/// The bit in the word of the peer number that says the member's processes ring the doorbells of other
/// members whose threads they serve.
const RINGS_DOORBELLS: u32 = 1 << 31;

/// The kernel whose threads sleep on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// One thread of this member: the word is the status of its record.
    Of(u16),
    /// Nobody's any more: the word is a record's status, and the record was given back, or its process is
    /// gone.
    Gone,
    /// Anybody's: another word.
    Anybody,
}

impl Member {
    pub(crate) fn peer_number(&self) -> Option<u16> {
        let number = (self.peer.load(Acquire) & !RINGS_DOORBELLS).checked_sub(1)?;
        u16::try_from(number).ok()
    }

    pub(crate) fn set_peer_number(&self, peer: u16) {
        self.change_peer(|old| old & RINGS_DOORBELLS | (u32::from(peer) + 1));
    }

    fn change_peer(&self, next: impl Fn(u32) -> u32) {
        let _ = self.peer.fetch_update(AcqRel, Acquire, |old| Some(next(old)));
    }
}

impl Pool {
    /// Notes for a member, which does it itself, by which number its doorbell is rung, and that its processes
    /// ring others'. A number is one kernel's at a time, so a member that had it before is dead: the same
    /// machine before it was reset, or before its device was bound anew.
    pub fn join_doorbells(&self, member: u16, peer: u16) {
        let Some(m) = self.member(member.into()) else {
            return;
        };
        m.change_peer(|_| RINGS_DOORBELLS | (u32::from(peer) + 1));
        let had_it = |m: &Member| m.state.load(Acquire) == LIVE && m.peer_number() == Some(peer);
        for other in (0..MAX_MEMBERS).filter(|i| *i != u32::from(member)) {
            if self.member(other).is_some_and(had_it) {
                self.declare_dead(other as u16);
            }
        }
    }

    /// The processes of a member don't ring doorbells, or not all of them can: a thread that waits for one of
    /// them must look by itself.
    pub fn leave_doorbells(&self, member: u16) {
        if let Some(m) = self.member(member.into()) {
            m.change_peer(|old| old & !RINGS_DOORBELLS);
        }
    }

    /// Can a thread of `member` count on its doorbell, whichever member serves it? It can if all members that
    /// are not known to be dead ring doorbells, its own included; a member that is alone needs no number.
    pub fn is_rung_by_all(&self, member: u16) -> bool {
        let rings = |m: &Member| m.peer.load(Acquire) & RINGS_DOORBELLS != 0;
        let all = (0..MAX_MEMBERS).map_while(|i| self.member(i)).enumerate();
        // Entries are taken in order and never free again.
        let taken = all.take_while(|(_, m)| m.state.load(Acquire) != FREE);
        let mut is_alone = true;
        for (i, m) in taken {
            if i != usize::from(member) && m.state.load(Acquire) == LIVE {
                is_alone = false;
                if !rings(m) {
                    return false;
                }
            }
        }
        self.member(member.into()).is_some_and(|m| rings(m) || is_alone && m.peer_number().is_none())
    }

    /// The kernel whose threads sleep on a word.
    pub fn sleeper_of(&self, word: &AtomicU32) -> Sleeper {
        let Some(waiter) = self.waiter_of(word) else {
            return Sleeper::Anybody;
        };
        let owner = ProcId::of_word(waiter.owner.load(Acquire));
        let process = owner.and_then(|owner| self.process(owner.slot));
        match process {
            Some((now, member, _)) if owner == Some(now) => Sleeper::Of(member),
            _ => Sleeper::Gone,
        }
    }

    /// The record whose status a word is.
    pub fn waiter_of(&self, status: &AtomicU32) -> Option<&'static Waiter> {
        let (table, _) = self.geometry().waiters;
        let at = (status.as_ptr() as usize).checked_sub(self.mem().base() as usize)? as u64;
        let index = at.checked_sub(table)? / size_of::<Waiter>() as u64;
        let waiter = self.waiter(u32::try_from(index).ok()?)?;
        core::ptr::eq(&waiter.status, status).then_some(waiter)
    }

    /// A process of the host has served a thread of `member`, whose doorbell the back end is to ring. Returns
    /// the word that the back end sleeps on.
    pub fn request_doorbell(&self, member: u16) -> &'static AtomicU32 {
        let root = self.root();
        if u32::from(member) < MAX_MEMBERS {
            root.doorbells_to_ring.fetch_or(1 << member, SeqCst);
            root.doorbell_requests.fetch_add(1, SeqCst);
        }
        &root.doorbell_requests
    }

    /// For the back end: a count of requests. The back end reads it, takes the requests, and sleeps while the
    /// count is what it was.
    pub fn doorbell_requests(&self) -> &'static AtomicU32 {
        &self.root().doorbell_requests
    }

    /// For the back end: the numbers of all members whose doorbells were requested since the last time.
    pub fn take_doorbell_requests(&self, each: impl FnMut(u16)) {
        let members = self.root().doorbells_to_ring.swap(0, SeqCst);
        let requested = (0..MAX_MEMBERS).filter(|i| members & 1 << i != 0);
        requested.filter_map(|i| self.member(i)?.peer_number()).for_each(each);
    }
}
