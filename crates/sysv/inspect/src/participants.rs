//! The participants of a pool: its members, and the threads that wait in it.

use crate::processes::{readable, Process, Processes};
use crate::view::View;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vshmem_ipc::stats::{self, Wanted};
use vshmem_pool::layout::Kind;

/// A kernel that uses the pool, or did.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Member {
    /// Its number in the member table.
    pub member: u16,
    /// Its name.
    pub name: String,
    /// It is not known to be dead.
    pub alive: bool,
    /// It is the kernel that this was read on.
    pub here: bool,
    /// The number by which doorbells address it.
    pub peer: Option<u16>,
    /// The time at which the back end first saw it, in seconds since the epoch.
    pub since: Option<u64>,
    /// Its processes in the pool.
    pub processes: u32,
    /// Its threads that wait.
    pub waiting: u32,
}

/// A member's number and identity: numbers are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberId {
    pub(crate) number: u16,
    pub(crate) identity: [u64; 2],
}

/// A thread that waits.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Waiter {
    /// `set` or `queue`.
    pub kind: &'static str,
    /// Its id.
    pub id: i32,
    /// Its process.
    pub process: Process,
    /// Its process is not known to be dead.
    pub alive: bool,
    /// The aim of its wait, in words.
    pub wanted: String,
    /// The time since which it waits, in seconds since the epoch.
    pub since: Option<i64>,
}

impl View<'_> {
    /// The members of the pool, dead ones too.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut all = Vec::new();
        self.pool.members(|index, name, alive| {
            let known = self.pool.member_peer(index);
            all.push(Member {
                member: index,
                name: readable(name),
                alive,
                here: Some(index) == self.here,
                peer: known.map(|(peer, _)| peer),
                since: known.map(|(_, since)| since).filter(|since| *since != 0),
                processes: 0,
                waiting: 0,
            });
        });
        let mut count = |member: u16, what: fn(&mut Member) -> &mut u32| {
            let of = all.iter_mut().find(|m: &&mut Member| m.member == member);
            if let Some(of) = of {
                *what(of) += 1;
            }
        };
        self.processes(|who| count(who.member, |member| &mut member.processes));
        stats::sleepers(self.pool, &mut self.back(), |sleeper| {
            count(sleeper.who.member, |member| &mut member.waiting);
        });
        all
    }

    /// The threads that wait in the pool.
    pub(crate) fn waiters(&self, processes: &Processes) -> Vec<Waiter> {
        let mut all = Vec::new();
        stats::sleepers(self.pool, &mut self.back(), |sleeper| {
            let member = sleeper.who.member;
            all.push(Waiter {
                kind: if sleeper.kind == Kind::Sem { "set" } else { "queue" },
                id: sleeper.id,
                process: processes.describe(sleeper.who),
                alive: match Some(member) == self.here {
                    true => self.lives_here(sleeper.process.slot),
                    false => !self.pool.member_is_dead(member),
                },
                wanted: describe_wait(sleeper.wanted),
                since: (sleeper.since != 0).then_some(sleeper.since),
            });
        });
        all
    }
}

/// Describes the aim of a thread's wait in words.
fn describe_wait(wanted: Wanted) -> String {
    match wanted {
        Wanted::Operation { number, add: 0 } => format!("semaphore {number} to be 0"),
        Wanted::Operation { number, add } => format!("semaphore {number} to let {add} be added"),
        Wanted::Message(0) => "a message".into(),
        Wanted::Message(kind @ 1..) => format!("a message of type {kind}"),
        Wanted::Message(kind) => format!("a message of type {} at the most", kind.unsigned_abs()),
        Wanted::OtherMessage(kind) => format!("a message of another type than {kind}"),
        Wanted::Space(bytes) => format!("room for {bytes} bytes"),
    }
}
