//! Checks: threads sleep on words of a device's memory, and are woken and rung. For ports and pools that have
//! no driver nothing of it works, and says so.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use std::string::String;
use std::time::Instant;

use super::child::{in_child, soon, Child, End};
use super::descriptors::close_from;
use super::subject::{ensure, same, Check, Open, Outcome, Subject, Verdict};
use crate::{Handle, Slept};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "sleep: not where there is no driver", make: without },
    Check { name: "sleep: ends when the time is up, or the word is another", make: ends },
    Check { name: "sleep: woken by another process of this kernel", make: woken },
    Check { name: "sleep: rung after the word was changed", make: rung },
    Check { name: "sleep: in a forked child, and after the program closed all descriptors", make: closed },
];

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(20);

/// The word that is slept on.
fn word(pool: &Open) -> Result<&'static AtomicU32, String> {
    let word = pool.handle.mem().at(pool.page_at(7));
    word.ok_or_else(|| "the word is not in the pool".into())
}

/// Opens the pool for a check that needs the driver; `None` if there is none.
fn with_driver(subject: &Subject) -> Result<Option<Open>, String> {
    let pool = subject.open()?;
    word(&pool)?.store(0, SeqCst);
    if pool.handle.has_driver() {
        return Ok(Some(pool));
    }
    pool.close();
    Ok(None)
}

const NO_DRIVER: Verdict = Verdict::Skipped("the pool is not a device of vshmem.ko");

fn without(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let outside = AtomicU32::new(0);
    same(pool.handle.sleep(&outside, 0, Some(LONG)), None, "sleeping outside of the pool")?;
    same(pool.handle.wake(&outside, 1).unwrap_or(0), 0, "sleepers outside of the pool")?;
    if pool.handle.has_driver() {
        ensure(pool.handle.is_device(), "the driver has devices only")?;
    } else {
        let word = word(&pool)?;
        same(pool.handle.sleep(word, 0, Some(LONG)), None, "sleeping without the driver")?;
        same(pool.handle.wake(word, 1), None, "sleepers without the driver")?;
        same(pool.handle.peer(), None, "a number without the driver")?;
        ensure(!pool.handle.ring_doorbell(0), "ringing without the driver")?;
    }
    pool.close();
    Ok(Verdict::Passed)
}

fn ends(subject: &Subject) -> Outcome {
    let Some(pool) = with_driver(subject)? else {
        return Ok(NO_DRIVER);
    };
    let word = word(&pool)?;
    same(pool.handle.sleep(word, 1, Some(LONG)), Some(Slept::Woken), "another word")?;
    let begun = Instant::now();
    let short = Duration::from_millis(20);
    same(pool.handle.sleep(word, 0, Some(short)), Some(Slept::TimedOut), "a short sleep")?;
    ensure(begun.elapsed() >= short, "the sleep ended early")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn woken(subject: &Subject) -> Outcome {
    let Some(pool) = with_driver(subject)? else {
        return Ok(NO_DRIVER);
    };
    let child = sleeper(subject, Slept::Woken)?;
    soon(|| word(&pool).is_ok_and(|word| pool.handle.wake(word, 2) == Some(1)), "a sleeper")?;
    same(child.wait(), (End::Exited(0), String::new()), "the sleeper")?;
    pool.close();
    Ok(Verdict::Passed)
}

/// A process that sleeps on the word with the pool opened anew.
fn sleeper(subject: &Subject, expected: Slept) -> Result<Child, String> {
    let mut child = Child::start(|inside| {
        let own = subject.open()?;
        inside.say();
        same(own.handle.sleep(word(&own)?, 0, Some(LONG)), Some(expected), "the sleep")
    })?;
    child.hear()?;
    Ok(child)
}

fn rung(subject: &Subject) -> Outcome {
    let Some(pool) = with_driver(subject)? else {
        return Ok(NO_DRIVER);
    };
    let Some(own) = pool.handle.peer() else {
        pool.close();
        return Ok(Verdict::Skipped("the device has no doorbell"));
    };
    let child = sleeper(subject, Slept::Woken)?;
    ensure(pool.handle.ring_doorbell(own), "ringing this kernel")?;
    let begun = Instant::now();
    word(&pool)?.store(1, SeqCst);
    ensure(pool.handle.ring_doorbell(own), "ringing this kernel again")?;
    same(child.wait(), (End::Exited(0), String::new()), "the sleeper")?;
    ensure(begun.elapsed() < LONG / 2, "it slept on")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn closed(subject: &Subject) -> Outcome {
    let Some(pool) = with_driver(subject)? else {
        return Ok(NO_DRIVER);
    };
    let sleeps = |handle: &Handle| {
        let short = Some(Duration::from_millis(5));
        same(handle.sleep(word(&pool)?, 0, short), Some(Slept::TimedOut), "a short sleep")
    };
    in_child(|| {
        sleeps(&pool.handle)?;
        close_from(3)?;
        sleeps(&pool.handle)?;
        same(pool.handle.wake(word(&pool)?, 1), Some(0), "nobody sleeps")
    })?;
    pool.close();
    Ok(Verdict::Passed)
}
