//! The front end, in a machine. It joins the machine's pools, and those of devices that are plugged in later.
//! It gives them the names that the host sends, reports when they are ready, and reaps after processes that
//! died in the machine.
//!
//! It scans for devices once a second, and at each request of the host. `docs/protocol.md` specifies the
//! protocol.

pub(crate) mod channel;
mod devices;
mod lines;
pub(crate) mod pools;
pub mod protocol;

pub use devices::{give, Devices};
pub use lines::Lines;

use crate::error::{Error, Result};
use channel::Channel;
use pools::Pools;
use protocol::{ErrorResponse, GuestRequest, GuestStatus};
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often devices are scanned for.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Serves devices of all these kinds until it is ended; the first kind may have a driver of Vshmem's. Device
/// files of pools are given to the user `owner`, or stay as they are.
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
            due = Instant::now() + SCAN_INTERVAL;
            pools.scan();
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

/// Answers all requests of the host.
fn serve(channel: &mut Channel, pools: &mut Pools) -> io::Result<()> {
    channel.transfer()?;
    while let Some(line) = channel.line() {
        if let Some(response) = respond(&line, pools) {
            channel.send(&response)?;
        }
        channel.transfer()?;
    }
    Ok(())
}

/// The response to a line; none if it is no request.
fn respond(line: &[u8], pools: &mut Pools) -> Option<String> {
    let request: GuestRequest = serde_json::from_slice(line).ok()?;
    let id = request.id;
    let response = match (request.pools, request.status) {
        (Some(table), None) => serde_json::to_string(&pools.grant(id, &table)),
        (None, Some(_)) => {
            pools.scan();
            serde_json::to_string(&GuestStatus {
                id,
                version: env!("CARGO_PKG_VERSION").into(),
                kernel: kernel_version(),
                driver: pools.driver(),
                pools: pools.status(),
            })
        }
        _ => {
            serde_json::to_string(&ErrorResponse { id, error: "a request has either pools or status".into() })
        }
    };
    response.ok()
}

/// The version of the machine's kernel.
fn kernel_version() -> String {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version.trim().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::protocol::DriverStatus;
    use super::*;
    use vshmem_transport::{DiscoverError, Handle, OpenError};
    use vshmem_transport::{PoolRef, Transport};

    /// A machine that is given no pools.
    #[derive(Debug)]
    pub struct NoDevices;

    impl Transport for NoDevices {
        fn name(&self) -> &'static str {
            "none"
        }

        fn discover(&self, _: &mut dyn FnMut(&PoolRef) -> bool) -> std::result::Result<(), DiscoverError> {
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

        fn is_driver_pending(&self, _: &PoolRef) -> bool {
            false
        }

        fn has_driver(&self, _: &PoolRef) -> bool {
            false
        }

        fn set_owner(&self, _: &PoolRef, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn driver(&self) -> DriverStatus {
            DriverStatus::Loaded(false)
        }
    }

    #[test]
    fn invalid_lines_are_refused_or_ignored() {
        let mut pools = Pools::new(&[&NoDevices], None);
        for garbage in ["", "x", "[]", "{}", r#"{"id":-1,"status":{}}"#, "\u{0}{\"id\":1}"] {
            assert_eq!(respond(garbage.as_bytes(), &mut pools), None, "{garbage}");
        }
        let refused = respond(br#"{"id":5}"#, &mut pools).expect("a response");
        assert!(refused.starts_with(r#"{"id":5,"error""#), "{refused}");
        let status = respond(br#"{"id":6,"status":{}}"#, &mut pools).expect("a response");
        let status: GuestStatus = serde_json::from_str(&status).expect("a status");
        assert_eq!((status.id, status.kernel), (6, kernel_version()));
    }
}
