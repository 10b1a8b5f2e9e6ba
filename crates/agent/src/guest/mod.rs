//! The front end, in a machine: it joins the pools that the machine has, follows devices that are plugged in and pulled out while it
//! runs, gives them the names that the host tells, says when they are ready, and cleans up after processes that die in the machine.
//!
//! It looks once a second, and when the host asks. `docs/protocol.md` specifies what the two say.

pub(crate) mod channel;
mod device;
pub(crate) mod pools;
pub mod protocol;

use crate::error::{Error, Result};
use channel::Channel;
use pools::Pools;
use protocol::{Ask, GuestStatus, Refusal};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use device::{driver_failed, give_device};

/// Between looks when nothing happens.
const SECOND: Duration = Duration::from_secs(1);

/// Serves until it is ended. `owner`: the user whom the pools' device files are given to; without it they stay as they are.
///
/// # Errors
/// This can't be done here, as by a user who is not root.
pub fn run(owner: Option<u32>) -> Result<()> {
    // SAFETY: takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Error::new(
            "the front end gives names to the machine's devices, and only root may: start it as root, or by vshmem-agent-guest.service",
        ));
    }
    let mut pools = Pools::new(owner);
    let mut channel = None;
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            due = Instant::now() + SECOND;
            pools.look();
        }
        channel = channel.or_else(|| Channel::find().ok().flatten());
        let left = due.saturating_duration_since(Instant::now());
        match &mut channel {
            None => sleep(left),
            Some(open) => {
                if serve(open, &mut pools).is_err() {
                    // The port was taken away.
                    channel = None;
                    sleep(left);
                } else {
                    open.wait(due.saturating_duration_since(Instant::now()));
                }
            }
        }
    }
}

/// Answers all that the host has asked.
fn serve(channel: &mut Channel, pools: &mut Pools) -> std::io::Result<()> {
    channel.exchange()?;
    while let Some(line) = channel.line() {
        if let Some(answer) = answer(&line, pools) {
            channel.say(&answer)?;
        }
        channel.exchange()?;
    }
    Ok(())
}

/// The answer to a line; none to what is no request.
fn answer(line: &[u8], pools: &mut Pools) -> Option<String> {
    let ask: Ask = serde_json::from_slice(line).ok()?;
    let id = ask.id;
    let answer = match (ask.pools, ask.status) {
        (Some(table), None) => serde_json::to_string(&pools.grant(id, &table)),
        (None, Some(_)) => {
            pools.look();
            serde_json::to_string(&GuestStatus {
                id,
                version: env!("CARGO_PKG_VERSION").into(),
                kernel: kernel(),
                driver: device::driver(),
                pools: pools.status(),
            })
        }
        _ => serde_json::to_string(&Refusal {
            id,
            error: "a request has either pools or status".into(),
        }),
    };
    answer.ok()
}

/// The version of the machine's kernel.
fn kernel() -> String {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version.trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_or_left_out() {
        let mut pools = Pools::new(None);
        for garbage in [
            "",
            "x",
            "[]",
            "{}",
            r#"{"id":-1,"status":{}}"#,
            "\u{0}{\"id\":1}",
        ] {
            assert_eq!(answer(garbage.as_bytes(), &mut pools), None, "{garbage}");
        }
        let refused = answer(br#"{"id":5}"#, &mut pools).expect("an answer");
        assert!(refused.starts_with(r#"{"id":5,"error""#), "{refused}");
        let told = answer(br#"{"id":6,"status":{}}"#, &mut pools).expect("an answer");
        let told: GuestStatus = serde_json::from_str(&told).expect("a status");
        assert_eq!((told.id, told.kernel), (6, kernel()));
    }
}
