//! Statistics of a pool, seen from outside: what lies in it, how much has passed, which threads wait. For
//! displays and metrics.
//!
//! Nothing here takes a lock, changes anything or waits, so nobody is held up; what changes meanwhile may be
//! seen half. Nothing that is read is believed: counts are cut at what there is room for, lists end after as
//! many steps as there are records. Before tables are looked at, `back` (offset, length) is asked to see to
//! their memory: touching what has none could end the process.

use crate::{member_of, msg, pid_of, pid_word_in};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::heap::Reserve;
use vshmem_pool::layout::{Head, Kind, MsgEnd, Proc, Waiter, HEAD_DYING, WAITING};
use vshmem_pool::{Pool, ProcId};

/// A process of a kernel, as records name it. Pid 0: nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The process's kernel, as an index into the member table.
    pub member: u16,
    /// The process's pid there.
    pub pid: i32,
    /// The number of that kernel's PID and time name spaces in which the pid holds; 0: that is not known.
    pub namespace: u32,
}

impl Who {
    /// The process that a pid word names.
    fn of(word: u64) -> Who {
        Who { member: member_of(word), pid: pid_of(word), namespace: (word >> 32) as u32 }
    }
}

/// The fields that all IPC objects have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's index among those of its kind.
    pub index: u32,
    /// Id.
    pub id: i32,
    /// Key, 0: private.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permissions, and for segments `SHM_DEST` and `SHM_LOCKED`.
    pub mode: u32,
}

/// A segment. Times are seconds since the epoch, 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The fields that all IPC objects have.
    pub entry: Entry,
    /// Bytes asked for.
    pub size: u64,
    /// Attachments.
    pub attached: u64,
    /// The process that made it.
    pub creator: Who,
    /// The process that attached or detached last.
    pub last: Who,
    /// The time of the last attach or detach.
    pub used: i64,
}

/// A semaphore set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// The fields that all IPC objects have.
    pub entry: Entry,
    /// Semaphores.
    pub count: u64,
    /// Last `semop`.
    pub used: i64,
}

/// Messages that have passed an end of a queue since it was made, modulo 2^32, and the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Bytes of text.
    pub bytes: u32,
    /// Messages.
    pub messages: u32,
    /// The process that used it last.
    pub last: Who,
    /// The time of the last use.
    pub used: i64,
}

/// A message queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The fields that all IPC objects have.
    pub entry: Entry,
    /// Most bytes of text in it.
    pub most: u64,
    /// Messages that were sent.
    pub sent: End,
    /// Messages that were received.
    pub received: End,
    /// Bytes and messages that senders handed to waiting receivers, modulo 2^32, which neither end counts.
    pub handed: (u32, u32),
}

impl Queue {
    /// Bytes of text in it.
    pub fn bytes(&self) -> u32 {
        self.sent.bytes.wrapping_sub(self.received.bytes)
    }

    /// Messages in it.
    pub fn messages(&self) -> u32 {
        self.sent.messages.wrapping_sub(self.received.messages)
    }
}

/// The aim of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A value of a semaphore with which an operation can be done.
    Operation {
        /// The semaphore.
        number: u16,
        /// The number that is added; 0: the operation waits for the value 0.
        add: i16,
    },
    /// A message of this type, as `msgrcv` takes it.
    Message(i64),
    /// A message of any other type than this (`MSG_EXCEPT`).
    OtherMessage(i64),
    /// Space for so many bytes.
    Space(u64),
}

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeper {
    /// The thread's process slot.
    pub process: ProcId,
    /// The thread's process.
    pub who: Who,
    /// The kind of the object that it waits at: a set or a queue.
    pub kind: Kind,
    /// The id of that object.
    pub id: i32,
    /// The aim of the wait.
    pub wanted: Wanted,
    /// The time since which it waits, in seconds since the epoch; 0: that is not known.
    pub since: i64,
}

/// Counts of a pool as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments, sets, queues.
    pub objects: [u64; 3],
    /// Semaphores of all sets.
    pub semaphores: u64,
    /// Bytes of all segments, in whole pages.
    pub segment_bytes: u64,
    /// Bytes that segments can have.
    pub page_bytes: u64,
    /// Bytes for all else that have memory.
    pub small_bytes: u64,
}

