//! Scenes: a few processes that use a pool at the same time, in every order.
//!
//! What runs is the code that is shipped. The words that processes share are loom's ([`execution`]), so each
//! order of their operations is played, and each old value that a load may yet return is returned, up to a
//! bound of preemptions: a thread goes on until it waits, but for so many times. Races of three that take
//! more are not seen. Where somebody dies, each of its changes is once the one that it does not come to.
//!
//! A scene begins with a pool as one process after the other has left it ([`World`]); its acts are played
//! ([`Scene::check`]); then a process that is left looks whether all is as it must be.
//!
//! `MODEL_LOG=1` shows the operations of the run that failed.

pub mod execution;
mod kernel;
mod life;
mod place;
mod turn;
mod world;

use execution::{Execution, Known};
pub use kernel::Process;
pub use life::kill;
use life::Life;
use loom::model::Builder;
use std::boxed::Box;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;
pub use world::World;

use crate::Ctx;

/// Words of a thread's stack.
const STACK: usize = 0x8000;
/// Most operations in a run, where nothing goes wrong.
const LONGEST: usize = 20_000;

/// An act: the work of a process.
pub type Act<T> = Box<dyn Fn(&Ctx) -> T + Send + Sync>;
/// The result of an act, unless the process died on the way.
pub type Outcome<T> = Option<T>;

/// A check of the world and of all outcomes.
type After<T> = Box<dyn Fn(&World, Vec<Outcome<T>>) + Send + Sync>;

/// A scene.
pub struct Scene<T> {
    world: World,
    acts: Vec<Act<T>>,
    after: After<T>,
}

/// The calling actor has come to its end, and its process is dead.
pub fn exit() {
    if let Some(life) = execution::life() {
        life.kill(turn::actor());
    }
}

/// The panic of a run that has found words that were not known.
struct UnknownWords;

/// Held by the one scene that is played at a time: what a process remembers of a pool, all tests share.
static STAGE: Mutex<()> = Mutex::new(());

/// A scene under check, as its runs share it.
struct Check<T> {
    scene: Scene<T>,
    known: Mutex<Known>,
    fate: Mutex<Option<(usize, u32)>>,
    struck: Mutex<bool>,
    runs: Mutex<u64>,
}

impl<T: Send + 'static> Scene<T> {
    /// In this world, processes do this at the same time: the first does the first, and so on. `after` sees
    /// the outcome of each.
    pub fn new(
        world: World,
        acts: Vec<Act<T>>,
        after: impl Fn(&World, Vec<Outcome<T>>) + Send + Sync + 'static,
    ) -> Scene<T> {
        Scene { world, acts, after: Box::new(after) }
    }

    fn begin(self) -> Arc<Check<T>> {
        Arc::new(Check {
            scene: self,
            known: Mutex::default(),
            fate: Mutex::default(),
            struck: Mutex::default(),
            runs: Mutex::default(),
        })
    }

    /// Plays it in every order that has so many preemptions at the most.
    pub fn check(self, preemptions: usize) {
        self.begin().play(preemptions, None);
    }

    /// Plays it in every order, once for each change that a process makes to the pool: before that it dies.
    pub fn check_deaths(self, of: usize, preemptions: usize) {
        let check = self.begin();
        let deaths = (0..).take_while(|change| check.play(preemptions, Some((of + 1, *change)))).count();
        assert!(deaths > 0, "it makes no change");
    }
}

impl<T: Send + 'static> Check<T> {
    /// Whether fate has struck.
    fn play(self: &Arc<Self>, preemptions: usize, fate: Option<(usize, u32)>) -> bool {
        let _stage = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
        *self.fate.lock().unwrap() = fate;
        *self.struck.lock().unwrap() = false;
        *self.runs.lock().unwrap() = 0;
        for bound in 0..=preemptions {
            let begun = std::time::Instant::now();
            while !self.play_all(bound) {}
            let (runs, words) = (self.runs.lock().unwrap(), self.known.lock().unwrap().len());
            std::eprintln!(
                "{preemptions}/{bound}: {runs} runs, {words} words, {fate:?}, {:?}",
                begun.elapsed()
            );
        }
        *self.struck.lock().unwrap()
    }

    /// False: to be played again, with all words that are known now.
    fn play_all(self: &Arc<Self>, bound: usize) -> bool {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(bound);
        builder.max_branches = LONGEST;
        let runner = self.clone();
        let result = catch_unwind(AssertUnwindSafe(|| builder.check(move || runner.run())));
        let Err(failure) = result else {
            return true;
        };
        let log = Execution::log();
        if !self.learn() {
            if !log.is_empty() {
                std::eprintln!("{log}");
            }
            resume_unwind(failure);
        }
        false
    }

    /// Ends a run; whether there were words that were not known.
    fn learn(&self) -> bool {
        let found = Execution::end();
        let learns = !found.is_empty();
        execution::learn(&mut self.known.lock().unwrap(), found);
        learns
    }

    fn run(self: &Arc<Self>) {
        *self.runs.lock().unwrap() += 1;
        let (world, acts) = (&self.scene.world, &self.scene.acts);
        let fate = *self.fate.lock().unwrap();
        (world.forget)();
        let life = Life::new(acts.len(), world.dead);
        Execution::begin(world.memory(), &self.known.lock().unwrap(), fate, life);
        let threads: Vec<_> = (0..acts.len()).map(|actor| self.spawn(move |me| me.act(actor))).collect();
        let outcomes = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        Execution::alone();
        self.spawn(move |me| (me.scene.after)(&me.scene.world, outcomes)).join().unwrap();
        if Execution::has_found() {
            resume_unwind(Box::new(UnknownWords));
        }
        *self.struck.lock().unwrap() |= Execution::struck();
        Execution::end();
    }

    fn spawn<R: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> loom::thread::JoinHandle<R> {
        let me = self.clone();
        let thread = loom::thread::Builder::new().stack_size(STACK);
        thread.spawn(move || act(&me)).expect("a thread")
    }

    fn act(&self, actor: usize) -> Outcome<T> {
        turn::enter(actor + 1);
        let act = || self.scene.acts[actor](&self.scene.world.ctx(actor));
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(result) => Some(result),
            Err(died) if died.is::<life::Died>() => None,
            Err(failure) => resume_unwind(failure),
        }
    }
}
