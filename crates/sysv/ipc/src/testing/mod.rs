//! A kernel for tests: a pool in plain memory, and processes that can be killed at any of their calls to the
//! kernel.
//!
//! A killed process stops where it is, for ever, with whatever it holds: its thread is never woken again.
//! That is what a `SIGKILL` between two instructions looks like to the others.

mod kernel;
mod memory;

use self::memory::Memory;
use crate::{Cred, Ctx, Pool, ProcId};
use core::time::Duration;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;
use std::vec::Vec;
use vshmem_pool::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};
use vshmem_pool::layout::PAGE;
use vshmem_pool::{Budget, Mem, Params};

/// No test waits longer than this for anything.
pub const LONGEST_TEST: Duration = Duration::from_secs(15);

/// The state that the processes of a test share.
struct Inner {
    pool: Pool,
    dead: Mutex<BTreeSet<u32>>,
    /// Something was woken, or somebody died.
    changed: Condvar,
    next_pid: AtomicU32,
    /// Whom the kernel says to be stopped; 0: nobody.
    stopped: AtomicU32,
    mapped: Mutex<BTreeSet<u64>>,
    /// The factor by which time passes faster than in reality.
    speed: AtomicU32,
    /// Waiters that were woken and not served: too early, or their record was somebody else's by then.
    early: AtomicU32,
    /// The number of times that memory can still be reserved.
    reservations: AtomicI64,
    /// Pages that were reserved.
    reserved: Mutex<BTreeSet<u64>>,
    /// Most bytes that were released at once.
    longest_release: AtomicU64,
    memory: Memory,
}

impl Inner {
    fn dead(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.dead.lock().unwrap()
    }
}

/// A pool, and the kernel that its processes run on.
#[derive(Clone)]
pub struct World(Arc<Inner>);

impl World {
    /// A fresh pool of `len` bytes.
    pub fn new(len: usize) -> World {
        World::with(len, &Params::default(), |_| {}).unwrap()
    }

    /// Somebody maps something by a source, or nobody does any more.
    pub fn map_by(&self, source: u64, is_mapped: bool) {
        let mut mapped = self.0.mapped.lock().unwrap();
        let _ = if is_mapped { mapped.insert(source) } else { mapped.remove(&source) };
    }

    /// A fresh pool that `scribble` may damage before it is opened.
    pub fn with(
        len: usize,
        params: &Params,
        scribble: impl FnOnce(Mem),
    ) -> Result<World, vshmem_pool::OpenError> {
        let memory = Memory::new(len);
        Pool::format(memory.mem(), params).unwrap();
        scribble(memory.mem());
        Ok(World(Arc::new(Inner {
            pool: Pool::open(memory.mem())?,
            dead: Mutex::new(BTreeSet::new()),
            changed: Condvar::new(),
            next_pid: AtomicU32::new(100),
            stopped: AtomicU32::new(0),
            mapped: Mutex::new(BTreeSet::new()),
            speed: AtomicU32::new(1),
            early: AtomicU32::new(0),
            reservations: AtomicI64::new(i64::MAX),
            reserved: Mutex::new(BTreeSet::new()),
            longest_release: AtomicU64::new(0),
            memory,
        })))
    }

    /// The number of waiters that were woken and had not been served.
    pub fn woken_early(&self) -> u32 {
        self.0.early.load(SeqCst)
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Lets time run faster, so that long waits are over soon.
    pub fn hurry(&self, times: u32) {
        self.0.speed.store(times, SeqCst);
    }

    /// Holds up those who give memory back, as long as the result lives.
    pub fn hold_releases(&self) -> impl Drop + '_ {
        self.0.reserved.lock().unwrap()
    }

    /// Sets the number of times that memory can be reserved from now on.
    pub fn reservations_left(&self, n: i64) {
        self.0.reservations.store(n, SeqCst);
    }

    /// Was there memory for all that was reserved?
    pub fn reservations_left_over(&self) -> bool {
        self.0.reservations.load(SeqCst) >= 0
    }

    /// The pages among these that hold something though they have never been reserved.
    pub fn written_unreserved(&self, pages: &BTreeSet<u64>) -> Vec<u64> {
        let reserved = self.0.reserved.lock().unwrap();
        let is_written = |page: &u64| {
            let word = |i: u64| self.0.pool.mem().word_anywhere(page * PAGE + i * 8).unwrap();
            (0..PAGE / 8).any(|i| word(i).load(SeqCst) != 0)
        };
        let unreserved = pages.difference(&reserved).copied();
        unreserved.filter(is_written).collect()
    }

