//! This host while it is balanced: from the first observation until all is as it was before.

use super::ledger::Ledger;
use super::machines::Machines;
use super::times::{Processors, Thread};
use super::{kernel, memory, threads};
use crate::moves::{Migration, Pin, Place};
use crate::observation::{Machine, Observation, Vcpu};
use crate::policy::{decide, Decision, History, Settings};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Instant;
use vshmem_base::Result;
use vshmem_place::topology::Topology;

/// Seconds between two searches for machines, which read every cluster's record.
const REFRESH: f64 = 1.0;

/// This host while it is balanced.
pub struct Session {
    /// Its cores and nodes.
    pub topology: Topology,
    settings: Settings,
    /// The core of each logical processor.
    core_of: HashMap<u32, usize>,
    machines: Machines,
    /// The time of the last search for machines.
    refreshed: Option<Instant>,
    history: History,
    /// The time of the last observation.
    observed: Instant,
    processors: Processors,
    /// `None` if nothing may be changed.
    ledger: Option<Ledger>,
    /// Warnings that were given.
    warned: HashSet<String>,
}

/// A step: an observation and a decision.
pub struct Step {
    /// The observation.
    pub seen: Observation,
    /// The decision.
    pub decision: Decision,
    /// Warnings that were not given before.
    pub warnings: Vec<String>,
}

impl Session {
    /// Begins on this host. With `dry`, nothing is changed.
    ///
    /// # Errors
    /// Another process balances this user's machines.
    pub fn begin(topology: Topology, settings: Settings, dry: bool) -> Result<Session> {
        let cores = topology.cores.iter().enumerate();
        let core_of = cores.flat_map(|(index, core)| core.pus.iter().map(move |pu| (*pu, index))).collect();
        let mut session = Session {
            topology,
            settings,
            core_of,
            machines: Machines::default(),
            refreshed: None,
            history: History::default(),
            observed: Instant::now(),
            processors: Processors::read(),
            ledger: if dry { None } else { Some(Ledger::open()?) },
            warned: HashSet::new(),
        };
        session.machines.refresh()?;
        session.observed = Instant::now();
        Ok(session)
    }

    /// The numbers of machines and of vCPUs.
    pub fn count(&self) -> (usize, usize) {
        (self.machines.all.len(), self.machines.all.iter().map(|it| it.threads.len()).sum())
    }

    /// Turns the kernel's own NUMA balancing off until the end. Returns what stands in the way, if anything
    /// does.
    pub fn keep_kernel_off(&mut self) -> Option<String> {
        // On one node it does nothing.
        let ledger = self.ledger.as_mut().filter(|_| self.topology.nodes.len() > 1)?;
        ledger.turn_kernel_off(Path::new(kernel::FILE)).err().map(|why| {
            format!("{why}. It may move what is moved here back: as root, write 0 to {}", kernel::FILE)
        })
    }

    /// Observes, decides and, unless nothing may be changed, carries the decision out.
    ///
    /// # Errors
    /// Machines can't be searched for, or the ledger can't be written.
    pub fn step(&mut self) -> Result<Step> {
        let is_due = |then: Instant| then.elapsed().as_secs_f64() >= REFRESH;
        if self.refreshed.is_none_or(is_due) {
            self.machines.refresh()?;
            self.refreshed = Some(Instant::now());
        }
        let seen = self.observe();
        let history = std::mem::take(&mut self.history);
        let mut decision = decide(&self.topology, &self.settings, &seen, history);
        self.history = decision.history.clone();
        let mut warnings = Vec::new();
        if self.ledger.is_some() {
            self.write_down()?;
            self.pin(&decision.pins, &mut warnings);
            decision.migrations.retain_mut(|it| self.migrate(it, &mut warnings));
        }
        for (name, why) in &self.machines.unknown {
            warnings.push(format!("{name} is left alone: {why}"));
        }
        warnings.extend(decision.notes.iter().map(|note| format!("{}: {}", note.machine, note.text)));
        warnings.retain(|text| self.warned.insert(text.clone()));
        Ok(Step { seen, decision, warnings })
    }

    /// Puts all threads where they might run before, and the kernel's own balancing on again if it was.
    /// Returns the number of threads, and a sentence for each failure.
    pub fn end(&mut self) -> (usize, Vec<String>) {
        self.ledger.as_mut().map(Ledger::undo).unwrap_or_default()
    }

