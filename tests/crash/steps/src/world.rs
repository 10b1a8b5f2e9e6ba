//! A pool, and processes that run by turns on one thread, each on its own stack: so all of it, the sleepers
//! in the middle of their calls too, is copied by a fork. Time passes when nobody can run.

pub use crate::process::Process;
use crate::single::Single;
use crate::trap;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use libc::{c_void, ucontext_t};
use std::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use std::rc::Rc;
use std::time::Duration;
use vshmem_pool::{Mem, Params, Pool, Waited};

/// Bytes of a process's stack.
const STACK: usize = 512 << 10;
/// Nothing takes longer than this, in nanoseconds of the world's clock.
const MOST: u64 = 15_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// On a word (its address), until then.
    Asleep(usize, u64),
    /// For good.
    Stopped,
    Done,
}

/// What a process does.
pub struct Fiber {
    context: UnsafeCell<ucontext_t>,
    who: &'static Process,
    state: Cell<State>,
    woken: Cell<Waited>,
    body: RefCell<Option<Box<dyn FnOnce()>>>,
    /// Its stores are seen.
    stepped: Cell<bool>,
}

impl Fiber {
    fn sleeps_on(&self, word: &AtomicU32) -> bool {
        let here = core::ptr::from_ref(word) as usize;
        matches!(self.state.get(), State::Asleep(at, _) if at == here) && !self.who.is_dead()
    }
}

/// All of it.
pub struct World {
    pool: Pool,
    clock: AtomicU64,
    seconds: AtomicU32,
    pids: AtomicU32,
    fibers: RefCell<Vec<Rc<Fiber>>>,
    processes: RefCell<Vec<&'static Process>>,
    current: RefCell<Option<Rc<Fiber>>>,
    main: UnsafeCell<ucontext_t>,
    turn: Cell<usize>,
    /// Not 0: whose turn it is, chance decides.
    chance: Cell<u64>,
}

static WORLD: Single<OnceCell<World>> = Single(OnceCell::new());

/// The world.
pub fn world() -> &'static World {
    WORLD.get().get().expect("the world was made")
}

/// Makes the world: a fresh pool of `len` bytes. `before` and `after` are told of stores.
pub fn make(len: usize, params: &Params, before: fn(), after: fn(trap::Store)) {
    // SAFETY: fresh memory of this process alone.
    let base = unsafe {
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, how, -1, 0)
    };
    assert_ne!(base, libc::MAP_FAILED, "mmap");
    // SAFETY: mapped above, for good.
    let mem = unsafe { Mem::new(base.cast(), len) };
    Pool::format(mem, params).expect("a pool");
    let pool = Pool::open(mem).expect("a pool");
    // What segments hold is no part of the structure.
    let structure = pool.geometry().small.end() as usize;
    trap::set_up(base.cast(), structure, before, after);
    let made = World {
        pool,
        clock: AtomicU64::new(1 << 30),
        seconds: AtomicU32::new(1_700_000_000),
        pids: AtomicU32::new(100),
        fibers: RefCell::default(),
        processes: RefCell::default(),
        current: RefCell::new(None),
        // SAFETY: filled in by swapcontext before it is used.
        main: UnsafeCell::new(unsafe { core::mem::zeroed() }),
        turn: Cell::new(0),
        chance: Cell::new(0),
    };
    assert!(WORLD.get().set(made).is_ok(), "there is one world");
}

/// Something that a process does, and what comes of it.
pub struct Task<T> {
    fiber: Rc<Fiber>,
    result: Rc<RefCell<Option<T>>>,
}

impl<T> Task<T> {
    /// What came of it, if it is over.
    pub fn result(&self) -> Option<T> {
        self.result.borrow_mut().take()
    }

    /// Is it over?
    pub fn is_over(&self) -> bool {
        self.fiber.state.get() == State::Done
    }

    /// Lets everybody run until it is over.
    pub fn wait(self) -> T {
        let end = world().now() + MOST;
        world().run(|| self.is_over() || world().now() > end);
        self.result().unwrap_or_else(|| panic!("a call of process {} never ended", self.fiber.who.pid()))
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        if self.fiber.state.get() == State::Stopped {
            self.fiber.state.set(State::Ready);
        }
    }

