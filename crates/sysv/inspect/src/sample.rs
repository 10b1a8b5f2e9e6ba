//! A pool at one moment, for displays: its members and contents, the traffic of its queues, and waiting
//! threads.
//!
//! It is read without a lock (`vshmem_ipc::stats`), so nobody waits for it, and nothing in it is trusted.

use crate::ids;
use crate::participants::{Member, Waiter};
use crate::pools::{name_of, octal};
use crate::processes::{Process, Processes};
use crate::rates::{Passed, Rates};
use crate::view::{OpenPool, View};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use vshmem_base::error::Result;
use vshmem_ipc::stats;
use vshmem_transport::{Origin, PoolRef};

/// `SHM_DEST` of <sys/shm.h>.
const REMOVED: u32 = 0o1000;

/// The fields that all IPC objects have.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Object {
    /// The id.
    pub id: i32,
    /// The key; 0: private.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// Permission bits, in octal.
    #[serde(serialize_with = "octal")]
    #[schemars(with = "String")]
    pub mode: u32,
    /// Threads that wait at it.
    pub waiting: u32,
    /// Last use, in seconds since the epoch; 0: never.
    pub used: i64,
}

/// A segment.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Segment {
    /// The fields that all IPC objects have.
    #[serde(flatten)]
    pub object: Object,
    /// Bytes.
    pub size: u64,
    /// Attachments.
    pub attached: u64,
    /// It is removed when the last attachment ends.
    pub removed: bool,
    /// The process that made it.
    pub creator: Option<Process>,
    /// The process that attached or detached last; null: none.
    pub last: Option<Process>,
}

/// A semaphore set.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Set {
    /// The fields that all IPC objects have.
    #[serde(flatten)]
    pub object: Object,
    /// Semaphores.
    pub count: u64,
}

/// A message queue.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Queue {
    /// The fields that all IPC objects have.
    #[serde(flatten)]
    pub object: Object,
    /// Messages in it.
    pub messages: u32,
    /// Bytes of text in it.
    pub bytes: u32,
    /// Limit of bytes in it.
    pub most: u64,
    /// The messages that were sent.
    pub sent: Passed,
    /// The messages that were received.
    pub received: Passed,
    /// The process that sent last; null: none.
    pub sender: Option<Process>,
    /// The process that received last; null: none.
    pub receiver: Option<Process>,
    /// Rates since the sample before; null: there is none.
    pub rates: Option<Rates>,
}

/// A pool at one moment.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Sample {
    /// Its name, or its path.
    pub pool: String,
    /// Time of the sample, in seconds since the epoch.
    pub time: f64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of it that are backed by memory; null in a machine, where that is not known.
    pub memory: Option<u64>,
    /// Bytes of all segments.
    pub segment_bytes: u64,
    /// Capacity for segments, in bytes.
    pub segment_room: u64,
    /// Semaphores of all sets.
    pub semaphores: u64,
    /// The back end's heartbeat, which it increments once a second; 0: there is none.
    #[serde(rename = "beat")]
    pub heartbeat: u64,
    /// The kernels that use it.
    pub members: Vec<Member>,
    /// Segments.
    pub segments: Vec<Segment>,
    /// Semaphore sets.
    pub sets: Vec<Set>,
    /// Queues.
    pub queues: Vec<Queue>,
    /// Threads that wait.
    pub waiters: Vec<Waiter>,
    /// Rates of all queues since the sample before.
    pub rates: Option<Rates>,
}

/// A pool that is open for sampling.
pub struct Watched {
    name: String,
    path: Option<PathBuf>,
    identity: Option<(u64, u64)>,
    open: OpenPool,
}

impl Watched {
    /// Opens a pool, without joining it.
    pub fn open(reference: &PoolRef) -> Result<Watched> {
        let path = reference.path().to_string_lossy().into_owned();
        let path = (reference.origin() != Origin::Device).then(|| PathBuf::from(path));
        let identity = path.as_deref().and_then(identity);
        Ok(Watched { name: name_of(reference), identity, path, open: OpenPool::open(reference)? })
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file was removed or replaced.
    pub fn is_gone(&self) -> bool {
        self.path.as_ref().is_some_and(|path| identity(path) != self.identity)
    }

    /// The kernels that use it.
    pub fn members(&self) -> Vec<Member> {
        self.open.view().members()
    }

    /// Its state now.
    pub fn sample(&self) -> Sample {
        let view = self.open.view();
        let memory = self.path.as_deref().and_then(memory);
        Sample::of(&self.name, memory, &view, &Processes::of(&view))
    }
}

impl Sample {
    /// The state of a pool of which so much is backed by memory, as far as that is known.
    pub(crate) fn of(name: &str, memory: Option<u64>, view: &View, processes: &Processes) -> Sample {
        let pool = view.pool;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let totals = stats::totals(pool);
        let waiters = view.waiters(processes);
        let mut at = HashMap::new();
        for waiter in &waiters {
            *at.entry((waiter.kind, waiter.id)).or_insert(0) += 1;
        }
        let waits = |kind, id| at.get(&(kind, id)).copied().unwrap_or(0);
        let (mut segments, mut sets, mut queues) = (Vec::new(), Vec::new(), Vec::new());
        let back = &mut view.back();
        stats::segments(pool, back, |seen| {
            segments.push(Segment {
                object: object(&seen.entry, 0, seen.used),
                size: seen.size,
                attached: seen.attached,
                removed: seen.entry.mode & REMOVED != 0,
                creator: processes.recorded(seen.creator),
                last: processes.recorded(seen.last),
            });
        });
        stats::sets(pool, back, |seen| {
            sets.push(Set {
                object: object(&seen.entry, waits("set", seen.entry.id), seen.used),
                count: seen.count,
            });
        });
        stats::queues(pool, back, |seen| {
            let used = seen.sent.used.max(seen.received.used);
            queues.push(Queue {
                object: object(&seen.entry, waits("queue", seen.entry.id), used),
                messages: seen.messages(),
                bytes: seen.bytes(),
                most: seen.most,
                sent: passed(&seen.sent, seen.handed),
                received: passed(&seen.received, seen.handed),
                sender: processes.recorded(seen.sent.last),
                receiver: processes.recorded(seen.received.last),
                rates: None,
            });
        });
        Sample {
            pool: name.into(),
            time: now.unwrap_or_default().as_secs_f64(),
            size: pool.mem().len() as u64,
            memory,
            segment_bytes: totals.segment_bytes,
            segment_room: totals.page_bytes,
            semaphores: totals.semaphores,
            heartbeat: pool.last_heartbeat().map_or(0, |(count, _)| count),
            members: view.members(),
            segments,
            sets,
            queues,
            waiters,
            rates: None,
        }
    }