    fn observe(&mut self) -> Observation {
        let (processors, now) = (Processors::read(), Instant::now());
        let seconds = (now - self.observed).as_secs_f64().max(1e-3);
        let mut others = processors.since(&self.processors, &self.topology, seconds);
        (self.processors, self.observed) = (processors, now);
        let mut machines = Vec::new();
        for machine in &mut self.machines.all {
            let process = machine.process;
            let mut vcpus = Vec::new();
            for (thread, before) in &mut machine.threads {
                // A machine that has ended is gone at the next refresh.
                let now = Thread::read(process.pid, *thread).unwrap_or(*before);
                let (run, wait) = now.since(before, seconds);
                *before = now;
                let core = self.core_of.get(&now.processor).copied();
                if let Some(core) = core {
                    others[core] -= run;
                }
                vcpus.push(Vcpu { key: key(process.started, *thread), run, wait, core });
            }
            let key = key(process.started, process.pid);
            let (memory, memory_stays) = place_of_memory(&self.topology, machine);
            machines.push(Machine {
                name: machine.name.clone(),
                key,
                memory,
                memory_stays,
                vcpus_stay: machine.stays.clone(),
                vcpus,
            });
        }
        others.iter_mut().for_each(|it| *it = it.clamp(0.0, 1.0));
        let free = self.topology.nodes.iter().map(|node| memory::free(node.number)).collect();
        Observation { seconds, others, free, machines }
    }

    /// Writes down the processors of machines' threads that are about to be moved for the first time.
    fn write_down(&mut self) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        for machine in self.machines.all.iter().filter(|machine| machine.fresh && machine.stays.is_none()) {
            let threads: Vec<_> = machine.threads.iter().map(|(thread, _)| *thread).collect();
            ledger.keep(machine.process, &threads)?;
        }
        Ok(())
    }

    /// Pins vCPUs. Others of new machines may run anywhere from now on.
    fn pin(&mut self, pins: &[Pin], warnings: &mut Vec<String>) {
        let mut places: HashMap<(usize, usize), Place> = HashMap::new();
        for (machine, it) in self.machines.all.iter_mut().enumerate().filter(|(_, it)| it.fresh) {
            it.fresh = false;
            if it.stays.is_none() {
                places.extend((0..it.threads.len()).map(|vcpu| ((machine, vcpu), Place::Anywhere)));
            }
        }
        places.extend(pins.iter().map(|pin| ((pin.index.machine, pin.index.vcpu), pin.to)));
        for ((machine, vcpu), place) in places {
            let machine = &mut self.machines.all[machine];
            let processors = place.processors(&self.topology);
            if let Err(why) = threads::allow(machine.threads[vcpu].0, &processors) {
                let why = format!("its vCPUs can't be moved: {why}");
                warnings.push(format!("{} is left alone: {why}", machine.name));
                machine.stays = Some(why);
            }
        }
    }

    /// Moves memory, as far as that is possible; false if nothing moved.
    fn migrate(&mut self, migration: &mut Migration, warnings: &mut Vec<String>) -> bool {
        let number = |node: usize| self.topology.nodes[node].number;
        let ways = (number(migration.from), number(migration.to));
        let machine = &mut self.machines.all[migration.machine];
        let Some((_, memory)) = &mut machine.memory else { return false };
        match memory.migrate(machine.process.pid, ways, migration.bytes, &mut machine.place) {
            Ok(moved) => {
                migration.bytes = moved;
                memory.moved(ways, moved);
            }
            Err(why) => {
                let why = format!("it can't be moved: {why}");
                warnings.push(format!("{}: memory is left where it is: {why}", machine.name));
                memory.stays = Some(why);
                migration.bytes = 0;
            }
        }
        migration.bytes > 0
    }
}

/// A number that no thread or process has that had the same pid before.
fn key(started: u64, number: i32) -> u64 {
    (started << 22) ^ number as u64
}

/// Bytes of a machine's memory on each node, and why it can't be moved.
fn place_of_memory(
    topology: &Topology,
    machine: &mut super::machines::Machine,
) -> (Vec<u64>, Option<String>) {
    // Then there is no question.
    if topology.nodes.len() < 2 {
        return (vec![0; topology.nodes.len()], None);
    }
    match machine.memory() {
        None => (vec![0; topology.nodes.len()], Some("nobody may see where it is".into())),
        Some(memory) => {
            let on = |number: u32| memory.nodes.iter().find(|(node, _)| *node == number).map_or(0, |it| it.1);
            (topology.nodes.iter().map(|node| on(node.number)).collect(), memory.stays.clone())
        }
    }
}