    /// Does it sleep?
    pub fn sleeps(&self) -> bool {
        matches!(self.fiber.state.get(), State::Asleep(..))
    }
}

impl World {
    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// From now on chance decides who runs; 0: not any more.
    pub fn leave_to_chance(&self, seed: u64) {
        self.chance.set(seed);
    }

    /// A number below `n`, by chance.
    pub fn draw(&self, n: u64) -> u64 {
        let mut x = self.chance.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.chance.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n.max(1)
    }

    /// All processes that live.
    pub fn living(&self) -> Vec<&'static Process> {
        let all = self.processes.borrow();
        all.iter().copied().filter(|p| !p.is_dead()).collect()
    }

    /// Whose turn is it?
    fn next(&self) -> Option<Rc<Fiber>> {
        let fibers = self.fibers.borrow();
        let ready = |f: &&Rc<Fiber>| f.state.get() == State::Ready && !f.who.is_dead();
        let all: Vec<_> = fibers.iter().filter(ready).cloned().collect();
        if all.is_empty() {
            return None;
        }
        let turn = if self.chance.get() != 0 {
            self.draw(all.len() as u64) as usize
        } else {
            self.turn.set(self.turn.get().wrapping_add(1));
            self.turn.get()
        };
        Some(all[turn % all.len()].clone())
    }

    /// Lets the time pass until somebody's sleep is over. False: nobody sleeps.
    fn pass(&self) -> bool {
        let fibers = self.fibers.borrow();
        let asleep = fibers.iter().filter(|f| !f.who.is_dead());
        let until = |f: &Rc<Fiber>| match f.state.get() {
            State::Asleep(_, until) => Some(until),
            _ => None,
        };
        let Some((until, first)) =
            asleep.filter_map(|f| Some((until(f)?, f))).min_by_key(|(until, _)| *until)
        else {
            return false;
        };
        self.clock.fetch_max(until, Relaxed);
        first.woken.set(Waited::TimedOut);
        first.state.set(State::Ready);
        true
    }

    /// Lets some time pass though somebody could run: processors are taken away.
    fn pass_some(&self, nanoseconds: u64) {
        let now = self.clock.fetch_add(nanoseconds, Relaxed) + nanoseconds;
        for fiber in self.fibers.borrow().iter() {
            if matches!(fiber.state.get(), State::Asleep(_, until) if until <= now) {
                fiber.woken.set(Waited::TimedOut);
                fiber.state.set(State::Ready);
            }
        }
    }

    /// Lets everybody run until something is so, or nothing happens any more.
    pub fn run(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            if self.chance.get() != 0 && self.draw(40) == 0 {
                self.pass_some(self.draw(4_000_000));
            }
            match self.next() {
                Some(fiber) => self.switch_to(&fiber),
                None if self.pass() => {}
                None => return,
            }
        }
    }

    /// Lets everybody run until all sleep.
    pub fn rest(&self) {
        while let Some(fiber) = self.next() {
            self.switch_to(&fiber);
        }
    }

    fn switch_to(&self, fiber: &Rc<Fiber>) {
        *self.current.borrow_mut() = Some(fiber.clone());
        if fiber.stepped.get() {
            trap::arm();
        } else {
            trap::disarm();
        }
        // SAFETY: both contexts are of this thread; the fiber's was made, or saved when it left.
        unsafe { libc::swapcontext(self.main.get(), fiber.context.get()) };
        *self.current.borrow_mut() = None;
    }

    fn current(&self) -> Rc<Fiber> {
        self.current.borrow().clone().expect("calls are made by processes")
    }

    /// Who runs now.
    pub fn who(&self) -> &'static Process {
        self.current().who
    }

    /// The caller lets go of the processor.
    fn leave(&self, fiber: &Fiber, state: State) {
        fiber.state.set(state);
        // SAFETY: the main context was saved when this fiber was switched to.
        unsafe { libc::swapcontext(fiber.context.get(), self.main.get()) };
    }

    /// The caller sleeps on a word.
    pub fn sleep(&self, word: &AtomicU32, timeout: Option<Duration>) -> Waited {
        let fiber = self.current();
        fiber.woken.set(Waited::Woken);
        let until = timeout.map_or(u64::MAX, |t| self.now().saturating_add(t.as_nanos() as u64));
        self.leave(&fiber, State::Asleep(core::ptr::from_ref(word) as usize, until));
        fiber.woken.get()
    }

    /// Wakes so many of those who sleep on a word; returns how many there were.
    pub fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        let fibers = self.fibers.borrow();
        let sleepers = fibers.iter().filter(|f| f.sleeps_on(word)).take(n as usize);
        let wake = |f: &Rc<Fiber>| {
            f.woken.set(Waited::Woken);
            f.state.set(State::Ready);
        };
        sleepers.map(wake).count() as u32
    }

    /// Wakes everybody for no reason, as kernels may, and lets them run until all sleep.
    pub fn stir(&self) {
        for fiber in self.fibers.borrow().iter() {
            if matches!(fiber.state.get(), State::Asleep(..)) {
                fiber.woken.set(Waited::Woken);
                fiber.state.set(State::Ready);
            }
        }
        self.rest();
    }

    /// Does anybody sleep on a word?
    pub fn has_sleeper(&self, word: &AtomicU32) -> bool {
        self.fibers.borrow().iter().any(|f| f.sleeps_on(word))
    }

    /// The time in seconds: another one each time, so that times are stored, too.
    pub fn seconds(&self) -> i64 {
        i64::from(self.seconds.fetch_add(1, Relaxed))
    }

    /// The time in nanoseconds, which passes.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1000, Relaxed)
    }

    /// Takes a new process in; returns its pid.
    pub fn add(&self, process: &'static Process) -> u32 {
        self.processes.borrow_mut().push(process);
        self.pids.fetch_add(1, Relaxed)
    }

    /// Is the process with this pid dead?
    pub fn is_dead(&self, pid: u32) -> bool {
        let all = self.processes.borrow();
        all.iter().any(|p| p.pid() == pid && p.is_dead())
    }

    /// Lets others run, if they can.
    pub fn yield_now(&self) {
        let fiber = self.current();
        self.leave(&fiber, State::Ready);
    }

    /// Stops the caller for good, or until it is told to go on.
    pub fn stop(&self) {
        let fiber = self.current();
        self.leave(&fiber, State::Stopped);
    }
}

