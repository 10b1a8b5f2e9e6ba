//! The thread of an agent that works in one pool, as one of its processes.
//!
//! Each pool has one of its own, and no agent's loop looks at anything in a pool whose size a member decides: whatever lies in a pool, the
//! others are served, and the agent answers and ends in time. A thread that can't be waited for is left behind when the agent ends,
//! as if the agent had been killed.

use crate::kernel::{now, Below};
use crate::mapped::{Mapped, Shared};
use crate::quarantine::{News, Quarantine};
use crate::reaper::Reaper;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, Builder, JoinHandle};
use std::time::{Duration, Instant};
use vshmem_ipc::Ctx;

/// From turn to turn.
const SECOND: Duration = Duration::from_secs(1);

/// What an agent does in a pool besides cleaning up after the dead.
pub trait Duty: Send {
    /// May memory of the pool be touched that was not touched before?
    fn has_room(&self, _below: &Below<Mapped>) -> bool {
        true
    }
    /// Once a second, if there is room.
    fn tick(&mut self, _c: &Ctx) {}
    /// Afterwards, again and again until it is false: each time with a budget of its own.
    fn step(&mut self, _c: &Ctx) -> bool {
        false
    }
}

/// Nothing besides.
impl Duty for () {}

/// How a worker ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It gives its slot back.
    Leave,
    /// The pool can't be read any more.
    Forget,
}

struct Desk {
    end: Mutex<Option<End>>,
    ends: Condvar,
    /// Since when the pool is in quarantine, in seconds since the epoch; 0: it is not.
    quarantined: AtomicU64,
}

/// A thread that works in a pool until it is asked to end, or this is dropped.
pub struct Worker {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Begins to work in a pool, which is called `name` where something is said about it.
    pub fn start(below: Shared, name: &str, duty: impl Duty + 'static) -> io::Result<Worker> {
        let desk = Arc::new(Desk {
            end: Mutex::new(None),
            ends: Condvar::new(),
            quarantined: AtomicU64::new(0),
        });
        let turns = Turns {
            desk: desk.clone(),
            below,
            name: name.into(),
            reaper: Reaper::default(),
            duty,
        };
        let thread = Builder::new().name("worker".into());
        let thread = Some(thread.spawn(|| turns.run())?);
        Ok(Worker { desk, thread })
    }

    /// Since when the pool is in quarantine, in seconds since the epoch.
    pub fn quarantined(&self) -> Option<u64> {
        Some(self.desk.quarantined.load(Relaxed)).filter(|since| *since != 0)
    }

    /// Lets it finish what it is doing, and no more.
    pub fn ask_to_end(&self) {
        self.desk.finish(End::Leave);
    }

    /// Waits for its end until a deadline.
    pub fn has_ended_by(&self, deadline: Instant) -> bool {
        while self.thread.as_ref().is_some_and(|it| !it.is_finished()) {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(Duration::from_millis(1));
        }
        true
    }

    /// It gives its process slot back, and the pool is let go of: to be done before the pool is taken away.
    pub fn leave(self) {
        self.end(End::Leave);
    }

    /// The pool was taken away, and nothing of it can be read any more.
    pub fn forget(self) {
        self.end(End::Forget);
    }

    fn end(mut self, how: End) {
        self.desk.finish(how);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

impl Desk {
    fn end(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, how: End) {
        self.end().get_or_insert(how);
        self.ends.notify_all();
    }

    /// Waits until a moment, or until it is to end.
    fn wait_until(&self, due: Instant) {
        let mut end = self.end();
        while end.is_none() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.ends.wait_timeout(end, left);
            end = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What a process of the pool does there in a second. True: it was led astray, and cut short.
pub fn turn(
    c: &Ctx,
    reaper: &mut Reaper,
    duty: &mut impl Duty,
    has_room: bool,
    ends: impl Fn() -> bool,
) -> bool {
    if has_room {
        reaper.clean_up(c);
        duty.tick(c);
    }
    while !c.budget.is_spent() && !ends() {
        c.budget.renew();
        if !duty.step(c) {
            break;
        }
    }
    c.budget.is_spent()
}

struct Turns<D> {
    desk: Arc<Desk>,
    below: Shared,
    name: String,
    reaper: Reaper,
    duty: D,
}

impl<D: Duty> Turns<D> {
    fn run(mut self) {
        let mut quarantine = Quarantine::default();
        while self.desk.end().is_none() {
            let begun = Instant::now();
            if quarantine.admits(begun) {
                let astray = self.turn();
                if let Some(news) = quarantine.note(astray, Instant::now()) {
                    self.tell(news);
                }
            }
            self.desk.wait_until(begun + SECOND);
        }
        if *self.desk.end() == Some(End::Forget) {
            self.reaper.forget();
        } else {
            self.reaper.leave(&self.below.pool);
        }
    }

    /// What there is to do in a second. True: it was led astray, and cut short.
    fn turn(&mut self) -> bool {
        let below = &*self.below;
        let Some(me) = self.reaper.take_part(below) else {
            return false;
        };
        let room = self.duty.has_room(below);
        let ends = || self.desk.end().is_some();
        let c = below.context(me);
        turn(&c, &mut self.reaper, &mut self.duty, room, ends)
    }

    fn tell(&self, news: News) {
        let name = &self.name;
        match news {
            News::Begins(rest) => {
                self.desk.quarantined.store(now(), Relaxed);
                eprintln!(
                    "vshmem agent: the pool {name} is in quarantine: cleaning up in it came to no end, again and again, as only what a \
                     hostile or broken member has written can cause. What the dead hold there is not cleared away now, and memory of \
                     removed segments is not given back; machines and programs go on. It is tried again in {} seconds, and then ever \
                     less often. `vshmem check` tells what is wrong; take the pool away from whom you do not trust, or remove it",
                    rest.as_secs()
                );
            }
            News::Ends => {
                self.desk.quarantined.store(0, Relaxed);
                eprintln!(
                    "vshmem agent: the pool {name} is cleaned up again: its quarantine is over"
                );
            }
        }
    }
}
