//! The metrics of a served pool.

use super::collected::Collected;
use super::ServedPool;
use crate::metrics::{Member, Pool};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use vshmem_ipc::stats;
use vshmem_pool::layout::Kind;

impl ServedPool {
    /// The metrics that were collected last, if they were.
    pub fn metrics(&self) -> Option<&Pool> {
        self.collected.as_ref().map(Collected::metrics)
    }

    /// The time at which the metrics were collected last, if they were.
    pub fn collected_at(&self) -> Option<Instant> {
        self.collected.as_ref().map(Collected::at)
    }

    /// Collects the metrics, unless that took long and was not long ago.
    pub fn collect_metrics(&mut self) {
        if !self.collected.as_ref().is_some_and(Collected::is_recent) {
            self.collected = Some(Collected::by(|| self.read_metrics()));
        }
    }

    /// Reads the metrics. Takes no lock, and trusts no number of the pool.
    fn read_metrics(&self) -> Pool {
        let (pool, handle) = (&self.pool, &self.joined.handle);
        let back = &mut |at, len| handle.reserve(at, len);
        let totals = stats::totals(pool);
        let mut members = Vec::new();
        pool.members(|member, name, alive| {
            members.push(Member {
                member,
                name: String::from_utf8_lossy(name).into_owned(),
                alive,
                processes: 0,
                sleepers: 0,
            });
        });
        let of = |members: &mut Vec<Member>, member| members.iter().position(|m| m.member == member);
        stats::processes(pool, back, |_, process| {
            if let Some(i) = of(&mut members, process.member) {
                members[i].processes += 1;
            }
        });
        let mut sleepers = [0; 2];
        stats::sleepers(pool, back, |sleeper| {
            sleepers[usize::from(sleeper.kind == Kind::Msg)] += 1;
            if let Some(i) = of(&mut members, sleeper.who.member) {
                members[i].sleepers += 1;
            }
        });
        let (mut messages, mut text) = (0, 0);
        stats::queues(pool, back, |queue| {
            messages += u64::from(queue.messages());
            text += u64::from(queue.bytes());
        });
        let blocks = rustix::fs::fstat(&self.stored.file).map_or(0, |stat| stat.st_blocks);
        Pool {
            name: self.stored.name.clone(),
            size: pool.mem().len() as u64,
            memory: blocks as u64 * 512,
            segments: totals.segment_bytes,
            free: totals.page_bytes - totals.segment_bytes,
            objects: totals.objects,
            semaphores: totals.semaphores,
            messages,
            text,
            sleepers,
            peers: self.peers.len() as u64,
            doorbells: self.doorbells,
            given_back: self.given_back.load(Relaxed),
            quarantined: self.quarantined().is_some(),
            members,
        }
    }
}