/// Counts of a pool as a whole.
pub fn totals(pool: &Pool) -> Totals {
    let geometry = pool.geometry();
    let kind = |kind| pool.kind_root(kind);
    let used = |k| kind(k).used.load(Relaxed).min(pool.capacity(k).into());
    let (_, all_pages) = pool.pages_for_segments();
    let pages = kind(Kind::Shm).total.load(Relaxed).min(all_pages.into());
    let small = u64::from(geometry.small.count) * geometry.small.block();
    Totals {
        objects: Kind::ALL.map(used),
        semaphores: kind(Kind::Sem).total.load(Relaxed),
        segment_bytes: pages * geometry.pages.block(),
        page_bytes: u64::from(all_pages) * geometry.pages.block(),
        small_bytes: pool.root().small_backed.load(Relaxed).min(small),
    }
}

/// Entries of a kind that were ever used, if they have memory.
pub(crate) fn entries(pool: &Pool, kind: Kind, back: &mut Reserve) -> u32 {
    let high = pool.kind_root(kind).high.load(Relaxed).min(pool.capacity(kind).into());
    let (table, _) = pool.geometry().entries[kind as usize];
    if high > 0 && !back(table, high * kind.entry_size()) {
        return 0;
    }
    high as u32
}

fn entry(head: &Head, index: u32) -> Option<Entry> {
    let id = head.id.load(Acquire) as i32;
    let dying = head.flags.load(Relaxed) & HEAD_DYING != 0;
    (id != 0 && !dying).then(|| Entry {
        index,
        id,
        key: head.key.load(Relaxed) as i32,
        uid: head.uid.load(Relaxed),
        gid: head.gid.load(Relaxed),
        mode: head.mode.load(Relaxed),
    })
}

/// Calls `each` with every segment.
pub fn segments(pool: &Pool, back: &mut Reserve, mut each: impl FnMut(Segment)) {
    for index in 0..entries(pool, Kind::Shm, back) {
        let Some(shm) = pool.shm(index) else { return };
        let Some(entry) = entry(&shm.head, index) else {
            continue;
        };
        each(Segment {
            entry,
            size: shm.size.load(Relaxed),
            attached: shm.nattch.load(Relaxed),
            creator: Who::of(shm.cpid.load(Relaxed)),
            last: Who::of(shm.lpid.load(Relaxed)),
            used: shm.atime.load(Relaxed).max(shm.dtime.load(Relaxed)),
        });
    }
}

/// Calls `each` with every semaphore set.
pub fn sets(pool: &Pool, back: &mut Reserve, mut each: impl FnMut(Set)) {
    for index in 0..entries(pool, Kind::Sem, back) {
        let Some(sem) = pool.sem(index) else { return };
        let Some(entry) = entry(&sem.head, index) else {
            continue;
        };
        each(Set { entry, count: sem.nsems.load(Relaxed), used: sem.otime.load(Relaxed) });
    }
}

fn end(end: &MsgEnd) -> End {
    // The halves may be of two moments; a look does not take the line away from those who use it.
    End {
        bytes: (end.at.lo.load(Acquire) >> 32) as u32,
        messages: end.at.hi.load(Relaxed) as u32,
        last: Who::of(end.pid.load(Relaxed)),
        used: end.time.load(Relaxed),
    }
}

/// Calls `each` with every queue.
pub fn queues(pool: &Pool, back: &mut Reserve, mut each: impl FnMut(Queue)) {
    for index in 0..entries(pool, Kind::Msg, back) {
        let Some(msg) = pool.msg(index) else { return };
        let Some(entry) = entry(&msg.head, index) else {
            continue;
        };
        // Received first: so never more was received than sent.
        let received = end(&msg.receive);
        let handed = msg.receive.finished.load(Relaxed);
        each(Queue {
            entry,
            most: msg.qbytes.load(Relaxed),
            sent: end(&msg.send),
            received,
            handed: ((handed >> 32) as u32, handed as u32),
        });
    }
}

/// Process slots that were ever used, if they have memory.
fn slots(pool: &Pool, back: &mut Reserve) -> u32 {
    let (table, _) = pool.geometry().procs;
    let high = pool.root().proc_high.load(Acquire).min(pool.proc_slots());
    let len = u64::from(high) * size_of::<Proc>() as u64;
    if high > 0 && back(table, len) {
        high
    } else {
        0
    }
}

/// Calls `each` with every process that has a slot; it may be dead. Those of Vshmem's own, which look at the
/// pool or attend to it, note no start, and are left out.
pub fn processes(pool: &Pool, back: &mut Reserve, mut each: impl FnMut(ProcId, Who)) {
    for slot in 0..slots(pool, back) {
        let Some(p) = pool.proc(slot).filter(|p| p.started.load(Acquire) != 0) else {
            continue;
        };
        if let Some((id, member, pid)) = pool.process(slot) {
            each(id, Who::of(pid_word_in(p, member, pid)));
        }
    }
}

