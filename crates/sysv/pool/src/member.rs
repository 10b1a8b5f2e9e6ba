//! The member table: the kernels that use the pool.
//!
//! An entry is found by the kernel's *identity*, 16 bytes that no other kernel has, and all of its processes
//! that share liveness locks have. Which they are is the transport's to know.
//!
//! An entry of a dead member is *vacant*, and may be taken by another kernel, once somebody has found that
//! nothing in the pool names it any more. It is never free again: entries that were ever used come before
//! those that were not.

use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::layout::{Member, MAX_MEMBERS};
use crate::Pool;
use core::fmt;

pub(crate) const FREE: u32 = 0;
const WRITING: u32 = 1;
pub(crate) const LIVE: u32 = 2;
const DEAD: u32 = 3;
const VACANT: u32 = 4;
// As docs/layout.md has it.
const _: () = assert!(FREE == 0 && WRITING == 1 && LIVE == 2 && DEAD == 3 && VACANT == 4);

/// Reasons for which a kernel can't join a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The table is full.
    Full,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAX_MEMBERS} kernels use this pool already; make another pool")
    }
}
impl core::error::Error for JoinError {}

/// The state of an entry that a kernel of this identity is writing. Should the writer die, another process of
/// that kernel writes the same.
fn writing(words: [u64; 2]) -> u32 {
    WRITING | ((words[0] ^ words[1]) as u32) << 8
}

#[cfg(test)]
pub(crate) fn begun(identity: [u8; 16]) -> u32 {
    writing(words_of(identity))
}

/// An identity, as two words.
fn words_of(identity: [u8; 16]) -> [u64; 2] {
    [0, 8].map(|i| u64::from_le_bytes(core::array::from_fn(|j| identity[i + j])))
}

