//! Pools to begin with. They are made once, by threads that are stopped for good where a process sleeps or
//! was killed.

use super::kernel::{DEAD, LIVING, ME, STOPPED};
use super::lies::Names;
use super::memory::{self, Image};
use crate::input::Input;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;
use vshmem_ipc::sem::{Sembuf, SEM_UNDO};
use vshmem_ipc::{liveness, msg, sem, shm, Budget, Cred, Ctx, Kernel, Pool, ProcId, Waited, IPC_CREAT};
use vshmem_pool::{Mem, Params};

/// Of a pool, in bytes: the least that there is,
const SMALL: usize = 1 << 20;
/// and one with as many of everything as there may be by default, and room for the largest ring.
const LARGE: usize = 1 << 30;
/// The kernel that all processes are of.
pub const BOOT: [u8; 16] = [7; 16];

/// A pool, as it was at one moment, and is between inputs.
pub struct Scene {
    mem: Mem,
    pool: Pool,
    me: (ProcId, u16),
    ids: [i32; 4],
}

impl Scene {
    /// All of its memory.
    pub fn mem(&self) -> Mem {
        self.mem
    }

    /// The pool, opened when it was whole.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The honest process, and its kernel.
    pub fn me(&self) -> (ProcId, u16) {
        self.me
    }

    /// A set, two queues and a segment.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }
}

/// What the one does who is killed on the way.
const DEEDS: [fn(&Ctx, &[i32; 4]); 7] = [
    |_, _| (),
    |c, ids| done(sem::op(c, ids[0], &[undone(0, 3), op(1, 30)], None)),
    |c, ids| done(send(c, ids[1], 9, &[9; 500])),
    |c, ids| done(receive(c, ids[2], 1000, 0)),
    |c, ids| done(sem::remove(c, ids[0])),
    |c, _| done(shm::get(c, 9, 9000, IPC_CREAT | 0o600)),
    |c, ids| done(msg::remove(c, ids[1])),
];
/// He is killed at one of so many questions to his kernel.
const DEATHS: usize = 24;

/// The pool that the input wants.
pub fn choose(input: &mut Input) -> &'static Scene {
    static MADE: [[OnceLock<Scene>; DEATHS]; DEEDS.len()] =
        [const { [const { OnceLock::new() }; DEATHS] }; DEEDS.len()];
    static BIG: OnceLock<Scene> = OnceLock::new();
    static EMPTY: OnceLock<Scene> = OnceLock::new();
    let first = input.byte();
    if first >= 192 {
        return BIG.get_or_init(|| made(LARGE, large));
    }
    let which = usize::from(first) % (DEEDS.len() + 1);
    let Some(deed) = which.checked_sub(1) else {
        return EMPTY.get_or_init(|| made(SMALL, empty));
    };
    // The first deed is none, so it has one outcome.
    let death = if deed == 0 { 0 } else { input.below(DEATHS) };
    MADE[deed][death].get_or_init(|| made(SMALL, |mem, pool| full(mem, pool, DEEDS[deed], death as u32 + 1)))
}

/// A fresh pool of so many bytes, with which something was done.
fn made(len: usize, deeds: impl FnOnce(Mem, Pool) -> Scene) -> Scene {
    let mem = memory::oasis(len);
    let image = Image::begin(mem);
    Pool::format(mem, &Params::default()).expect("a pool");
    let scene = deeds(mem, Pool::open(mem).expect("the same"));
    image.show(mem);
    scene
}

fn empty(mem: Mem, pool: Pool) -> Scene {
    let me = Actor::new(pool, ME);
    Scene { me: (me.id, me.member), ids: [0; 4], mem, pool }
}

/// A pool that an enemy has worked at for long.
fn large(mem: Mem, pool: Pool) -> Scene {
    let scene = full(mem, pool, DEEDS[0], 1);
    let prepared = Names::of(mem).prepare();
    prepared.expect("room for very much");
    scene
}

/// Puts something of everything into a pool. Returns the member that has it.
pub fn furnish(mem: Mem, pool: Pool) -> u16 {
    full(mem, pool, DEEDS[0], 1).me.1
}

/// Something of everything, three who wait for each kind of thing, one of whom is dead and one stopped, and a
/// deed that was not brought to its end.
fn full(mem: Mem, pool: Pool, deed: fn(&Ctx, &[i32; 4]), death: u32) -> Scene {
    let me = Actor::new(pool, ME);
    let c = &me.ctx();
    let ids = [
        sem::get(c, 1, 3, IPC_CREAT | 0o666),
        msg::get(c, 1, IPC_CREAT | 0o666),
        msg::get(c, 2, IPC_CREAT | 0o666),
        shm::get(c, 1, 5000, IPC_CREAT | 0o666),
    ]
    .map(|id| id.expect("an IPC object"));
    shm::attach(c, ids[3], 0).expect("attached");
    sem::op(c, ids[0], &[undone(0, 5), undone(2, 1)], None).expect("done");
    let others = [LIVING, DEAD, STOPPED].map(|pid| Actor::new(pool, pid));
    for other in &others {
        let c = &other.ctx();
        sem::op(c, ids[0], &[undone(0, 5)], None).expect("done");
        shm::attach(c, ids[3], 0).expect("attached");
    }
    while send(c, ids[2], 3, &[3; 700]).is_ok() {}
    for other in &others {
        other.until_it_stops(move |c| done(sem::op(c, ids[0], &MANY, None)));
        other.until_it_stops(move |c| done(receive(c, ids[1], 1000, 9)));
        // SAFETY: an array.
        other.until_it_stops(move |c| unsafe { done(msg::send(c, ids[2], 1, [0u8; 700].as_ptr(), 700, 0)) });
    }
    send(c, ids[1], 1, &[1; 300]).expect("sent");
    send(c, ids[1], 2, b"short").expect("sent");
    let [_, dead, _] = others;
    dead.dies_at(death).until_it_stops(move |c| deed(c, &ids));
    Scene { me: (me.id, me.member), ids, mem, pool }
}