extern "C" fn enter() {
    let fiber = world().current();
    let body = fiber.body.borrow_mut().take().expect("something to do");
    body();
    world().leave(&fiber, State::Done);
    unreachable!("a fiber that is done does not run");
}

/// What processes do.
impl Process {
    /// Does something in it.
    pub fn start<T: 'static>(&'static self, body: impl FnOnce(&'static Process) -> T + 'static) -> Task<T> {
        let result = Rc::new(RefCell::new(None));
        let place = result.clone();
        let run = move || {
            let value = body(self);
            *place.borrow_mut() = Some(value);
        };
        let fiber = Rc::new(Fiber {
            // SAFETY: filled in below.
            context: UnsafeCell::new(unsafe { core::mem::zeroed() }),
            who: self,
            state: Cell::new(State::Ready),
            woken: Cell::new(Waited::Woken),
            body: RefCell::new(Some(Box::new(run))),
            stepped: Cell::new(false),
        });
        let context: *mut ucontext_t = fiber.context.get();
        // SAFETY: the structure, which points into itself, stays where it is; the stack is its own and never
        // given back.
        unsafe {
            assert_eq!(libc::getcontext(context), 0);
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let stack = libc::mmap(core::ptr::null_mut(), STACK, access, how, -1, 0);
            assert_ne!(stack, libc::MAP_FAILED, "mmap");
            (*context).uc_stack.ss_sp = stack.cast::<c_void>();
            (*context).uc_stack.ss_size = STACK;
            libc::makecontext(context, enter, 0);
        }
        world().fibers.borrow_mut().push(fiber.clone());
        Task { fiber, result }
    }

    /// The same, and its stores are seen.
    pub fn start_stepped<T: 'static>(
        &'static self,
        body: impl FnOnce(&'static Process) -> T + 'static,
    ) -> Task<T> {
        let task = self.start(body);
        task.fiber.stepped.set(true);
        task
    }
}