impl Pool {
    pub(crate) fn member(&self, index: u32) -> Option<&'static Member> {
        self.record(self.geometry.members, index)
    }

    /// The entry of the kernel with this identity, if it has one.
    pub fn find_member(&self, identity: [u8; 16]) -> Option<u16> {
        let words = words_of(identity);
        let is_it = |m: &Member| {
            m.state.load(Acquire) == LIVE
                && m.identity[0].load(Relaxed) == words[0]
                && m.identity[1].load(Relaxed) == words[1]
        };
        let found = (0..MAX_MEMBERS).find(|i| self.member(*i).is_some_and(is_it));
        found.map(|i| i as u16)
    }

    /// Finds the entry of the kernel with this identity, or makes one. Of several processes that make one at
    /// the same time, each may get its own: the transport sees to it that they come one after the other.
    pub fn join(&self, identity: [u8; 16], name: &[u8]) -> Result<u16, JoinError> {
        if let Some(i) = self.find_member(identity) {
            return Ok(i);
        }
        let words = words_of(identity);
        // Those that were used before come first, so that there are few to look at.
        let each = || (0..MAX_MEMBERS).map_while(|i| self.member(i).map(|m| (i, m)));
        let begun = writing(words);
        let in_state = |state| each().map(move |(i, m)| (i, m, state));
        let all = in_state(begun).chain(in_state(VACANT));
        for (_, m, state) in all.chain(in_state(FREE)) {
            let (peer, since) = (m.peer.load(Relaxed), m.since.load(Relaxed));
            let taken = m.state.compare_exchange(state, begun, AcqRel, Relaxed);
            if taken.is_err() {
                continue;
            }
            // The process that had begun it may be alive after all, and late: then the entry is in use, and
            // the back end has numbered it.
            let _ = m.peer.compare_exchange(peer, 0, Relaxed, Relaxed);
            let _ = m.since.compare_exchange(since, 0, Relaxed, Relaxed);
            m.identity[0].store(words[0], Relaxed);
            m.identity[1].store(words[1], Relaxed);
            for (i, b) in m.name.iter().enumerate() {
                b.store(if i < 31 { name.get(i).copied().unwrap_or(0) } else { 0 }, Relaxed);
            }
            let _ = (m.state).compare_exchange(begun, LIVE, Release, Relaxed);
            // The first entry counts, whoever else made one. There is none if another kernel, whose identity
            // looks alike in the state, has written over this one.
            if let Some(first) = self.find_member(identity) {
                return Ok(first);
            }
        }
        Err(JoinError::Full)
    }

    /// The identity of a member, as two words.
    pub fn member_identity(&self, member: u16) -> Option<[u64; 2]> {
        let identity = &self.member(member.into())?.identity;
        Some([identity[0].load(Relaxed), identity[1].load(Relaxed)])
    }

    /// Does the entry of a kernel that has joined read as one still? Where the memory was taken away it reads
    /// as zeros, or ones.
    pub fn is_joined(&self, member: u16) -> bool {
        let state = self.member(member.into()).map(|m| m.state.load(Acquire));
        state.is_some_and(|state| (WRITING..=VACANT).contains(&state))
    }

    /// An entry's state, as it is.
    pub fn member_state(&self, index: u32) -> Option<u32> {
        self.member(index).map(|m| m.state.load(Acquire))
    }

    /// Whether a machine is known to be dead.
    pub fn member_is_dead(&self, member: u16) -> bool {
        self.member(member.into()).is_none_or(|m| matches!(m.state.load(Acquire), DEAD | VACANT))
    }

    /// The dead members whose entries are not vacant, a bit each.
    pub fn dead_members(&self) -> u64 {
        let is_dead = |i: &u32| self.member(*i).is_some_and(|m| m.state.load(Acquire) == DEAD);
        (0..MAX_MEMBERS).filter(is_dead).fold(0, |all, i| all | 1 << i)
    }

    /// Lets another kernel have the entry of a dead member, which nothing in the pool names any more. Whether
    /// it was one.
    pub fn vacate_member(&self, member: u16) -> bool {
        self.member(member.into()).is_some_and(|m| {
            let vacated = m.state.compare_exchange(DEAD, VACANT, AcqRel, Relaxed);
            vacated.is_ok()
        })
    }

    /// Declares a member dead: the host calls this when it has ended the machine.
    pub fn declare_dead(&self, member: u16) {
        if let Some(m) = self.member(member.into()) {
            let _ = m.state.compare_exchange(LIVE, DEAD, AcqRel, Relaxed);
            self.forget_memory_requests(member);
        }
    }

    /// Writes down by which number a member's doorbell is rung, and since when, in seconds since the epoch.
    pub fn set_member_peer(&self, member: u16, peer: u16, since: u64) {
        if let Some(m) = self.member(member.into()) {
            m.since.store(since, Relaxed);
            m.set_peer_number(peer);
        }
    }

    /// The number by which a member's doorbell is rung, if it has one, and the time since which that is
    /// known, in seconds since the epoch.
    pub fn member_peer(&self, member: u16) -> Option<(u16, u64)> {
        let m = self.member(member.into())?;
        Some((m.peer_number()?, m.since.load(Relaxed)))
    }

    /// The back end says that it lives. `now` is the host's monotonic clock in nanoseconds; 0: it ends.
    pub fn heartbeat(&self, now: u64) {
        let root = self.root();
        root.heartbeat_at.store(now, Relaxed);
        // Only the one back end of a pool counts.
        let count = root.heartbeat.load(Relaxed).wrapping_add(1);
        root.heartbeat.store(count.max(1), Release);
    }

    /// The last heartbeat of the back end: the count of them, and its time. The back end lives if the count
    /// changes within a few seconds, or, for processes of the host, if that was not long ago. `None`: there
    /// is none, or it has ended in good order.
    pub fn last_heartbeat(&self) -> Option<(u64, u64)> {
        let root = self.root();
        let count = root.heartbeat.load(Acquire);
        let at = root.heartbeat_at.load(Relaxed);
        (count != 0 && at != 0).then_some((count, at))
    }

    /// Is `member` the only one that is not known to be dead?
    pub fn is_alone(&self, member: u16) -> bool {
        let states = (0..MAX_MEMBERS).map_while(|i| self.member(i).map(|m| m.state.load(Acquire)));
        // Entries are taken in order, and those that were used are never free again.
        let mut taken = states.take_while(|state| *state != FREE).enumerate();
        taken.all(|(i, state)| i == usize::from(member) || state != LIVE)
    }

    /// Calls `each` with index, name (without the zeros) and whether it is not known to be dead, of every
    /// member.
    pub fn members(&self, mut each: impl FnMut(u16, &[u8], bool)) {
        for i in 0..MAX_MEMBERS {
            let Some(m) = self.member(i) else { break };
            let state = m.state.load(Acquire);
            // Entries are taken in order, and those that were used are never free again.
            if state == FREE {
                break;
            }
            if state == LIVE || state == DEAD {
                let name: [u8; 32] = core::array::from_fn(|i| m.name[i].load(Relaxed));
                let len = name.iter().position(|b| *b == 0).unwrap_or(32);
                each(i as u16, &name[..len], state == LIVE);
            }
        }
    }
}