    /// The number of pages of a range that have memory which somebody reserved and nobody has released.
    pub fn memory_of(&self, offset: u64, len: u64) -> usize {
        let reserved = self.0.reserved.lock().unwrap();
        let range = offset / PAGE..(offset + len).div_ceil(PAGE);
        reserved.range(range).count()
    }

    /// Most bytes that were released at once.
    pub fn longest_release(&self) -> u64 {
        self.0.longest_release.load(SeqCst)
    }

    /// Has nobody written beside the pool?
    pub fn is_untouched_outside(&self) -> bool {
        self.0.memory.are_margins_untouched()
    }

    /// A new process, unless the pool has no slot for it.
    pub fn try_process(&self) -> Option<Arc<Process>> {
        let mut process = self.newcomer();
        let member = self.0.pool.join([7; 16], b"test").ok()?;
        if member != 0 {
            // There is one kernel in tests; an enemy may have hidden that it is known already.
            return None;
        }
        process.id = process.claim()?;
        Some(Arc::new(process))
    }

    /// A process that is killed at its n-th call while it looks for a slot. False: it was not in the middle
    /// of that any more.
    pub fn dies_on_its_way_in(&self, n: u32) -> bool {
        let process = Arc::new(self.newcomer());
        process.kill_at_call(n);
        let died = process.start_with(|p| p.claim()).result_or_death().is_none();
        process.kill();
        died
    }

    /// A process that has no slot yet.
    fn newcomer(&self) -> Process {
        Process {
            world: self.0.clone(),
            id: ProcId { slot: 0, generation: 0 },
            pid: self.0.next_pid.fetch_add(1, SeqCst),
            cred: Mutex::new(Cred { uid: 1000, gid: 1000, caps: 0 }),
            calls_left: AtomicI64::new(i64::MAX),
            interrupted: AtomicBool::new(false),
            running: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
            in_machine: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            told: AtomicU64::new(u64::MAX),
            patience: AtomicI64::new(-1),
            meanwhile: Mutex::new(None),
        }
    }

    /// A new process.
    pub fn process(&self) -> Arc<Process> {
        self.try_process().expect("a free process slot")
    }
}

/// A process of the test, and the kernel as it sees it.
pub struct Process {
    world: Arc<Inner>,
    id: ProcId,
    pid: u32,
    cred: Mutex<Cred>,
    calls_left: AtomicI64,
    interrupted: AtomicBool,
    /// Threads that were started and have not ended.
    running: AtomicU32,
    /// Threads among these that sleep.
    asleep: AtomicU32,
    stopped: AtomicBool,
    signalled: AtomicBool,
    in_machine: AtomicBool,
    inside: AtomicBool,
    told: AtomicU64,
    patience: AtomicI64,
    meanwhile: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Process {
    /// The context that the library's calls need.
    pub fn ctx(&self) -> Ctx<'_> {
        Ctx {
            pool: &self.world.pool,
            kernel: self,
            me: self.id,
            pid: self.pid,
            namespace: 0,
            member: 0,
            budget: Budget::default(),
        }
    }

    /// Its slot.
    pub fn id(&self) -> ProcId {
        self.id
    }

    /// Its pid, as the calls return it.
    pub fn pid(&self) -> i32 {
        self.pid as i32
    }

    /// Changes who it is.
    pub fn set_cred(&self, cred: Cred) {
        *self.cred.lock().unwrap() = cred;
    }

    /// Kills it: now, or if it is in the middle of something, at its next call to the kernel.
    pub fn kill(&self) {
        self.world.dead().insert(self.pid);
        self.world.changed.notify_all();
    }

    /// Kills it at its n-th call to the kernel from now on; the first is 1.
    pub fn kill_at_call(&self, n: u32) {
        self.calls_left.store(n.into(), SeqCst);
    }

    /// Waits until all of its threads sleep.
    pub fn await_sleep(&self) {
        until("all of it sleeps", || {
            let _held = self.world.dead();
            self.asleep.load(SeqCst) == self.running.load(SeqCst)
        });
    }

