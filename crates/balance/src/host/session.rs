//! From the first look at a host until all is as it was before.

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

/// Seconds between looks at which machines there are.
const REFRESH: f64 = 1.0;

/// This host while it is balanced.
pub struct Session {
    /// Its cores and nodes.
    pub topology: Topology,
    settings: Settings,
    core_of: HashMap<u32, usize>,
    machines: Machines,
    refreshed: Option<Instant>,
    history: History,
    looked: Instant,
    processors: Processors,
    /// What was changed; `None` if nothing may be.
    ledger: Option<Ledger>,
    told: HashSet<String>,
}

/// A step: what was seen and decided.
pub struct Step {
    /// What was seen.
    pub seen: Observation,
    /// What was decided.
    pub decision: Decision,
    /// What else there is to say, each once.
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
            looked: Instant::now(),
            processors: Processors::read(),
            ledger: if dry { None } else { Some(Ledger::open()?) },
            told: HashSet::new(),
        };
        session.machines.refresh()?;
        session.looked = Instant::now();
        Ok(session)
    }

    /// How many machines there are, and how many vCPUs they have.
    pub fn count(&self) -> (usize, usize) {
        (self.machines.all.len(), self.machines.all.iter().map(|it| it.threads.len()).sum())
    }

    /// Turns the kernel's own NUMA balancing off until the end. What stands in the way, if anything does.
    pub fn keep_kernel_off(&mut self) -> Option<String> {
        // On one node it does nothing.
        let ledger = self.ledger.as_mut().filter(|_| self.topology.nodes.len() > 1)?;
        ledger.turn_kernel_off(Path::new(kernel::FILE)).err().map(|why| {
            format!("{why}. It may move what is moved here back: as root, write 0 to {}", kernel::FILE)
        })
    }

    /// Looks, decides and, unless nothing may be changed, does what is decided.
    ///
    /// # Errors
    /// Machines can't be looked for, or what is to be changed can't be written down.
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
        warnings.retain(|text| self.told.insert(text.clone()));
        Ok(Step { seen, decision, warnings })
    }

    /// Puts all threads where they might run before, and the kernel's own balancing on again if it was.
    /// Returns for how many threads, and what could not be undone.
    pub fn end(&mut self) -> (usize, Vec<String>) {
        self.ledger.as_mut().map(Ledger::undo).unwrap_or_default()
    }

    fn observe(&mut self) -> Observation {
        let (processors, now) = (Processors::read(), Instant::now());
        let seconds = (now - self.looked).as_secs_f64().max(1e-3);
        let mut others = processors.since(&self.processors, &self.topology, seconds);
        (self.processors, self.looked) = (processors, now);
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

    /// Writes down where the threads of machines may run that are about to be moved for the first time.
    fn write_down(&mut self) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        for machine in self.machines.all.iter().filter(|machine| machine.fresh && machine.stays.is_none()) {
            let threads: Vec<_> = machine.threads.iter().map(|(thread, _)| *thread).collect();
            ledger.keep(machine.process, &threads)?;
        }
        Ok(())
    }

    /// Pins vCPUs. Those of new machines that are not pinned may run anywhere from now on.
    fn pin(&mut self, pins: &[Pin], warnings: &mut Vec<String>) {
        let mut places: HashMap<(usize, usize), Place> = HashMap::new();
        for (machine, it) in self.machines.all.iter_mut().enumerate().filter(|(_, it)| it.fresh) {
            it.fresh = false;
            if it.stays.is_none() {
                places.extend((0..it.threads.len()).map(|vcpu| ((machine, vcpu), Place::Anywhere)));
            }
        }
        places.extend(pins.iter().map(|pin| ((pin.which.machine, pin.which.vcpu), pin.to)));
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

    /// Moves memory, as much as could be.
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

/// What tells a thread or process from one that had its number before.
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
