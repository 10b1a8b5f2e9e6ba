//! The contents of a pool, and removing IPC objects.

use crate::client::Client;
use crate::participants::{Member, Waiter};
use crate::pools::name_of;
use crate::processes::{Process, Processes};
use crate::sample::{Queue, Sample, Segment, Set};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, Instant};
use vshmem_base::error::Result;
use vshmem_ipc::{msg, sem, shm, stats, Ctx, Errno};
use vshmem_transport::PoolRef;

/// A pool's contents.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Contents {
    /// Its name, or its path if it has none.
    pub pool: String,
    /// Nothing of dead processes is left in it. Otherwise a live process holds a lock and makes no progress.
    pub clean: bool,
    /// The kernels that use it, or did.
    pub members: Vec<Member>,
    /// The processes that use it.
    pub processes: Vec<Process>,
    /// The threads that wait in it.
    pub waiters: Vec<Waiter>,
    /// Segments.
    pub segments: Vec<Segment>,
    /// The alignment of segments, in bytes: each takes whole multiples of it.
    pub segment_align: u64,
    /// Semaphore sets.
    pub sets: Vec<Set>,
    /// Message queues.
    pub queues: Vec<Queue>,
}

/// The IPC objects that are to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// By id.
    Id(Kind, i32),
    /// By key.
    Key(Kind, i32),
    /// Everything of a kind.
    All(Kind),
}

/// The three kinds of IPC object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory.
    Segment,
    /// Semaphores.
    Set,
    /// Messages.
    Queue,
}

impl Kind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Segment => "segment",
            Kind::Set => "semaphore set",
            Kind::Queue => "queue",
        }
    }
}

/// The longest wait for one lock. To recover a dead owner's lock takes some milliseconds, and longer on a
/// busy machine.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The longest wait for all locks together: a listing is worth no more of a user's time.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a pool. What dead processes have left is cleaned up first, as far as locks can be taken.
pub fn contents(pool: &PoolRef) -> Result<Contents> {
    let client = Client::join_within(pool, TIMEOUT)?;
    let c = client.context();
    let clean = clean_up(&c);
    let view = client.view();
    let processes = Processes::of(&view);
    let sample = Sample::of(&name_of(pool), None, &view, &processes);
    let Sample { pool, members, segments, sets, queues, waiters, .. } = sample;
    let segment_align = c.pool.segment_align();
    let processes = processes.all();
    Ok(Contents { pool, clean, members, processes, waiters, segments, segment_align, sets, queues })
}

/// Asks for the state of all IPC objects, which cleans up after dead processes. False if a lock could not be
/// taken.
fn clean_up(c: &Ctx<'_>) -> bool {
    let mut waited = Duration::ZERO;
    // False if a lock could not be taken, or the call ran out of its budget.
    let mut try_one = |stat: &dyn Fn() -> Option<Errno>| {
        if waited >= TOTAL_TIMEOUT {
            return false;
        }
        let asked = Instant::now();
        c.budget.renew();
        // An object that was just removed gives the same error, but at once.
        let is_stuck = stat() == Some(Errno::EIDRM) && (asked.elapsed() >= TIMEOUT || c.budget.is_spent());
        if is_stuck {
            waited += asked.elapsed();
        }
        !is_stuck
    };
    // Segments have one lock for all of them, sets and queues one for each.
    let mut indexes = 0..=shm::highest(c);
    let mut is_clean = indexes.all(|i| try_one(&|| shm::stat_index(c, i, true).err()));
    for index in 0..=sem::highest(c) {
        is_clean &= try_one(&|| sem::stat_index(c, index, true).err());
    }
    for index in 0..=msg::highest(c) {
        is_clean &= try_one(&|| msg::stat_index(c, index, true).err());
    }
    is_clean
}