    /// Stops it for ever as a debugger might, as soon as all of its threads sleep, so that none has a lock:
    /// it does nothing any more, but is not dead.
    pub fn stop(&self) {
        until("all of it sleeps", || {
            let _held = self.world.dead();
            let all_sleep = self.asleep.load(SeqCst) == self.running.load(SeqCst);
            self.stopped.store(all_sleep, SeqCst);
            all_sleep
        });
        self.world.changed.notify_all();
    }

    /// The kernel says that it is stopped, or that it is not any more.
    pub fn seems_stopped(&self, yes: bool) {
        let pid = if yes { self.pid } else { 0 };
        self.world.stopped.store(pid, SeqCst);
    }

    /// A signal waits until it does not block signals any more.
    pub fn signal(&self) {
        self.signalled.store(true, SeqCst);
    }

    /// Has it see the pool from now on as a device's memory, which it can't give back, and over which it does
    /// not rule.
    pub fn move_into_machine(&self) {
        self.in_machine.store(true, SeqCst);
    }

    /// It holds something that its own threads stand in line for, or lets that go.
    pub fn enter(&self, yes: bool) {
        self.inside.store(yes, SeqCst);
    }

    /// Has it know by itself from now on that every segment has so many bytes.
    pub fn was_told(&self, len: u64) {
        self.told.store(len, SeqCst);
    }

    /// Has it wait so many nanoseconds for a lock at the most from now on.
    pub fn hurry(&self, most: i64) {
        self.patience.store(most, SeqCst);
    }

    /// Has others do this each time that it leaves the processor to them; otherwise it never does.
    pub fn when_it_gives_way(&self, meanwhile: impl Fn() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    }

    /// Is it dead?
    pub fn is_dead(&self) -> bool {
        self.world.dead().contains(&self.pid)
    }

    /// Lets a signal handler run in it.
    pub fn interrupt(&self) {
        let _held = self.world.dead();
        self.interrupted.store(true, SeqCst);
        self.world.changed.notify_all();
    }

    /// Does something in a thread of this process.
    pub fn start<T: Send + 'static>(
        self: &Arc<Self>,
        body: impl FnOnce(&Ctx) -> T + Send + 'static,
    ) -> Task<T> {
        self.start_with(|process| body(&process.ctx()))
    }

    fn start_with<T: Send + 'static>(
        self: &Arc<Self>,
        body: impl FnOnce(&Process) -> T + Send + 'static,
    ) -> Task<T> {
        let (sender, result) = channel();
        let process = self.clone();
        process.running.fetch_add(1, SeqCst);
        thread::spawn(move || {
            let value = body(&process);
            process.running.fetch_sub(1, SeqCst);
            // The test may have lost interest.
            let _ = sender.send(value);
        });
        Task { result, process: self.clone() }
    }

    fn claim(&self) -> Option<ProcId> {
        crate::liveness::claim(&self.world.pool, self, 0, self.pid, 1, &mut |_| true)
    }

    /// Each call to the kernel begins here.
    fn call(&self) {
        if self.calls_left.fetch_sub(1, SeqCst) == 1 {
            self.kill();
        }
        if self.stopped.load(SeqCst) || self.is_dead() {
            stop_for_ever();
        }
    }
}

fn stop_for_ever() -> ! {
    loop {
        thread::park();
    }
}

/// Something that a process does.
pub struct Task<T> {
    result: Receiver<T>,
    process: Arc<Process>,
}

impl<T> Task<T> {
    /// The result of the task, which must not take longer than a test may.
    pub fn result(self) -> T {
        self.result.recv_timeout(LONGEST_TEST).expect("it came to an end")
    }

    /// The result of the task, or `None` if its process was killed on the way.
    pub fn result_or_death(self) -> Option<T> {
        let begin = Instant::now();
        while begin.elapsed() < LONGEST_TEST {
            if let Ok(value) = self.result.recv_timeout(Duration::from_millis(1)) {
                return Some(value);
            }
            if self.process.is_dead() {
                return None;
            }
        }
        panic!("it neither came to an end nor died");
    }

    /// Has it come to an end within this time?
    pub fn ends_within(&self, time: Duration) -> Option<T> {
        self.result.recv_timeout(time).ok()
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONGEST_TEST, "it never happened that {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