    /// Fills in the rates since an earlier sample. Queues that are new have none, since counters start
    /// anywhere.
    pub fn compare(&mut self, before: &Sample) {
        let seconds = self.time - before.time;
        if seconds <= 0.0 {
            return;
        }
        let then: HashMap<i32, [Passed; 2]> =
            before.queues.iter().map(|q| (q.object.id, [q.sent, q.received])).collect();
        let mut all = Rates::default();
        for queue in &mut self.queues {
            if let Some(before) = then.get(&queue.object.id) {
                let rates = Rates::between(*before, [queue.sent, queue.received], seconds);
                all.add(&rates);
                queue.rates = Some(rates);
            }
        }
        self.rates = Some(all);
    }
}

/// Bytes of a file that are backed by memory.
fn memory(path: &Path) -> Option<u64> {
    Some(path.metadata().ok()?.blocks() * 512)
}

/// Device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = path.metadata().ok()?;
    Some((file.dev(), file.ino()))
}

fn object(entry: &stats::Entry, waiting: u32, used: i64) -> Object {
    Object {
        id: entry.id,
        key: entry.key,
        uid: ids::maps().users.inside(entry.uid),
        gid: ids::maps().groups.inside(entry.gid),
        mode: entry.mode & 0o777,
        waiting,
        used,
    }
}

/// The counters of an end, including messages that were handed over without entering the queue.
fn passed(end: &stats::End, (bytes, messages): (u32, u32)) -> Passed {
    Passed { messages: end.messages.wrapping_add(messages), bytes: end.bytes.wrapping_add(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::pools::find;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering::SeqCst;
    use vshmem_ipc::{msg, sem, shm};

    /// A pool in a file of its own, with an IPC object of each kind; the file goes with the value.
    struct Scene(String);

    impl Scene {
        fn new(name: &str) -> Scene {
            let path = format!("/dev/shm/vshmem-sample-{name}-{}", std::process::id());
            crate::pools::create(&path, 4 << 20, 0o600, &[], crate::pools::Form::default()).unwrap();
            let client = Client::join(&find(Some(&path)).unwrap()[0]).unwrap();
            let c = client.context();
            shm::get(&c, 7, 5000, 0o1600).unwrap();
            sem::get(&c, 7, 3, 0o1600).unwrap();
            msg::get(&c, 7, 0o1600).unwrap();
            c.pool.join([9; 16], b"a\x1b[31mb").unwrap();
            Scene(path)
        }

        fn watched(&self) -> Watched {
            Watched::open(&find(Some(&self.0)).unwrap()[0]).unwrap()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            crate::pools::remove(&self.0).unwrap();
        }
    }

    #[test]
    fn a_pool_whose_lock_is_held_is_sampled() {
        let scene = Scene::new("lock");
        let watched = scene.watched();
        watched.open.view().pool.root().lock.store(u32::MAX >> 1, SeqCst);
        let sample = watched.sample();
        let counts = (sample.segments.len(), sample.sets.len(), sample.queues.len());
        assert_eq!(counts, (1, 1, 1));
        assert_eq!(watched.open.view().pool.root().lock.load(SeqCst), u32::MAX >> 1, "it is left alone");
        let names: Vec<&str> = sample.members.iter().map(|member| &*member.name).collect();
        assert_eq!(names[1], "a?[31mb", "no commands for terminals");
        assert!(sample.members[0].here && !sample.members[1].here);
        assert_eq!(watched.members().len(), 2, "who looks does not join");
        std::fs::rename(&scene.0, format!("{}.x", scene.0)).unwrap();
        assert!(watched.is_gone());
        std::fs::rename(format!("{}.x", scene.0), &scene.0).unwrap();
        assert!(!watched.is_gone());
    }

    /// Nanoseconds of a processor that this thread has had: however busy this host is.
    fn processor_time() -> u64 {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        told.split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_corrupted_pool_is_sampled() {
        let scene = Scene::new("nonsense");
        let watched = scene.watched();
        let file = std::fs::File::options().write(true).open(&scene.0).unwrap();
        let mut state = 88172645463325252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..40 {
            // Small numbers lead further than large ones.
            let shift = [0, 20, 40, 50, 60][round % 5];
            let words: Vec<u8> = (0..(4 << 17) - 128).flat_map(|_| (next() >> shift).to_le_bytes()).collect();
            file.write_all_at(&words, 1024).unwrap();
            let begun = processor_time();
            let mut sample = watched.sample();
            sample.compare(&watched.sample());
            assert!(serde_json::to_string(&sample).is_ok());
            assert!(processor_time() - begun < 5_000_000_000, "it takes too long");
        }
    }
}
