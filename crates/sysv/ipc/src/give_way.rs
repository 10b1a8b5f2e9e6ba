//! Waiting without sleeping where many processes use one IPC object all the time: what a caller wants comes
//! soon then, sooner than it takes to wake a sleeper. Between looks the processor is left to others.
//!
//! The caller stands in no queue meanwhile, so others can't tell it from one that has not called yet. Signals
//! are blocked, and end the wait as they would end a sleep.

use crate::{Ctx, Errno};
use core::ops::ControlFlow;
use core::time::Duration;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::{FEWEST_GIVE_WAYS, GIVE_WAY_NS, GIVE_WAY_ROUNDS, GIVE_WAY_STILL_NS};

/// Gives others way until a `look` says what has become of the wait; `None`: it is time to sleep. `watched`
/// is what others change.
pub fn give_way<T>(
    c: &Ctx,
    timeout: Option<Duration>,
    watched: impl Fn() -> u64,
    mut look: impl FnMut() -> Result<ControlFlow<T>, Errno>,
) -> Result<Option<T>, Errno> {
    let brief = timeout.map(|t| t.as_nanos()).filter(|t| *t < GIVE_WAY_NS.into());
    let (most, fewest) = brief.map_or((GIVE_WAY_NS, FEWEST_GIVE_WAYS), |t| (t as u64, 1));
    let signals = SignalsBlocked::new(c.kernel);
    let begun = c.kernel.monotonic();
    let (mut times, mut seen, mut changed) = (0, None, begun);
    while c.kernel.give_way() {
        times += 1;
        if c.kernel.is_child_of(c.pid) || signals.signal_waits() {
            return Err(Errno::EINTR);
        }
        for _ in 0..GIVE_WAY_ROUNDS {
            if let ControlFlow::Break(end) = look()? {
                return Ok(Some(end));
            }
            c.kernel.spinning();
        }
        let (before, now) = (seen, c.kernel.monotonic());
        seen = Some(watched());
        if seen != before {
            changed = now;
        }
        let is_late = now.saturating_sub(begun) > most;
        if times >= fewest && (is_late || now.saturating_sub(changed) > GIVE_WAY_STILL_NS) {
            break;
        }
    }
    Ok(None)
}

/// Looks for a moment whether something changes all the time.
pub fn glance(c: &Ctx, mut has_changed: impl FnMut() -> bool) -> bool {
    (0..c.kernel.glance()).any(|_| {
        c.kernel.spinning();
        has_changed()
    })
}

/// Can others be at work at the same time as the caller?
pub fn is_crowd_possible(c: &Ctx) -> bool {
    c.kernel.glance() > 0
}