/// Removes IPC objects from a pool. Returns a sentence for each that could not be removed.
pub fn remove(pool: &PoolRef, targets: &[Target]) -> Result<Vec<String>> {
    let client = Client::join(pool)?;
    let c = client.context();
    let mut failures = Vec::new();
    for &target in targets {
        let (kind, what, result) = match target {
            Target::Id(kind, id) => (kind, format!("with id {id}"), remove_id(&c, kind, id)),
            Target::Key(kind, key) => (kind, format!("with key {key:#010x}"), remove_key(&c, kind, key)),
            Target::All(kind) => {
                for id in ids(&client, kind) {
                    if let Err(error) = remove_id(&c, kind, id) {
                        failures.push(failure(kind, &format!("with id {id}"), error));
                    }
                }
                continue;
            }
        };
        if let Err(error) = result {
            failures.push(failure(kind, &what, error));
        }
    }
    Ok(failures)
}

fn failure(kind: Kind, what: &str, error: Errno) -> String {
    format!("could not remove the {} {what}: {}", kind.name(), error.text())
}

fn ids(client: &Client, kind: Kind) -> Vec<i32> {
    let mut ids = Vec::new();
    let (view, pool) = (client.view(), client.context().pool);
    let back = &mut view.back();
    match kind {
        Kind::Segment => stats::segments(pool, back, |seen| ids.push(seen.entry.id)),
        Kind::Set => stats::sets(pool, back, |seen| ids.push(seen.entry.id)),
        Kind::Queue => stats::queues(pool, back, |seen| ids.push(seen.entry.id)),
    }
    ids
}

fn remove_id(c: &Ctx<'_>, kind: Kind, id: i32) -> std::result::Result<(), Errno> {
    c.budget.refill();
    match kind {
        Kind::Segment => shm::remove(c, id),
        Kind::Set => sem::remove(c, id),
        Kind::Queue => msg::remove(c, id),
    }
}

fn remove_key(c: &Ctx<'_>, kind: Kind, key: i32) -> std::result::Result<(), Errno> {
    if key == vshmem_ipc::IPC_PRIVATE {
        // Private IPC objects can't be found by key.
        return Err(Errno::ENOENT);
    }
    let id = match kind {
        Kind::Segment => shm::get(c, key, 0, 0)?,
        Kind::Set => sem::get(c, key, 0, 0)?,
        Kind::Queue => msg::get(c, key, 0)?,
    };
    remove_id(c, kind, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_and_removed() {
        let path = format!("/dev/shm/vshmem-view-test-{}", std::process::id());
        crate::pools::create(&path, 4 << 20, 0o600, &[], crate::pools::Form::default()).unwrap();
        let pool = &crate::pools::find(Some(&path)).unwrap()[0];
        let client = Client::join(pool).unwrap();
        let c = client.context();
        let create = vshmem_ipc::IPC_CREAT | 0o640;
        let segment = shm::get(&c, 7, 5000, create).unwrap();
        let set = sem::get(&c, 8, 3, create).unwrap();
        let queue = msg::get(&c, 0, create).unwrap();
        let seen = contents(pool).unwrap();
        assert_eq!(seen.pool, path);
        assert_eq!(seen.members.len(), 1);
        let ids = (seen.segments[0].object.id, seen.sets[0].object.id, seen.queues[0].object.id);
        assert_eq!(ids, (segment, set, queue));
        assert_eq!((seen.segments[0].size, seen.segments[0].object.mode), (5000, 0o640));
        assert_eq!((seen.sets[0].count, seen.sets[0].object.key), (3, 8));
        let targets = [
            Target::Key(Kind::Segment, 7),
            Target::Id(Kind::Set, set),
            Target::All(Kind::Queue),
            Target::Key(Kind::Queue, 0),
        ];
        assert_eq!(remove(pool, &targets).unwrap().len(), 1);
        let seen = contents(pool).unwrap();
        assert!(seen.segments.is_empty() && seen.sets.is_empty() && seen.queues.is_empty());
        drop(client);
        crate::pools::remove(&path).unwrap();
    }
}
