//! The pool as it is after each store of a call, with the process that made it dead from then on: a fork for
//! each.

use crate::single::Single;
use crate::trap::Store;
use crate::world::{make, world, Process, Task};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::cell::Cell;
use vshmem_ipc::Ctx;
use vshmem_pool::Params;

/// Bytes of the pools: nearly the smallest there are.
pub const POOL: usize = 2 << 20;
/// Failures of one scenario after which it ends.
const MOST_FAILURES: u64 = 3;
/// Seconds that a survivor may take.
const PATIENCE: u32 = 30;
/// A call that has not come to an end after this time waits for something: it is killed there. Nanoseconds of
/// the world's clock.
const WAITS: u64 = 60_000_000;

/// What all forks count together.
#[derive(Default)]
#[repr(C)]
pub struct Counts {
    /// States of a pool that survivors mended.
    pub images: AtomicU64,
    /// Those of them that came about while a survivor mended.
    pub second: AtomicU64,
    /// Those that were not mended.
    pub failed: AtomicU64,
}

struct Images {
    counts: Cell<*const Counts>,
    name: Cell<&'static str>,
    /// The task whose process is killed: a call of which is under way.
    victim: Cell<Option<&'static Process>>,
    /// How many times there was a death before.
    depth: Cell<u32>,
    stores: Cell<u64>,
    /// Of the deaths at the second level, one in so many is tried.
    rate: Cell<u64>,
    /// Beginning with this one.
    phase: Cell<u64>,
    /// The victim stops, and does not die, after so many stores.
    stop_after: Cell<u64>,
    /// So many failures, and no further death is tried.
    enough: Cell<u64>,
    /// Whoever stores lets others run.
    interleaved: Cell<bool>,
}

static IMAGES: Single<Images> = Single(Images {
    counts: Cell::new(core::ptr::null()),
    name: Cell::new(""),
    victim: Cell::new(None),
    depth: Cell::new(0),
    stores: Cell::new(0),
    rate: Cell::new(1),
    phase: Cell::new(0),
    stop_after: Cell::new(0),
    enough: Cell::new(0),
    interleaved: Cell::new(false),
});

/// Counts that all forks share.
pub fn shared_counts() -> &'static Counts {
    let images = IMAGES.get();
    if images.counts.get().is_null() {
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: fresh memory, all zeros, which is never given back.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), size_of::<Counts>(), access, how, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "mmap");
        images.counts.set(at.cast());
    }
    // SAFETY: mapped above; atomics accept all zeros.
    unsafe { &*images.counts.get() }
}

/// Runs a scenario in a fork, in a world of its own. `rate`: of the deaths while somebody mends, one in so
/// many is tried; 0: none.
pub fn run(name: &'static str, rate: u64, scenario: fn()) {
    let counts = shared_counts();
    let done = fork(|| {
        make(POOL, &Params::default(), before_store, after_store);
        let images = IMAGES.get();
        images.name.set(name);
        images.rate.set(rate);
        images.enough.set(counts.failed.load(SeqCst) + MOST_FAILURES);
        scenario();
        crate::mend::finish();
    });
    if !done {
        counts.failed.fetch_add(1, SeqCst);
        eprintln!("{name}: failed where nobody had died");
    }
}

/// Does something in a fork; whether it came to a good end.
pub fn fork(body: impl FnOnce()) -> bool {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            body();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) }
        }
        child => ended_well(child),
    }
}

fn ended_well(child: i32) -> bool {
    let mut status = 0;
    // SAFETY: a child of this process.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {}
    status == 0
}

/// Makes a call in a process, and kills it: in forks after each store, and at last when the call is over, or
/// waits. `None`: it did not come back.
pub fn crash<T: 'static>(
    who: &'static Process,
    body: impl FnOnce(&Ctx<'static>) -> T + 'static,
) -> Option<T> {
    crash_in(who, |p| body(&p.context()))
}

/// The same for something that needs no slot.
pub fn crash_in<T: 'static>(
    who: &'static Process,
    body: impl FnOnce(&'static Process) -> T + 'static,
) -> Option<T> {
    die_in(who, who.start_stepped(body))
}

fn die_in<T>(who: &'static Process, task: Task<T>) -> Option<T> {
    let images = IMAGES.get();
    images.victim.set(Some(who));
    images.stores.set(0);
    if is_due() && in_image(None) {
        return None;
    }
    let end = world().now() + WAITS;
    world().run(|| task.is_over() || who.is_dead() || world().now() > end);
    images.victim.set(None);
    who.kill();
    task.result()
}

