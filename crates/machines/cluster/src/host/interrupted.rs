//! Interrupted starts: the clusters of a `vshmem up` that was killed while machines booted.

use super::wait::wait;
use std::time::Duration;
use vshmem_base::error::Result;
use vshmem_base::lock::lock_cluster;
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::Record;

/// Waits until the machines that it has started take commands. From then on the cluster counts as started:
/// its pools stay if its machines die.
pub fn finish_start(cluster: &str, timeout: Duration, report: &mut dyn FnMut(Progress)) -> Result<()> {
    let lock = lock_cluster(cluster)?;
    let left = Record::read(cluster)?.filter(|record| record.starter.is_some());
    if let Some(mut record) = left {
        let runs = |index: &usize| state(&record, &record.machines[*index]) == MachineState::Running;
        let running = (0..record.machines.len()).filter(runs).collect();
        wait(&record, running, timeout, &mut |name| report(Progress::Ready(name.into())))?;
        record.starter = None;
        record.write()?;
    }
    drop(lock);
    Ok(())
}