/// Calls `each` with every thread that waits, IPC object by object, in the order in which they stand there.
pub fn sleepers(pool: &Pool, back: &mut Reserve, mut each: impl FnMut(Sleeper)) {
    let high = pool.root().waiter_high.load(Acquire).min(pool.geometry().waiters.1);
    let len = size_of::<Waiter>() as u64 * u64::from(high);
    let procs = slots(pool, back);
    if high == 0 || procs == 0 || !back(pool.geometry().waiters.0, len) {
        return;
    }
    let mut walk = Walk { pool, high, procs, steps: high };
    for index in 0..entries(pool, Kind::Sem, back) {
        let Some(sem) = pool.sem(index) else { break };
        let Some(entry) = entry(&sem.head, index) else {
            continue;
        };
        let wanted = |w: &Waiter, back: &mut Reserve| operation(pool, w, back);
        walk.queue(sem.first_waiter.load(Acquire), (Kind::Sem, entry), back, wanted, &mut each);
    }
    for index in 0..entries(pool, Kind::Msg, back) {
        let Some(msg) = pool.msg(index) else { break };
        let Some(entry) = entry(&msg.head, index) else {
            continue;
        };
        let message = |w: &Waiter, _: &mut Reserve| Some(message(w));
        let space = |w: &Waiter, _: &mut Reserve| Some(Wanted::Space(w.message().len.load(Relaxed)));
        walk.queue(msg.first_receiver.load(Acquire), (Kind::Msg, entry), back, message, &mut each);
        walk.queue(msg.first_sender.load(Acquire), (Kind::Msg, entry), back, space, &mut each);
    }
}

/// A walk through queues of waiters, which together have no more steps than there are records.
struct Walk<'a> {
    pool: &'a Pool,
    high: u32,
    procs: u32,
    steps: u32,
}

impl Walk<'_> {
    fn queue(
        &mut self,
        mut link: u64,
        (kind, entry): (Kind, Entry),
        back: &mut Reserve,
        wanted: impl Fn(&Waiter, &mut Reserve) -> Option<Wanted>,
        each: &mut impl FnMut(Sleeper),
    ) {
        while let Some(index) = link.checked_sub(1).filter(|index| *index < self.high.into()) {
            let Some(waiter) = self.pool.waiter(index as u32) else {
                return;
            };
            let here = waiter.object.load(Acquire) == kind.reference(entry.index);
            if self.steps == 0 || !here || waiter.status.load(Acquire) != WAITING {
                return;
            }
            self.steps -= 1;
            if let (Some((process, who)), Some(wanted)) = (self.owner(waiter), wanted(waiter, back)) {
                each(Sleeper { process, who, kind, id: entry.id, wanted, since: waiter.since.load(Relaxed) });
            }
            link = waiter.next.load(Acquire);
        }
    }

    fn owner(&self, waiter: &Waiter) -> Option<(ProcId, Who)> {
        let owner = ProcId::of_word(waiter.owner.load(Acquire)).filter(|o| o.slot < self.procs)?;
        let (now, member, pid) = self.pool.process(owner.slot)?;
        let who = Who::of(pid_word_in(self.pool.proc(owner.slot)?, member, pid));
        (now == owner).then_some((owner, who))
    }
}

/// The message that a waiting receiver wants.
fn message(waiter: &Waiter) -> Wanted {
    let wanted = waiter.message();
    let kind = wanted.kind.load(Relaxed) as i64;
    let but = wanted.flags.load(Relaxed) & msg::MSG_EXCEPT as u64 != 0;
    if but && kind > 0 {
        Wanted::OtherMessage(kind)
    } else {
        Wanted::Message(kind)
    }
}

/// The operation that keeps a waiter of a set waiting.
fn operation(pool: &Pool, waiter: &Waiter, back: &mut Reserve) -> Option<Wanted> {
    let semop = waiter.semop();
    let at = semop.blocked.load(Relaxed) as u32 as usize;
    let word = if semop.count.load(Relaxed) <= waiter.ops.len() as u64 {
        waiter.ops.get(at)?.load(Relaxed)
    } else {
        let offset = semop.at.load(Relaxed).checked_add(at as u64 * 8)?;
        let word = pool.mem().word(offset)?;
        back(offset, 8).then(|| word.load(Relaxed))?
    };
    Some(Wanted::Operation { number: word as u16, add: (word >> 16) as i16 })
}
