//! A soak test of doorbells: two processes put each other to sleep and wake each other, in two machines or on
//! the host and in a machine: `doorbell-soak POOL ROLE ROUNDS`, once with the role 0 and once with 1.
//!
//! They wait as `semop` does, on the status of a waiter's record, but without its looks around: a lost
//! wake-up ends the run. The pool must be one that nobody else uses.

use std::time::{Duration, Instant};
use vshmem_pool::atomic::{AtomicU32, Ordering::*};
use vshmem_pool::layout::{Waiter, DONE, WAITING};
use vshmem_pool::{Budget, Cred, Kernel, Pool, Waited};
use vshmem_transport::Handle;
use vshmem_wait::{Across, Heartbeat};

/// A process that has slept so long was forgotten.
const LOST: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let run = match &arguments[..] {
        [pool, role, rounds] => match (role.parse(), rounds.parse()) {
            (Ok(role @ 0..=1), Ok(rounds)) => soak(pool, role, rounds),
            _ => Err("ROLE is 0 or 1, and ROUNDS a number".into()),
        },
        _ => Err("usage: doorbell-soak POOL ROLE ROUNDS".into()),
    };
    if let Err(error) = run {
        eprintln!("doorbell-soak: {error}");
        std::process::exit(1);
    }
}

fn soak(pool: &str, role: u32, rounds: u32) -> Result<(), String> {
    let reference = vshmem_transport::resolve(pool.as_bytes()).map_err(|e| e.to_string())?;
    let handle = vshmem_transport::open(&reference).map_err(|e| e.to_string())?;
    let pool = Pool::open(handle.mem()).map_err(|e| e.to_string())?;
    let member = handle.join(&pool).map_err(|e| e.to_string())?;
    let heartbeat = Heartbeat::new();
    let across = Across { pool: &pool, handle: &handle, member, heartbeat: &heartbeat };
    across.join();
    let record = |role| pool.waiter(role).ok_or("the pool has no records");
    let (own, other) = (record(role)?, record(1 - role)?);
    register(&pool, &handle, member, own)?;
    let begun = Instant::now();
    while other.owner.load(Acquire) == 0 {
        if begun.elapsed() > LOST {
            return Err("the other one does not come".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if !pool.is_rung_by_all(member) {
        return Err("some member rings no doorbells, so nobody would sleep".into());
    }
    let mut dice = Dice(0x9e37_79b9 + u64::from(role));
    let (mut sleeps, mut longest) = (0u64, Duration::ZERO);
    let begun = Instant::now();
    for _ in 0..rounds {
        if role == 0 {
            wake(&across, other, &mut dice);
        }
        let before = Instant::now();
        sleeps += wait(&across, own)?;
        longest = longest.max(before.elapsed());
        if role == 1 {
            wake(&across, other, &mut dice);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{rounds} rounds in {seconds:.1} s, {sleeps} sleeps, the longest {longest:?}");
    own.owner.store(0, Release);
    Ok(())
}

/// Takes a process slot, and the record for it.
fn register(pool: &Pool, handle: &Handle, member: u16, own: &Waiter) -> Result<(), String> {
    let pid = std::process::id();
    let backed = Backed(handle);
    let claimed = pool.claim_process(&backed, &Budget::default(), member, pid, 0, &mut |slot| {
        handle.claim_liveness(slot).is_some()
    });
    let me = claimed.ok_or("the pool has no room for another process")?;
    let records = pool.geometry().waiters.0;
    if !handle.reserve(records, 2 * size_of::<Waiter>() as u64) {
        return Err("there is no memory for the records".into());
    }
    pool.root().waiter_high.fetch_max(2, SeqCst);
    own.status.store(WAITING, SeqCst);
    own.owner.store(me.word(), SeqCst);
    Ok(())
}

/// Returns how often it went to sleep.
fn wait(across: &Across, own: &Waiter) -> Result<u64, String> {
    let mut sleeps = 0;
    while own.status.load(Acquire) == WAITING {
        sleeps += 1;
        if across.wait(&own.status, WAITING, Some(LOST)) == vshmem_wait::Waited::TimedOut {
            return Err(format!("a wake-up was lost: the word is {:#x}", own.status.load(SeqCst)));
        }
    }
    own.status.store(WAITING, Release);
    Ok(sleeps)
}

/// Wakes the other one after a while: at once, while it falls asleep, or when it sleeps soundly.
fn wake(across: &Across, other: &Waiter, dice: &mut Dice) {
    match dice.roll(64) {
        0 => std::thread::sleep(Duration::from_millis(1)),
        1..16 => {}
        _ => (0..dice.roll(4096)).for_each(|_| std::hint::black_box(())),
    }
    other.status.store(DONE, Release);
    across.wake(&other.status, 1);
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// The kernel under the pool, as far as taking a slot asks it.
struct Backed<'a>(&'a Handle);

impl Kernel for Backed<'_> {
    fn alive(&self, slot: u32, _pid: u32, _started: u64) -> bool {
        self.0.alive(slot).unwrap_or(true)
    }
    fn block_signals(&self) -> u64 {
        0
    }
    fn restore_signals(&self, _old: u64) {}
    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.0.reserve(offset, len)
    }
    fn now(&self) -> i64 {
        0
    }
    fn monotonic(&self) -> u64 {
        0
    }
    fn cred(&self) -> Cred {
        unreachable!("taking a slot asks nobody's credentials")
    }
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout: Option<Duration>) -> Waited {
        Waited::TimedOut
    }
    fn wake(&self, _word: &AtomicU32, _n: u32) -> u32 {
        0
    }
}
