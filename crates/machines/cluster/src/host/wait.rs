//! Waiting for machines that boot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vshmem_base::error::{Error, Result};
use vshmem_base::interrupt;
use vshmem_hypervisor::launcher::starting::{boot_failed, check_alive};
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::state::record::Record;
use vshmem_session::commands::channel::Channel;

/// Waits until these machines take commands, and calls `ready` with each name. Each is waited for by a thread
/// of its own, since it takes a while to see that one does not answer.
pub fn wait(
    record: &Record,
    waiting: Vec<usize>,
    timeout: Duration,
    ready: &mut dyn FnMut(&str),
) -> Result<()> {
    let failed = AtomicBool::new(false);
    let (tell, told) = channel();
    thread::scope(|scope| {
        for index in waiting {
            let (tell, failed) = (tell.clone(), &failed);
            scope.spawn(move || tell.send((index, wait_for_one(record, index, timeout, failed))));
        }
        drop(tell);
        let mut outcome = Ok(());
        for (index, answered) in told {
            match answered {
                Ok(()) => ready(&record.machines[index].name),
                Err(why) => {
                    failed.store(true, Ordering::Relaxed);
                    outcome = outcome.and(Err(why));
                }
            }
        }
        outcome
    })
}

/// Waits until a machine takes commands, or another one has failed.
fn wait_for_one(record: &Record, index: usize, timeout: Duration, failed: &AtomicBool) -> Result<()> {
    let (launcher, machine) = (table::of(record), &record.machines[index]);
    let directory = record.machine_directory(machine)?;
    let takes = || matches!(Channel::take(&directory, 0, Duration::ZERO), Ok(Some(_)));
    let answered = interrupt::wait_for(timeout, || {
        if failed.load(Ordering::Relaxed) {
            return Err(Error::new("another machine has failed"));
        }
        check_alive(launcher, record, index)?;
        Ok((takes() && launcher.has_pool(record, machine)?).then_some(()))
    })?;
    let too_long = || format!("it took longer than {} s", timeout.as_secs());
    answered.ok_or_else(|| boot_failed(launcher, record, index, &too_long()))
}
