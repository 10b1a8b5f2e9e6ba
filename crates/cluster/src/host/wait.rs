//! Waiting for machines that boot.

use crate::commands::channel::Channel;
use crate::error::Result;
use crate::interrupt;
use crate::launcher::starting::{boot_failed, check_alive};
use crate::launcher::table;
use crate::state::record::Record;
use std::time::Duration;

/// Waits until these machines take commands, and calls `ready` with each name.
pub fn wait(
    record: &Record,
    mut waiting: Vec<usize>,
    timeout: Duration,
    ready: &mut dyn FnMut(&str),
) -> Result<()> {
    let launcher = table::of(record);
    let answered = interrupt::wait_for(timeout, || {
        let mut left = Vec::new();
        for &index in &waiting {
            check_alive(launcher, record, index)?;
            let machine = &record.machines[index];
            let directory = record.machine_directory(machine)?;
            let takes = || matches!(Channel::take(&directory, 0, Duration::ZERO), Ok(Some(_)));
            match takes() && launcher.has_pool(record, machine)? {
                true => ready(&machine.name),
                false => left.push(index),
            }
        }
        waiting = left;
        Ok(waiting.is_empty().then_some(()))
    })?;
    match (answered, waiting.first()) {
        (None, Some(&index)) => {
            Err(boot_failed(launcher, record, index, &format!("it took longer than {} s", timeout.as_secs())))
        }
        _ => Ok(()),
    }
}
