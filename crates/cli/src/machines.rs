//! The commands `vshmem ps`, `restart` and `down`.

use crate::age::{age, show_age};
use crate::args::ClusterArg;
use crate::complete::values;
use crate::json::print_document;
use crate::output::print;
use crate::size;
use crate::table::{or_dash, Table};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Display;
use std::time::{Duration, Instant};
use vshmem_base::error::Explain;
use vshmem_base::{interrupt, Result};
use vshmem_cluster::host::cluster::{self, health, list, Listed};
use vshmem_cluster::host::restart;
use vshmem_devices::choose::Assigned;
use vshmem_guest::settings::uplink::{Addresses, Card};
use vshmem_hypervisor::launcher;
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::launcher::starting::uplink_of;
use vshmem_hypervisor::running::attached::Monitor;
use vshmem_hypervisor::running::health::{attached_machines, AttachedStatus};
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::state::machine::{Health, MachineState};
use vshmem_hypervisor::state::record::{Machine, MadePool, Record};
use vshmem_inspect::participants::Member;
use vshmem_inspect::pools::find;
use vshmem_inspect::sample::Watched;
use vshmem_placement::binding::Resident;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::Given;
use vshmem_placement::plan::{Guest, Placed};
use vshmem_placement::rules::Rules;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem ps
  vshmem ps -l
  vshmem ps --json | jq -r '.clusters[].machines[].name'

Nothing is changed. A machine that has died is shown with its last output; vshmem restart starts it again, with the pool
as it is, and vshmem down removes the cluster. What the machine held in a pool is released when vshmem agent serves the
pool, by vshmem restart, and by vshmem check.")]
pub struct Ps {
    /// Show all columns, and the memory of pools
    #[arg(long, short)]
    pub long: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "long")]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem restart                           all machines that died
  vshmem restart vm1
  vshmem restart -c other vm0 vm2

