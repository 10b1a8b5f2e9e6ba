//! The front end of a machine. It joins the machine's pools, and those of devices that are plugged in later.
//! It gives them the names that the host sends, reports when they are ready, and reaps after processes that
//! died in the machine.
//!
//! It scans for devices once a second, and at each request of the host. `docs/protocol.md` specifies the
//! protocol.

pub(crate) mod channel;
mod devices;
mod lines;
pub(crate) mod pools;
pub mod port;
pub mod protocol;

pub use devices::{give, Devices};
pub use lines::Lines;

use channel::Channel;
use pools::Pools;
use protocol::{ErrorResponse, GuestRequest, GuestStatus};
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_base::error::{Error, Result};

/// Time between scans for devices.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Serves devices of all these kinds until it is ended; the first kind may have a driver of Vshmem's. Device
/// files of pools are given to the user `owner`, or stay as they are.
///
/// # Errors
/// It can't run here: the user is not root, for example.
pub fn run(devices: &'static [&'static dyn Devices], owner: Option<u32>) -> Result<()> {
    // SAFETY: takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Error::new(
            "vshmem agent --guest gives names to the machine's devices, and only root may: start it as root, or by vshmem-agent-guest.service",
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
                    open.wait(due);
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
pub(crate) mod tests;