/// Operations that must wait, on more semaphores than a record has room for, and on one.
pub const MANY: [Sembuf; 22] = [undone(1, -1); 22];

/// An operation.
pub const fn op(num: u16, op: i16) -> Sembuf {
    Sembuf { num, op, flg: 0 }
}

/// One that is undone.
pub const fn undone(num: u16, op: i16) -> Sembuf {
    let flg = SEM_UNDO;
    Sembuf { num, op, flg }
}

/// What came of a call is no matter here.
fn done<T>(_: T) {}

/// `msgsnd`, at once or not at all.
fn send(c: &Ctx, id: i32, kind: i64, text: &[u8]) -> Result<(), vshmem_ipc::Errno> {
    // SAFETY: the text has so many bytes.
    unsafe { msg::send(c, id, kind, text.as_ptr(), text.len(), vshmem_ipc::IPC_NOWAIT) }
}

/// `msgrcv`.
fn receive(c: &Ctx, id: i32, cap: usize, kind: i64) -> Result<(), vshmem_ipc::Errno> {
    let mut text = vec![0; cap];
    // SAFETY: the buffer has so many bytes.
    unsafe { msg::receive(c, id, text.as_mut_ptr(), cap, kind, 0) }.map(drop)
}

/// A process that is there while a scene is made, and its kernel.
#[derive(Clone)]
struct Actor {
    pool: Pool,
    id: ProcId,
    member: u16,
    pid: u32,
    /// Questions until it is killed.
    left: u32,
}

impl Actor {
    fn new(pool: Pool, pid: u32) -> Actor {
        let member = pool.join(BOOT, b"fuzz").expect("a member");
        let asked = Stage::new(pool, u32::MAX, None);
        let id = liveness::claim(&pool, &asked, member, pid, 1, &mut |_| true).expect("a slot");
        let left = u32::MAX;
        Actor { pool, id, member, pid, left }
    }

    fn dies_at(self, left: u32) -> Actor {
        Actor { left, ..self }
    }

    /// For calls that come to an end.
    fn ctx(&self) -> Ctx<'static> {
        self.on(Box::leak(Box::new(Stage::new(self.pool, u32::MAX, None))))
    }

    fn on(&self, kernel: &'static dyn Kernel) -> Ctx<'static> {
        Ctx {
            // A copy for good: threads that are stopped have it, too.
            pool: Box::leak(Box::new(self.pool)),
            kernel,
            me: self.id,
            pid: self.pid,
            namespace: 0,
            member: self.member,
            budget: Budget::default(),
        }
    }

    /// Does something, in a thread of its own, until it is over, sleeps or is killed.
    fn until_it_stops(&self, deed: impl FnOnce(&Ctx) + Send + 'static) {
        let (stopped, hear) = channel();
        let actor = self.clone();
        thread::spawn(move || {
            let over = stopped.clone();
            let stage = Stage::new(actor.pool, actor.left, Some(stopped));
            deed(&actor.on(Box::leak(Box::new(stage))));
            let _ = over.send(());
        });
        hear.recv_timeout(Duration::from_secs(60)).expect("it stops");
    }
}

/// The kernel while a scene is made: who sleeps without an end, or is killed, is stopped for good.
struct Stage {
    pool: Pool,
    left: AtomicU32,
    stopped: Mutex<Option<Sender<()>>>,
}

impl Stage {
    fn new(pool: Pool, left: u32, stopped: Option<Sender<()>>) -> Stage {
        Stage { pool, left: AtomicU32::new(left), stopped: Mutex::new(stopped) }
    }

    fn asked(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            self.stop();
        }
    }

    fn stop(&self) -> ! {
        if let Ok(mut stopped) = self.stopped.lock() {
            let _ = stopped.take().map(|s| s.send(()));
        }
        loop {
            thread::park();
        }
    }
}

impl Kernel for Stage {
    fn alive(&self, _slot: u32, _pid: u32, _started: u64) -> bool {
        self.asked();
        true
    }
    fn block_signals(&self) -> u64 {
        self.asked();
        0
    }
    fn restore_signals(&self, _old: u64) {
        self.asked();
    }
    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.asked();
        self.pool.mem().range(offset, len).is_some()
    }
    fn release(&self, offset: u64, len: u64) -> bool {
        self.asked();
        self.pool.mem().zero(offset, len)
    }
    fn available_memory(&self) -> Option<u64> {
        Some(self.pool.mem().len() as u64)
    }
    fn now(&self) -> i64 {
        self.asked();
        1_700_000_000
    }
    fn monotonic(&self) -> u64 {
        self.asked();
        1 << 40
    }
    fn cred(&self) -> Cred {
        self.asked();
        Cred { uid: 1000, gid: 1000, caps: 0 }
    }
    fn in_group(&self, gid: u32) -> bool {
        gid == 1000
    }
    fn wait(&self, word: &AtomicU32, expected: u32, _timeout: Option<Duration>) -> Waited {
        self.asked();
        if word.load(SeqCst) != expected {
            return Waited::Woken;
        }
        self.stop()
    }
    fn wake(&self, _word: &AtomicU32, _n: u32) -> u32 {
        self.asked();
        0
    }
}
