//! The worker: the thread of an agent that works in one pool, as one of the pool's processes.
//!
//! Each pool has its own worker, and an agent's loop never looks at anything in a pool whose size a member
//! decides. So no pool's contents keep the agent from serving the others, answering, and ending in time. A
//! worker that does not finish soon is left behind when the agent ends, as if the agent had been killed.

use crate::joined_pool::{now, JoinedPool};
use crate::owned_handle::{OwnedHandle, SharedPool};
use crate::quarantine::{Change, Quarantine};
use crate::reaper::Reaper;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, Builder, JoinHandle};
use std::time::{Duration, Instant};
use vshmem_ipc::Ctx;

/// Time between passes.
const INTERVAL: Duration = Duration::from_secs(1);

/// The task of a worker in each pass, besides reaping.
pub trait Task: Send {
    /// Whether pages of the pool may be touched that were not touched before.
    fn has_memory(&self, _joined: &JoinedPool<OwnedHandle>) -> bool {
        true
    }
    /// Does the first part of a pass, once, if there is memory.
    fn tick(&mut self, _c: &Ctx) {}
    /// Does a further step of a pass, with a budget of its own. It is called until it returns false.
    fn step(&mut self, _c: &Ctx) -> bool {
        false
    }
}

/// No task: the worker only reaps.
impl Task for () {}

/// The way in which a worker ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerEnd {
    /// It gives its process slot back.
    Leave,
    /// The pool can't be read any more.
    Abandon,
}

/// The state that the thread and its owner share.
struct Control {
    end: Mutex<Option<WorkerEnd>>,
    ended: Condvar,
    /// The time since which the pool is in quarantine, in seconds since the epoch; 0: it is not.
    quarantined: AtomicU64,
}

/// A thread that works in a pool until it is asked to end, or this is dropped.
pub struct Worker {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the worker of a pool, which messages call `name`.
    pub fn start(joined: SharedPool, name: &str, task: impl Task + 'static) -> io::Result<Worker> {
        let control = Arc::new(Control {
            end: Mutex::new(None),
            ended: Condvar::new(),
            quarantined: AtomicU64::new(0),
        });
        let passes =
            Passes { control: control.clone(), joined, name: name.into(), reaper: Reaper::default(), task };
        let thread = Builder::new().name("worker".into());
        let thread = Some(thread.spawn(|| passes.run())?);
        Ok(Worker { control, thread })
    }

    /// The time since which the pool is in quarantine, in seconds since the epoch.
    pub fn quarantined(&self) -> Option<u64> {
        Some(self.control.quarantined.load(Relaxed)).filter(|since| *since != 0)
    }

    /// Asks the worker to end after its present step.
    pub fn stop(&self) {
        self.control.finish(WorkerEnd::Leave);
    }

    /// Waits for its end until a deadline. False: it has not ended.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        while self.thread.as_ref().is_some_and(|it| !it.is_finished()) {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(Duration::from_millis(1));
        }
        true
    }

    /// Ends the worker and waits: it gives its process slot back. To be called before the pool is detached.
    pub fn leave(self) {
        self.end(WorkerEnd::Leave);
    }

    /// Ends the worker and waits, when the pool was taken away and can't be read any more.
    pub fn abandon(self) {
        self.end(WorkerEnd::Abandon);
    }

    fn end(mut self, how: WorkerEnd) {
        self.control.finish(how);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Control {
    fn end(&self) -> MutexGuard<'_, Option<WorkerEnd>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, how: WorkerEnd) {
        self.end().get_or_insert(how);
        self.ended.notify_all();
    }

    /// Waits until a point in time, or until the worker is to end.
    fn wait_until(&self, due: Instant) {
        let mut end = self.end();
        while end.is_none() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.ended.wait_timeout(end, left);
            end = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One pass in a pool. True: it ran over budget, and was cut short.
pub fn pass(
    c: &Ctx,
    reaper: &mut Reaper,
    task: &mut impl Task,
    has_memory: bool,
    ends: impl Fn() -> bool,
) -> bool {
    if has_memory {
        reaper.reap(c);
        task.tick(c);
    }
    while !c.budget.is_spent() && !ends() {
        c.budget.renew();
        if !task.step(c) {
            break;
        }
    }
    c.budget.is_spent()
}

/// The passes of the thread.
struct Passes<T> {
    control: Arc<Control>,
    joined: SharedPool,
    name: String,
    reaper: Reaper,
    task: T,
}

impl<T: Task> Passes<T> {
    fn run(mut self) {
        let mut quarantine = Quarantine::default();
        while self.control.end().is_none() {
            let begun = Instant::now();
            if quarantine.admits(begun) {
                let over_budget = self.pass();
                if let Some(change) = quarantine.record(over_budget, Instant::now()) {
                    self.report(change);
                }
            }
            self.control.wait_until(begun + INTERVAL);
        }
        if *self.control.end() == Some(WorkerEnd::Abandon) {
            self.reaper.abandon();
        } else {
            self.reaper.leave(&self.joined.pool);
        }
    }

    /// One pass. True: it ran over budget, and was cut short.
    fn pass(&mut self) -> bool {
        let joined = &*self.joined;
        let Some(me) = self.reaper.ensure_slot(joined) else {
            return false;
        };
        let has_memory = self.task.has_memory(joined);
        let ends = || self.control.end().is_some();
        let c = joined.context(me);
        pass(&c, &mut self.reaper, &mut self.task, has_memory, ends)
    }

    fn report(&self, change: Change) {
        let name = &self.name;
        match change {
            Change::Begins(rest) => {
                self.control.quarantined.store(now(), Relaxed);
                eprintln!(
                    "vshmem agent: the pool {name} is in quarantine: cleaning up in it ran over budget again and again, which only a \
                     hostile or broken member can cause. Until that ends, what dead processes hold there is not released, and \
                     memory of removed segments is not given back; machines and programs go on. The next try is in {} seconds, \
                     and later ones ever less often. `vshmem check` reports what is wrong; revoke the pool from machines that \
                     you do not trust, or remove it",
                    rest.as_secs()
                );
            }
            Change::Ends => {
                self.control.quarantined.store(0, Relaxed);
                eprintln!("vshmem agent: the pool {name} is cleaned up again: its quarantine is over");
            }
        }
    }
}
