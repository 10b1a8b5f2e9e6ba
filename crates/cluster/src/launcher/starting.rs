//! What starting a machine is to all launchers: what it is told, and why it did not come up.

use super::traits::Launcher;
use crate::error::{Error, Result};
use crate::state::record::{Granted, Record};
use crate::state::settings::{address, Network, Settings};
use crate::user::uid;
use std::time::{Duration, Instant};

/// How long it may take to end for who has closed all it had.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// What the machine in this index is told.
pub fn settings(
    launcher: &dyn Launcher,
    record: &Record,
    index: usize,
    networked: bool,
) -> Settings {
    let machine = &record.machines[index];
    let network = Network {
        address: address(machine.index),
        machines: record.machines.len() as u32,
    };
    let (dax, pools): (Vec<&Granted>, Vec<_>) = machine
        .pools
        .iter()
        .partition(|pool| pool.transport.as_deref() == Some("dax"));
    let names = |pools: Vec<&Granted>| pools.iter().map(|pool| pool.name.clone()).collect();
    Settings {
        name: machine.name.clone(),
        pools: names(pools),
        dax: names(dax),
        uid: uid(),
        channels: record.channels,
        network: networked.then_some(network),
        shares: record.shares.clone(),
        launcher: launcher.name().into(),
        probe: false,
    }
}

/// An error unless the machine in this index runs.
pub fn check_alive(launcher: &dyn Launcher, record: &Record, index: usize) -> Result<()> {
    match &record.machines[index].runs {
        Some(running) if running.alive() => Ok(()),
        _ => Err(boot_failed(launcher, record, index, "it has ended")),
    }
}

/// What became of a machine that was started just now; if that is an error because it has ended, what it said is told instead.
pub fn or_exit_reason<T>(
    launcher: &dyn Launcher,
    record: &Record,
    index: usize,
    outcome: Result<T>,
) -> Result<T> {
    let error = match outcome {
        Ok(it) => return Ok(it),
        Err(error) => error,
    };
    // Others see what it had closed a moment before it has ended.
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        check_alive(launcher, record, index)?;
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Why the machine in this index did not come up, with what it said last.
pub fn boot_failed(launcher: &dyn Launcher, record: &Record, index: usize, why: &str) -> Error {
    let machine = &record.machines[index];
    let words = launcher.last_output(record, machine);
    Error::new(format!("{} did not boot: {why}{words}", machine.name)).hint(launcher.boot_hint())
}
