//! The front end, in a machine: it joins the pools that the machine has, follows devices that are plugged in and pulled out while it
//! runs, gives them the names that the host tells, says when they are ready, and cleans up after processes that die in the machine.
//!
//! It looks once a second, and when the host asks. `docs/protocol.md` specifies what the two say.

pub(crate) mod channel;
pub(crate) mod pools;
pub mod protocol;

use crate::error::{Error, Result};
use channel::Channel;
use pools::Pools;
use protocol::{Ask, DriverStatus, GuestStatus, Refusal};
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_transport::{PoolRef, Transport};

/// Between looks when nothing happens.
const SECOND: Duration = Duration::from_secs(1);

/// The devices by which a transport gives pools to a machine.
pub trait Devices {
    /// The transport.
    fn transport(&self) -> &'static dyn Transport;

    /// Whether there is a driver that has not taken the device of this pool yet.
    fn wait_for_driver(&self, pool: &PoolRef) -> bool;

    /// Whether a driver has the device of this pool.
    fn have_driver(&self, pool: &PoolRef) -> bool;

    /// Lets a user map a pool, and nobody else but root.
    ///
    /// # Errors
    /// The kernel refuses.
    fn give(&self, pool: &PoolRef, owner: u32) -> io::Result<()>;

    /// How the driver is.
    fn driver(&self) -> DriverStatus;
}

/// Serves until it is ended: devices of all these kinds, the first of which may have a driver of ours. `owner`: the user whom the pools' device files are given to; without it they stay as they are.
///
/// # Errors
/// This can't be done here, as by a user who is not root.
pub fn run(devices: &'static [&'static dyn Devices], owner: Option<u32>) -> Result<()> {
    // SAFETY: takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Error::new(
            "the front end gives names to the machine's devices, and only root may: start it as root, or by vshmem-agent-guest.service",
        ));
    }
    let mut pools = Pools::new(devices, owner);
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
fn serve(channel: &mut Channel, pools: &mut Pools) -> io::Result<()> {
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
                driver: pools.driver(),
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
pub(crate) mod tests {
    use super::*;
    use vshmem_transport::{DiscoverError, Handle, OpenError};

    /// A machine that is given no pools.
    #[derive(Debug)]
    pub struct NoDevices;

    impl Transport for NoDevices {
        fn name(&self) -> &'static str {
            "none"
        }

        fn discover(
            &self,
            _: &mut dyn FnMut(&PoolRef) -> bool,
        ) -> std::result::Result<(), DiscoverError> {
            Ok(())
        }

        fn open(&self, _: &PoolRef) -> std::result::Result<Handle, OpenError> {
            Err(OpenError::WrongTransport)
        }
    }

    impl Devices for NoDevices {
        fn transport(&self) -> &'static dyn Transport {
            &NoDevices
        }

        fn wait_for_driver(&self, _: &PoolRef) -> bool {
            false
        }

        fn have_driver(&self, _: &PoolRef) -> bool {
            false
        }

        fn give(&self, _: &PoolRef, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn driver(&self) -> DriverStatus {
            DriverStatus::Loaded(false)
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_or_left_out() {
        let mut pools = Pools::new(&[&NoDevices], None);
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