A machine that runs is turned off first, like a power failure, once everything that it needs to start again has been
found. What its processes held in pools is released; other machines run on, and pools stay as they are. The machine then
has the pools that it began with; those that it was granted later have to be granted again. To have the dead as they were,
with those pools: vshmem repair.")]
pub struct Restart {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// The machines; by default, all of the cluster that died
    #[arg(value_name = "VM", add = values::machines())]
    pub machines: Vec<String>,
    /// Time limit for booting each machine, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem down
  vshmem down --all")]
pub struct Down {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// All your clusters, whatever --cluster says
    #[arg(long)]
    pub all: bool,
}

/// Each machine's member in the cluster's pool.
fn members(listed: &Listed) -> Vec<Option<Member>> {
    let pool = find(Some(&launcher::table::of(&listed.record).pool_reference(&listed.record)))
        .ok()
        .and_then(|found| Watched::open(found.first()?).ok());
    let members = pool.map(|pool| pool.members()).unwrap_or_default();
    let is = |member: &&Member, name: &str| !member.here && member.name == name;
    let of = |name: &str| {
        // A machine that was restarted may have a dead entry as well.
        let all = members.iter().filter(|member| is(member, name));
        all.max_by_key(|member| member.alive).cloned()
    };
    listed.record.machines.iter().map(|machine| of(&machine.name)).collect()
}

/// Restarts machines.
pub fn restart(restart: &Restart) -> Result<u8> {
    let begun = Instant::now();
    interrupt::watch();
    let mut tell = |step: Progress| {
        let seconds = begun.elapsed().as_secs_f64();
        match step {
            Progress::Message(text) => tell!("vshmem restart: {text}"),
            Progress::Warning(text) => tell!("vshmem restart: warning: {text}"),
            Progress::Ready(name) if !restart.quiet => {
                tell!("vshmem restart: {name} is up ({seconds:.1} s)");
            }
            Progress::Ready(_) => (),
        }
    };
    let timeout = Duration::from_secs(restart.timeout);
    let cluster = &restart.cluster.cluster;
    let done = restart::restart(cluster, &restart.machines, timeout, &mut tell);
    // Machines that ran were turned off for it.
    done.map(|()| 0).map_err(|error| match interrupt::signal() {
        Some(_) => error.hint(format!("Start those that are off now with: vshmem restart -c {cluster}")),
        None => error,
    })
}

/// Lists machines.
pub fn ps(ps: &Ps) -> Result<u8> {
    let (attached, listed) = (attached_machines()?, list()?);
    let all = All::of(&listed, &attached);
    if ps.json {
        return print_document(all).map(|()| 0);
    }
    if all.clusters.is_empty() && all.attached.is_empty() {
        tell!("You have no machines. Start some with: vshmem up");
        return Ok(0);
    }
    let machines = all.table();
    print(&if ps.long { machines } else { machines.columns(&COLUMNS) }.layout())?;
    let pools = all.pools();
    if ps.long && pools.len() > 1 {
        print(&format!("\n{}", pools.layout()))?;
    }
    for (name, health) in all.health() {
        if let Some(why) = &health.no_driver {
            tell!("vshmem: {name} goes on without vshmem.ko: {why}");
        }
    }
    for listed in &listed {
        for (machine, words) in listed.record.machines.iter().zip(&listed.last_output) {
            if !words.is_empty() {
                tell!("The last output of {}:{words}", machine.name);
            }
        }
        if let Some(advice) = advice(listed) {
            tell!("vshmem: {advice}");
        }
    }
    Ok(0)
}

/// The document of `ps --json`, as a value.
///
/// # Errors
/// Machines can't be listed.
pub fn snapshot() -> Result<serde_json::Value> {
    let (attached, listed) = (attached_machines()?, list()?);
    serde_json::to_value(All::of(&listed, &attached)).explain(|| "writing what there is of machines".into())
}

/// The columns that fit a terminal of 80.
const COLUMNS: [&str; 8] = ["CLUSTER", "VM", "STATE", "UP", "ADDRESS", "PROCESSES", "WAITING", "POOLS"];

impl<'a> All<'a> {
    fn of(listed: &'a [Listed], attached: &'a [AttachedStatus]) -> All<'a> {
        let clusters = listed.iter().map(Cluster::of).collect();
        All { clusters, attached: attached.iter().map(AttachedMachine::of).collect() }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(
            "CLUSTER  VM  STATE  ACCEL  CPUS  MEMORY  POOL  DOORBELL  ADDRESS  PID  UP  PROCESSES  WAITING  NODES  PAGES  POOLS",
        );
        for cluster in &self.clusters {
            let pool = size::show(cluster.pool_size);
            let doorbell = if cluster.wakes { "yes" } else { "no" };
            for machine in &cluster.machines {
                // A machine becomes a member with its first process that uses the pool.
                let count = |n: fn(&Member) -> u32| machine.member.as_ref().map_or(0, n);
                table.row(&[
                    &cluster.name,
                    &machine.name,
                    &state_name(machine.state),
                    &cluster.accel,
                    &machine.cpus,
                    &size::show(machine.memory),
                    &pool,
                    &doorbell,
                    &or_dash(machine.address),
                    &or_dash(machine.pid),
                    &or_dash(machine.up.map(show_age)),
                    &count(|member| member.processes),
                    &count(|member| member.waiting),
                    &nodes(machine.resident),
                    &in_pages(machine.resident),
                    &pool_names(&machine.health),
                ]);
            }
        }
        for machine in &self.attached {
            let state = match machine.state {
                AttachedState::Running => "running",
                AttachedState::Off => "off",
            };
            // The rest is unknown.
            let mut row: [&dyn Display; 16] = [&"-"; 16];
            let pools = pool_names(&machine.health);
            (row[0], row[1], row[2], row[15]) = (&"(attached)", &machine.name, &state, &pools);
            table.row(&row);
        }
        table
    }

    /// The pools whose memory was taken before machines got them.
    fn pools(&self) -> Table {
        let mut table = Table::new("CLUSTER  POOL  SIZE  NODES  PAGES  TAKEN  FILE");
        for cluster in &self.clusters {
            for pool in cluster.pools.iter().filter(|pool| pool.resident.is_some()) {
                table.row(&[
                    &cluster.name,
                    &pool.name,
                    &size::show(pool.size),
                    &nodes(pool.resident.as_ref()),
                    &in_pages(pool.resident.as_ref()),
                    &or_dash(pool.pages.populated),
                    &pool.path.display(),
                ]);
            }
        }
        table
    }

    /// The names of all machines, and their health.
    fn health(&self) -> impl Iterator<Item = (&str, &Health)> {
        let started = self.clusters.iter().flat_map(|cluster| &cluster.machines);
        let started = started.map(|machine| (machine.name, &machine.health));
        started.chain(self.attached.iter().map(|machine| (machine.name, &machine.health)))
    }
}

/// Advice about machines that died.
fn advice(listed: &Listed) -> Option<String> {
    let Listed { record, states, .. } = listed;
    let cluster = &record.name;
    let machines = record.machines.iter().zip(states);
    let died = machines.filter(|(_, state)| **state == MachineState::Died);
    let died: Vec<&str> = died.map(|(machine, _)| machine.name.as_str()).collect();
    if died.is_empty() {
        return None;
    }
    if died.len() == states.len() && !record.is_left_to_restart() {
        return Some(format!(
            "the cluster {cluster} has no machine that can be restarted: remove it with vshmem down -c {cluster}"
        ));
    }
    Some(format!(
        "machines of the cluster {cluster} have died: {}. Restart them, with the pool as it is: vshmem restart -c {cluster}. \
         Or end the cluster: vshmem down -c {cluster}",
        died.join(", ")
    ))
}

