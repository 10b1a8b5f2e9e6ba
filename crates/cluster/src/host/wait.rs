//! Waiting for machines that boot.

use crate::commands::channel::Channel;
use crate::error::Result;
use crate::interrupt;
use crate::launcher::starting::{check_alive, not_up};
use crate::launcher::table;
use crate::state::record::Record;
use std::time::Duration;

/// Waits until the machines in these places take commands; `ready` hears of each.
pub fn wait(
    record: &Record,
    mut waiting: Vec<usize>,
    patience: Duration,
    ready: &mut dyn FnMut(&str),
) -> Result<()> {
    let launcher = table::of(record);
    let answered = interrupt::wait_for(patience, || {
        let mut left = Vec::new();
        for &place in &waiting {
            check_alive(launcher, record, place)?;
            let machine = &record.machines[place];
            let directory = record.machine_directory(machine)?;
            let takes = || matches!(Channel::take(&directory, 0, Duration::ZERO), Ok(Some(_)));
            match takes() && launcher.has_pool(record, machine)? {
                true => ready(&machine.name),
                false => left.push(place),
            }
        }
        waiting = left;
        Ok(waiting.is_empty().then_some(()))
    })?;
    match (answered, waiting.first()) {
        (None, Some(&place)) => Err(not_up(
            launcher,
            record,
            place,
            &format!("it took longer than {} s", patience.as_secs()),
        )),
        _ => Ok(()),
    }
}
