//! The machines that run, and the threads of their vCPUs.

use super::memory::Memory;
use super::times::Thread;
use std::collections::HashMap;
use std::time::Instant;
use vshmem_base::{process::Process, Result};
use vshmem_cluster::host::cluster;
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::state::machine::MachineState;
use vshmem_placement::rules::Insist;

/// Seconds after which a machine's memory is looked at again: the kernel looks at each page of it then.
const MEMORY_AGE: f64 = 10.0;

/// A machine that runs.
pub struct Machine {
    /// Its cluster and its name in that.
    pub name: String,
    pub process: Process,
    /// Its vCPUs' threads, in order, with their times at the last observation.
    pub threads: Vec<(i32, Thread)>,
    /// Its memory, and when that was looked at.
    pub memory: Option<(Instant, Memory)>,
    /// The address at which moving its memory goes on.
    pub place: u64,
    /// The reason why its vCPUs must not be moved, if they must not.
    pub stays: Option<String>,
    /// None of its vCPUs has been moved yet.
    pub fresh: bool,
}

/// The machines, by their processes.
#[derive(Default)]
pub struct Machines {
    pub all: Vec<Machine>,
    /// Machines whose threads are not known, and why.
    pub unknown: HashMap<String, String>,
}

impl Machines {
    /// Finds the machines that run now.
    pub fn refresh(&mut self) -> Result<()> {
        let mut before: HashMap<(i32, u64), Machine> =
            self.all.drain(..).map(|it| ((it.process.pid, it.process.started), it)).collect();
        self.unknown.clear();
        for listed in cluster::list()? {
            for (index, machine) in listed.record.machines.iter().enumerate() {
                let Some(process) = machine.runs.as_ref().and_then(Running::process) else { continue };
                if listed.states[index] != MachineState::Running {
                    continue;
                }
                let name = format!("{}/{}", listed.record.name, machine.name);
                if let Some(known) = before.remove(&(process.pid, process.started)) {
                    self.all.push(known);
                    continue;
                }
                match cluster::core_threads(&listed.record, index) {
                    Ok(threads) => {
                        let placement = machine.placement.as_ref();
                        let stays = placement.is_some_and(|placed| placed.rules.cores == Insist::Strict);
                        let stays = stays.then(|| "its placement on cores is strict".to_owned());
                        self.all.push(Machine { stays, ..Machine::new(name, process, &threads) });
                    }
                    // Another command may talk to its monitor just now.
                    Err(why) => drop(self.unknown.insert(name, why.to_string())),
                }
            }
        }
        Ok(())
    }
}

impl Machine {
    fn new(name: String, process: Process, threads: &[i32]) -> Machine {
        let seen = |thread: &i32| (*thread, Thread::read(process.pid, *thread).unwrap_or_default());
        let threads = threads.iter().map(seen).collect();
        Machine { name, process, threads, memory: None, place: 0, stays: None, fresh: true }
    }

    /// Its memory; `None` if that can't be seen.
    pub fn memory(&mut self) -> Option<&Memory> {
        let is_old = |(then, _): &(Instant, Memory)| then.elapsed().as_secs_f64() > MEMORY_AGE;
        if self.memory.as_ref().is_none_or(is_old) {
            let read = Memory::read(self.process.pid).ok();
            self.memory = read.map(|memory| (Instant::now(), memory)).or(self.memory.take());
        }
        self.memory.as_ref().map(|(_, memory)| memory)
    }
}