fn pool_names(health: &Health) -> String {
    or_dash(Some(health.pools.join(",")).filter(|names| !names.is_empty()))
}

/// The nodes of this host that memory was on.
fn nodes(resident: Option<&Resident>) -> String {
    or_dash(resident.map(Resident::on).filter(|nodes| !nodes.is_empty()))
}

/// The pages that memory was in.
fn in_pages(resident: Option<&Resident>) -> String {
    or_dash(resident.map(Resident::in_pages).filter(|pages| !pages.is_empty()))
}

fn state_name(state: MachineState) -> &'static str {
    match state {
        MachineState::Starting => "starting",
        MachineState::Running => "running",
        MachineState::Died => "died",
    }
}

/// The process or domain of a machine that has not died; its number may be reused otherwise.
fn runs(machine: &Machine, state: MachineState) -> Option<&Running> {
    let runs = machine.runs.as_ref();
    runs.filter(|_| state != MachineState::Died)
}

/// Seconds that a machine has been up; `None`: it has died.
fn up_for(record: &Record, machine: &Machine, state: MachineState) -> Option<u64> {
    (state != MachineState::Died).then(|| age(machine.since.unwrap_or(record.since)))
}

/// All machines, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct All<'a> {
    /// Clusters.
    clusters: Vec<Cluster<'a>>,
    /// Machines that were attached.
    attached: Vec<AttachedMachine<'a>>,
}

/// A cluster.
#[derive(Serialize, JsonSchema)]
struct Cluster<'a> {
    /// Its name.
    name: &'a str,
    /// The accelerator that executes the machines' instructions.
    accel: &'a str,
    /// The kernel image that the machines boot.
    kernel: &'a std::path::Path,
    /// Virtual cores of each machine; where they differ, those of the first.
    cpus: u32,
    /// Memory of each machine in bytes; where it differs, that of the first.
    memory: u64,
    /// The file of the pool that they share.
    pool: &'a std::path::Path,
    /// Its size in bytes.
    pool_size: u64,
    /// The machines can ring each other.
    doorbell: bool,
    /// Waiters in the machines are woken; otherwise they poll.
    #[serde(skip)]
    wakes: bool,
    /// The driver that they load, if any.
    driver: Option<&'a std::path::Path>,
    /// Seconds since it was started.
    up: u64,
    /// The pools that were made for it on this host, its own one first, with their memory.
    pools: &'a [MadePool],
    /// Its machines.
    machines: Vec<MachineEntry<'a>>,
}

/// A machine of a cluster.
#[derive(Serialize, JsonSchema)]
struct MachineEntry<'a> {
    /// Its name.
    name: &'a str,
    /// Its state.
    state: MachineState,
    /// Seconds since it was last started; null: it has died.
    up: Option<u64>,
    /// Its address on the network between the machines; null: it has none.
    address: Option<&'a str>,
    /// Its card on a network outside; null: it has none.
    uplink: Option<UplinkEntry>,
    /// The pid of the process that runs it, if any.
    pid: Option<i32>,
    /// Its domain id, if it is a domain.
    domain: Option<u16>,
    /// Its virtual cores; zero: an older Vshmem has started it.
    cpus: u32,
    /// Its memory in bytes.
    memory: u64,
    /// The devices of the host that it has for itself.
    devices: &'a [Assigned],
    /// The host's cores that its virtual cores are pinned to.
    cores: &'a [usize],
    /// Its placement; null: none was asked for.
    placement: Option<Placement<'a>>,
    /// The pages of its memory that were asked for, and those that it was given.
    pages: &'a Given,
    /// The nodes and pages of its memory when it had come up, as far as it had touched it then; null: that
    /// could not be told.
    resident: Option<&'a Resident>,
    /// Its member in the cluster's pool; null: none of its processes has used the pool.
    member: Option<Member>,
    #[serde(flatten)]
    health: Health,
}

/// A machine's card on a network outside of its cluster.
#[derive(Serialize, JsonSchema)]
struct UplinkEntry {
    /// Its address on the wire.
    mac: String,
    /// Its address, with the bits of the net mask; null: it comes from a DHCP server.
    address: Option<String>,
}

impl UplinkEntry {
    fn of(card: Card) -> UplinkEntry {
        let address = match card.addresses {
            Addresses::Dhcp => None,
            Addresses::Static(own) => Some(format!("{}/{}", own.address, own.prefix)),
        };
        UplinkEntry { mac: card.mac, address }
    }
}

