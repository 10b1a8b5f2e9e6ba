//! The command on this host: steps until it is interrupted, and their reports.

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

/// The command's options.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Seconds between decisions.
    pub interval: f64,
    /// One decision is carried out, and not undone.
    pub once: bool,
    /// Nothing is moved.
    pub dry_run: bool,
    /// Each move is reported.
    pub explain: bool,
    /// Each step is reported as JSON.
    pub json: bool,
}

/// The report of a step, as JSON.
#[derive(Serialize, JsonSchema)]
pub struct StepReport {
    /// Seconds that it is about.
    seconds: f64,
    /// The machines.
    machines: Vec<MachineReport>,
    /// vCPUs that may run elsewhere from now on.
    pins: Vec<PinReport>,
    /// Memory that moves.
    migrations: Vec<MigrationReport>,
    /// Changes that would help and can't be made.
    warnings: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct MachineReport {
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
struct PinReport {
    /// Its machine.
    machine: String,
    /// The index of the vCPU in the machine.
    vcpu: usize,
    /// The processors on which it may run.
    processors: CpuSet,
    /// It has to leave the core where it ran.
    displaces: bool,
    /// In words.
    why: String,
}

#[derive(Serialize, JsonSchema)]
struct MigrationReport {
    /// Its machine.
    machine: String,
    /// The node that has it.
    from: u32,
    /// The node that gets it.
    to: u32,
    /// Bytes that go in this step.
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

/// Undoes what an earlier one has left that was killed, or decided once.
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
                let report = StepReport::of(&session.topology, &step);
                Document::line(report)
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

/// The moves of a step as text, a line each.
fn explained(topology: &Topology, step: &Step) -> String {
    let machines = &step.seen.machines;
    let mut text = String::new();
    for pin in &step.decision.pins {
        let report = PinReport::of(topology, machines, pin);
        text += &format!(
            "{} vCPU {}: processors {}: {}\n",
            report.machine, report.vcpu, report.processors, report.why
        );
    }
    for migration in &step.decision.migrations {
        let report = MigrationReport::of(topology, machines, migration);
        text += &format!(
            "{}: {} of memory from node {} to node {}: its vCPUs can't come there\n",
            report.machine,
            size::show(report.bytes),
            report.from,
            report.to
        );
    }
    text
}

impl StepReport {
    fn of(topology: &Topology, step: &Step) -> StepReport {
        let machines = &step.seen.machines;
        StepReport {
            seconds: step.seen.seconds,
            machines: machines.iter().map(|machine| MachineReport::of(topology, machine)).collect(),
            pins: step.decision.pins.iter().map(|pin| PinReport::of(topology, machines, pin)).collect(),
            migrations: step
                .decision
                .migrations
                .iter()
                .map(|it| MigrationReport::of(topology, machines, it))
                .collect(),
            warnings: step.warnings.clone(),
        }
    }
}

impl MachineReport {
    fn of(topology: &Topology, machine: &Machine) -> MachineReport {
        let cores = machine.vcpus.iter().filter_map(|vcpu| vcpu.core);
        let memory = machine.memory.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        MachineReport {
            name: machine.name.clone(),
            run: machine.vcpus.iter().map(|vcpu| vcpu.run).sum(),
            wait: machine.vcpus.iter().map(|vcpu| vcpu.wait).sum(),
            processors: cores.flat_map(|core| topology.cores[core].pus.iter().copied()).collect(),
            memory: memory.map(|(node, bytes)| (topology.nodes[node].number, *bytes)).collect(),
        }
    }
}

impl PinReport {
    fn of(topology: &Topology, machines: &[Machine], pin: &Pin) -> PinReport {
        PinReport {
            machine: machines[pin.index.machine].name.clone(),
            vcpu: pin.index.vcpu,
            processors: pin.to.processors(topology).into_iter().collect(),
            displaces: pin.displaces,
            why: pin.why.to_string(),
        }
    }
}

impl MigrationReport {
    fn of(topology: &Topology, machines: &[Machine], migration: &Migration) -> MigrationReport {
        MigrationReport {
            machine: machines[migration.machine].name.clone(),
            from: topology.nodes[migration.from].number,
            to: topology.nodes[migration.to].number,
            bytes: migration.bytes,
        }
    }
}