/// Begins a call and stops it after so many stores; the process lives. It may be over before.
pub fn stopped<T: 'static>(
    who: &'static Process,
    stores: u64,
    body: impl FnOnce(&Ctx<'static>) -> T + 'static,
) -> Task<T> {
    let images = IMAGES.get();
    let task = who.start_stepped(|p| body(&p.context()));
    images.stop_after.set(stores);
    world().rest();
    images.stop_after.set(0);
    task
}

/// Is this a fork in which somebody died, and nobody who mended, yet? Then which of them it is, in a way.
pub fn first_death() -> Option<u64> {
    let images = IMAGES.get();
    (images.depth.get() == 1).then(|| images.phase.get())
}

/// Has somebody died here?
pub fn is_fork() -> bool {
    IMAGES.get().depth.get() > 0
}

/// Begins a call, stops it after so many stores, does something else, and lets the call go on: from there on
/// it is killed as in [`crash`].
pub fn stopped_then_crash<T: 'static>(
    who: &'static Process,
    stores: u64,
    body: impl FnOnce(&Ctx<'static>) -> T + 'static,
    between: impl FnOnce(),
) -> Option<T> {
    let task = stopped(who, stores, body);
    assert!(!task.is_over(), "it was stopped");
    between();
    task.go_on();
    die_in(who, task)
}

/// Is a death to be tried here?
fn is_due() -> bool {
    let images = IMAGES.get();
    match images.depth.get() {
        0 => true,
        1 if images.rate.get() > 0 => {
            let n = images.phase.get() + 1;
            images.phase.set(n);
            n % images.rate.get() == 0
        }
        _ => false,
    }
}

/// From now on who stores lets others run, before and after: or not any more.
pub fn interleave(on: bool) {
    IMAGES.get().interleaved.set(on);
}

/// Called before every store that is seen.
pub fn before_store() {
    if IMAGES.get().interleaved.get() {
        world().yield_now();
    }
}

/// Called after every store that is seen, and changed something.
pub fn after_store(store: Store) {
    let images = IMAGES.get();
    if images.interleaved.get() {
        world().who().meets_fate();
        world().yield_now();
        return;
    }
    if images.stop_after.get() > 0 {
        images.stop_after.set(images.stop_after.get() - 1);
        if images.stop_after.get() == 0 {
            world().stop();
        }
        return;
    }
    let Some(victim) = images.victim.get().filter(|v| core::ptr::eq(*v, world().who())) else {
        return;
    };
    images.stores.set(images.stores.get() + 1);
    if is_due() && in_image(Some(store)) {
        victim.kill();
        // Never comes back.
        world().stop();
    }
}

/// True in a fork, in which the victim is dead. In the caller it returns when the survivors there have come
/// to an end.
fn in_image(store: Option<Store>) -> bool {
    let images = IMAGES.get();
    let counts = shared_counts();
    if counts.failed.load(SeqCst) >= images.enough.get() {
        return false;
    }
    let (depth, n) = (images.depth.get(), images.stores.get());
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            images.depth.set(depth + 1);
            // Which of the deaths that may follow are tried differs from image to image.
            images.phase.set(n.wrapping_mul(7));
            if let Some(victim) = images.victim.take() {
                victim.kill();
            }
            // SAFETY: no handler is set, so it ends this process.
            unsafe { libc::alarm(PATIENCE) };
            true
        }
        child => {
            counts.images.fetch_add(1, SeqCst);
            counts.second.fetch_add(depth.min(1).into(), SeqCst);
            if !ended_well(child) {
                counts.failed.fetch_add(1, SeqCst);
                report(store);
            }
            false
        }
    }
}

fn report(store: Option<Store>) {
    let images = IMAGES.get();
    let level = if images.depth.get() == 0 { "" } else { " of who mends" };
    let at = match store {
        Some(s) => {
            let here = report as fn(Option<Store>) as usize;
            let ip = s.instruction as i64 - here as i64;
            format!("to {:#x} (pool), by the instruction {ip:+#x} from `report`", s.offset)
        }
        None => "none yet".to_string(),
    };
    eprintln!("{}: not mended after store {}{level}: {at}", images.name.get(), images.stores.get());
}
