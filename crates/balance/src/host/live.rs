//! `vshmem balance` on this host: steps until it is interrupted, and what it says meanwhile.

use super::session::{Session, Step};
use crate::moves::{Migration, Pin};
use crate::observation::Machine;
use crate::policy::Settings;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, Instant};
use vshmem_base::document::Document;
use vshmem_base::{interrupt, size, Result};
use vshmem_place::topology::Topology;
use vshmem_placement::cpuset::CpuSet;

/// How to go about it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Seconds between decisions.
    pub interval: f64,
    /// One decision, of which what it has moved stays.
    pub once: bool,
    /// Nothing is moved.
    pub dry_run: bool,
    /// Each move is told.
    pub explain: bool,
    /// Each step is told as JSON.
    pub json: bool,
}

/// A step, as JSON.
#[derive(Serialize, JsonSchema)]
pub struct Told {
    /// Seconds that it is about.
    seconds: f64,
    /// The machines.
    machines: Vec<MachineTold>,
    /// vCPUs that may run elsewhere from now on.
    pins: Vec<PinTold>,
    /// Memory that moves.
    migrations: Vec<MigrationTold>,
    /// What would help and can't be done.
    warnings: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct MachineTold {
    /// Its name.
    name: String,
    /// Processors that its vCPUs had.
    run: f64,
    /// Processors that they waited for.
    wait: f64,
    /// The processors on which they ran last.
    processors: CpuSet,
    /// Pairs of a node and the bytes of its memory there; empty on a host with one.
    memory: Vec<(u32, u64)>,
}

#[derive(Serialize, JsonSchema)]
struct PinTold {
    /// Its machine.
    machine: String,
    /// Which vCPU of it.
    vcpu: usize,
    /// The processors on which it may run.
    processors: CpuSet,
    /// It has to leave the core where it ran.
    displaces: bool,
    /// In words.
    why: String,
}

#[derive(Serialize, JsonSchema)]
struct MigrationTold {
    /// Its machine.
    machine: String,
    /// The node that has it.
    from: u32,
    /// The node that gets it.
    to: u32,
    /// How much goes in this step.
    bytes: u64,
}

/// Balances until the user stops it. `say` prints a text, and says whether anybody still reads.
///
/// # Errors
/// Another process balances this user's machines, or machines can't be looked for.
pub fn run(topology: Topology, options: Options, say: &mut dyn FnMut(&str) -> Result<bool>) -> Result<()> {
    interrupt::watch();
    let mut session = Session::begin(topology, Settings::default(), options.dry_run)?;
    if !options.once {
        if let Some(why) = session.keep_kernel_off() {
            eprintln!("vshmem balance: {why}");
        }
    }
    if !options.json {
        say(&beginning(&session))?;
    }
    let outcome = steps(&mut session, options, say);
    if options.once && outcome.is_ok() {
        return Ok(());
    }
    let (threads, failures) = session.end();
    for why in failures {
        eprintln!("vshmem balance: {why}");
    }
    outcome?;
    match options.json || options.dry_run {
        true => Ok(()),
        false => say(&format!("{threads} vCPUs may run again where they might before\n")).map(drop),
    }
}

/// Undoes what one that was killed, or decided once, has left.
///
/// # Errors
/// Another process balances this user's machines.
pub fn restore(topology: Topology) -> Result<String> {
    let (threads, failures) = Session::begin(topology, Settings::default(), false)?.end();
    for why in failures {
        eprintln!("vshmem balance: {why}");
    }
    Ok(format!("{threads} vCPUs may run again where they might before\n"))
}

fn beginning(session: &Session) -> String {
    let (machines, vcpus) = session.count();
    let (cores, nodes) = (session.topology.cores.len(), session.topology.nodes.len());
    format!("machines: {machines}, with {vcpus} vCPUs; cores: {cores}, on {nodes} memory node(s)\n")
}

fn steps(session: &mut Session, options: Options, say: &mut dyn FnMut(&str) -> Result<bool>) -> Result<()> {
    loop {
        let due = Instant::now() + Duration::from_secs_f64(options.interval);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if interrupt::signal().is_some() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        let step = session.step()?;
        let text = match options.json {
            true => {
                let told = Told::of(&session.topology, &step);
                Document::line(told)
            }
            false => {
                step.warnings.iter().for_each(|why| eprintln!("vshmem balance: {why}"));
                if options.explain {
                    explained(&session.topology, &step)
                } else {
                    String::new()
                }
            }
        };
        if (!text.is_empty() && !say(&text)?) || options.once {
            return Ok(());
        }
    }
}

/// The moves of a step, a line each.
fn explained(topology: &Topology, step: &Step) -> String {
    let machines = &step.seen.machines;
    let mut text = String::new();
    for pin in &step.decision.pins {
        let told = PinTold::of(topology, machines, pin);
        text +=
            &format!("{} vCPU {}: processors {}: {}\n", told.machine, told.vcpu, told.processors, told.why);
    }
    for migration in &step.decision.migrations {
        let told = MigrationTold::of(topology, machines, migration);
        text += &format!(
            "{}: {} of memory from node {} to node {}: its vCPUs can't come there\n",
            told.machine,
            size::show(told.bytes),
            told.from,
            told.to
        );
    }
    text
}

impl Told {
    fn of(topology: &Topology, step: &Step) -> Told {
        let machines = &step.seen.machines;
        Told {
            seconds: step.seen.seconds,
            machines: machines.iter().map(|machine| MachineTold::of(topology, machine)).collect(),
            pins: step.decision.pins.iter().map(|pin| PinTold::of(topology, machines, pin)).collect(),
            migrations: step
                .decision
                .migrations
                .iter()
                .map(|it| MigrationTold::of(topology, machines, it))
                .collect(),
            warnings: step.warnings.clone(),
        }
    }
}

impl MachineTold {
    fn of(topology: &Topology, machine: &Machine) -> MachineTold {
        let cores = machine.vcpus.iter().filter_map(|vcpu| vcpu.core);
        let memory = machine.memory.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        MachineTold {
            name: machine.name.clone(),
            run: machine.vcpus.iter().map(|vcpu| vcpu.run).sum(),
            wait: machine.vcpus.iter().map(|vcpu| vcpu.wait).sum(),
            processors: cores.flat_map(|core| topology.cores[core].pus.iter().copied()).collect(),
            memory: memory.map(|(node, bytes)| (topology.nodes[node].number, *bytes)).collect(),
        }
    }
}

impl PinTold {
    fn of(topology: &Topology, machines: &[Machine], pin: &Pin) -> PinTold {
        PinTold {
            machine: machines[pin.which.machine].name.clone(),
            vcpu: pin.which.vcpu,
            processors: pin.to.processors(topology).into_iter().collect(),
            displaces: pin.displaces,
            why: pin.why.to_string(),
        }
    }
}

impl MigrationTold {
    fn of(topology: &Topology, machines: &[Machine], migration: &Migration) -> MigrationTold {
        MigrationTold {
            machine: machines[migration.machine].name.clone(),
            from: topology.nodes[migration.from].number,
            to: topology.nodes[migration.to].number,
            bytes: migration.bytes,
        }
    }
}