/// The placement of a machine.
#[derive(Serialize, JsonSchema)]
struct Placement<'a> {
    /// The rules that were asked for.
    rules: &'a Rules,
    /// The host's processors that each virtual core may run on, in the order of virtual cores.
    vcpus: &'a [CpuSet],
    /// The host's processors that the hypervisor's other threads may run on.
    emulator: &'a CpuSet,
    /// The memory nodes of the host that its memory comes from; empty: any.
    nodes: &'a CpuSet,
    /// The sockets, cores and memory nodes that it sees.
    guest: &'a Guest,
    /// Wishes that could not be met, a sentence each.
    fallbacks: &'a [String],
    /// The nodes and pages of its memory when it had come up; null: that could not be told.
    resident: Option<&'a Resident>,
}

impl<'a> Placement<'a> {
    fn of(machine: &'a Machine) -> Option<Placement<'a>> {
        let Placed { rules, vcpus, emulator, nodes, guest, fallbacks, .. } = machine.placement.as_deref()?;
        let resident = machine.resident.as_deref();
        Some(Placement { rules, vcpus, emulator, nodes, guest, fallbacks, resident })
    }
}

/// A machine that was attached.
#[derive(Serialize, JsonSchema)]
struct AttachedMachine<'a> {
    /// Its name.
    name: &'a str,
    /// Its state.
    state: AttachedState,
    /// The way in which its hypervisor is reached.
    reach: &'a Monitor,
    #[serde(flatten)]
    health: Health,
}

/// The state of an attached machine.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AttachedState {
    /// It answers.
    Running,
    /// It does not.
    Off,
}

impl<'a> Cluster<'a> {
    fn of(listed: &'a Listed) -> Cluster<'a> {
        let record = &listed.record;
        let machines = record.machines.iter().zip(&listed.states).zip(members(listed));
        let machine = |((machine, &state), member): ((&'a Machine, _), _)| MachineEntry {
            name: &machine.name,
            state,
            up: up_for(record, machine, state),
            address: machine.address.as_deref(),
            uplink: uplink_of(record, machine).map(UplinkEntry::of),
            pid: runs(machine, state).and_then(Running::pid),
            domain: runs(machine, state).and_then(Running::domain),
            cpus: machine.cpus,
            memory: machine.memory,
            devices: &machine.devices,
            cores: &machine.cores,
            placement: Placement::of(machine),
            pages: &machine.pages,
            resident: machine.resident.as_deref(),
            member,
            health: match state {
                MachineState::Running => health(record, machine),
                _ => Health::default(),
            },
        };
        Cluster {
            name: &record.name,
            accel: &record.accel,
            kernel: &record.kernel,
            cpus: record.machines.first().map_or(0, |machine| machine.cpus),
            memory: record.machines.first().map_or(0, |machine| machine.memory),
            pool: &record.pool,
            pool_size: record.pool_size,
            doorbell: record.doorbell,
            wakes: launcher::table::of(record).wakes(record),
            driver: record.driver.as_deref(),
            up: age(record.since),
            pools: &record.pools,
            machines: machines.map(machine).collect(),
        }
    }
}

impl<'a> AttachedMachine<'a> {
    fn of(one: &'a AttachedStatus) -> AttachedMachine<'a> {
        AttachedMachine {
            name: &one.record.name,
            state: match one.health {
                Some(_) => AttachedState::Running,
                None => AttachedState::Off,
            },
            reach: &one.record.monitor,
            health: one.health.clone().unwrap_or_default(),
        }
    }
}

/// Ends machines.
pub fn down(down: &Down) -> Result<u8> {
    let one = (!down.all).then_some(down.cluster.cluster.as_str());
    cluster::down(one)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A cluster of two machines.
    fn record(name: &str) -> Record {
        let machine = |index: u32| json!({"name": format!("vm{index}"), "index": index, "runs": null, "address": null, "cores": []});
        let record = json!({
            "version": 2, "name": name, "boot": "", "starter": null, "accel": "", "kernel": "/kernel", "cpus": 1,
            "memory": 1 << 29, "pool": "/none", "pool_size": 1 << 20, "channels": 1, "since": age(7200),
            "machines": [machine(0), machine(1)]
        });
        serde_json::from_value(record).expect("a record")
    }

    #[test]
    fn a_machine_that_was_started_anew_is_younger_than_its_cluster() {
        let mut record = record("young");
        record.machines[1].since = Some(age(180));
        let up = |place: usize, state| up_for(&record, &record.machines[place], state).map(show_age);
        assert_eq!(up(0, MachineState::Running).as_deref(), Some("2h"));
        assert_eq!(up(1, MachineState::Running).as_deref(), Some("3m"));
        assert_eq!(up(1, MachineState::Died), None);
    }
}
