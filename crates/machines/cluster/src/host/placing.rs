//! The placing of a cluster's machines on this host: placements are found before they start, their threads
//! are pinned once they have some, and both are checked when they are up.

use super::devices::nodes_of;
use super::pages::{self, Left};
use vshmem_base::directories::cluster_names;
use vshmem_base::error::{error, Explain, Result};
use vshmem_hypervisor::launcher::options::{ClusterOptions, MachineOptions, Progress};
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::shared::{affinity, pins};
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Machine, Record};
use vshmem_placement::binding;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::Pages;
use vshmem_placement::plan::{Guest, Placed};
use vshmem_placement::request::{self, Taken};
use vshmem_placement::rules::{Insist, Memory, Rules};

/// The cores and memory that machines of this user's other clusters have.
pub fn taken(except: &str) -> Result<Taken> {
    let mut taken = Taken::default();
    for name in cluster_names()?.iter().filter(|name| *name != except) {
        // An unreadable record does not keep another cluster from being started.
        if let Some(record) = Record::read(name).ok().flatten() {
            record.machines.iter().for_each(|machine| add(&mut taken, &record, machine));
        }
    }
    Ok(taken)
}

/// Adds the cores and memory of a machine, unless it has died.
fn add(taken: &mut Taken, record: &Record, machine: &Machine) {
    if state(record, machine) == MachineState::Died {
        return;
    }
    taken.cpus.extend(machine.cores.iter().map(|core| *core as u32));
    // Reserved pages are counted apart, by what is left of them.
    let sources = machine.placement.iter().filter(|_| machine.pages.reserved().is_none());
    for (nodes, bytes) in sources.flat_map(|placed| placed.sources()) {
        for node in nodes.iter() {
            *taken.memory.entry(node).or_default() += bytes / nodes.len() as u64;
        }
    }
}

/// Finds places for the machines of a cluster that is started, or the cores that each virtual core is pinned
/// to if no placement was asked for: one each, if there are enough, since two that spin must never share one.
/// The caller has the lock by which memory is claimed.
pub fn place_all(launcher: &dyn Launcher, record: &mut Record) -> Result<()> {
    let all: Vec<usize> = (0..record.machines.len()).collect();
    if rules(record).is_some() {
        return place(record, &all);
    }
    if !launcher.facts().can_pin {
        return Ok(());
    }
    let taken = taken(&record.name)?.cpus;
    let mut cores = affinity::available_cores();
    cores.retain(|core| !taken.contains(*core as u32));
    let cpus: Vec<u32> = record.machines.iter().map(|machine| machine.cpus).collect();
    for (machine, share) in
        record.machines.iter_mut().zip(affinity::assign_cores(&cores, &cpus).unwrap_or_default())
    {
        machine.cores = share;
    }
    Ok(())
}

/// Finds places for these machines of a record, if a placement was asked for; the others keep theirs. The
/// caller has the lock by which memory is claimed.
pub fn place(record: &mut Record, indices: &[usize]) -> Result<()> {
    let Some(rules) = rules(record).filter(|_| !indices.is_empty()) else {
        return Ok(());
    };
    let wanted = indices.iter().map(|&index| {
        let machine = &record.machines[index];
        let page = machine.pages.reserved();
        request(&machine.name, machine.cpus, machine.memory, page, nodes_of(&machine.devices), rules)
    });
    let placed = ask(record, wanted.collect(), indices)?;
    for (&index, placed) in indices.iter().zip(placed) {
        write_down(&mut record.machines[index], Some(placed));
    }
    Ok(())
}

/// Gives a machine a placement that was found before, or none. The caller has the lock by which memory is
/// claimed.
///
/// # Errors
/// A machine of another cluster has its cores now.
pub fn set_place(record: &mut Record, index: usize, placed: Option<&Placed>) -> Result<()> {
    let taken = taken(&record.name)?.cpus;
    if placed.is_some_and(|placed| placed.pinned().any(|core| taken.contains(core))) {
        let name = &record.machines[index].name;
        return Err(
            error!("another cluster has got the cores of {name} meanwhile").hint("Repeat the command.")
        );
    }
    write_down(&mut record.machines[index], placed.cloned());
    Ok(())
}

fn write_down(machine: &mut Machine, placed: Option<Placed>) {
    // In the order of virtual cores.
    let pinned = placed.iter().flat_map(Placed::pinned).map(|core| core as usize);
    machine.cores = pinned.collect();
    (machine.placement, machine.resident) = (placed.map(Box::new), None);
}

/// Finds new places for those of these machines that can't have their old ones: they are of another size now,
/// or others have got their cores meanwhile.
pub fn place_anew(record: &mut Record, indices: &[usize]) -> Result<()> {
    let taken = taken(&record.name)?.cpus;
    let fits = |machine: &Machine, placed: &Placed| {
        let page = machine.pages.reserved().unwrap_or(1);
        let has_whole_pages = placed.guest.nodes.iter().all(|node| node.memory % page == 0);
        placed.vcpus.len() == machine.cpus as usize
            && placed.memory == machine.memory
            && placed.near == nodes_of(&machine.devices)
            && has_whole_pages
    };
    let is_free = |placed: &Placed| placed.pinned().all(|core| !taken.contains(core));
    let stays =
        |machine: &Machine| machine.placement.as_deref().is_some_and(|it| fits(machine, it) && is_free(it));
    let moved: Vec<usize> =
        indices.iter().copied().filter(|&index| !stays(&record.machines[index])).collect();
    place(record, &moved)?;
    // Without a placement, a core that is lost is not replaced.
    for &index in indices {
        let machine = &mut record.machines[index];
        if machine.placement.is_none() {
            machine.cores.retain(|core| !taken.contains(*core as u32));
        }
    }
    Ok(())
}

fn rules(record: &Record) -> Option<Rules> {
    record.options.as_ref().and_then(|options| options.placement)
}

/// A request for a machine whose memory comes in reserved pages of this size, if it does.
fn request(
    name: &str,
    cpus: u32,
    memory: u64,
    page: Option<u64>,
    near: CpuSet,
    rules: Rules,
) -> request::Machine {
    let (cpus, page) = (cpus as usize, page.unwrap_or(0));
    request::Machine { name: name.into(), cpus, memory, page, near, rules }
}

/// The placements of machines beside all others but those of this record with these indices.
fn ask(record: &Record, wanted: Vec<request::Machine>, indices: &[usize]) -> Result<Vec<Placed>> {
    let mut taken = taken(&record.name)?;
    let others = record.machines.iter().enumerate().filter(|(index, _)| !indices.contains(index));
    others.for_each(|(_, machine)| add(&mut taken, record, machine));
    if wanted.iter().any(|machine| machine.page > 0) {
        taken.pages_left = Left::for_machines(record, indices)?.reserved;
    }
    let mut machines = request::ask(wanted, taken)?.machines;
    if machines.iter().all(|placed| placed.nodes.is_empty()) {
        return Ok(machines);
    }
    if let Err(why) = binding::check_permitted() {
        for placed in machines.iter_mut().filter(|placed| !placed.nodes.is_empty()) {
            let what = format!("this host does not let memory be bound to nodes: {why}");
            if placed.rules.memory == Memory::Strict {
                return Err(error!("{} can't be placed: {what}", placed.name).hint(
                    "Containers need the capability SYS_NICE for it; memory = \"preferred\" does without.",
                ));
            }
            placed.nodes = CpuSet::default();
            placed.fallbacks.push(what);
        }
    }
    Ok(machines)
}

/// A new placement for a machine of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The machine's name.
    pub machine: String,
    /// The new placement; `None`: it has none any more.
    pub placed: Option<Placed>,
    /// It need not be started anew for that.
    pub live: bool,
    /// A description in words.
    pub text: String,
}

/// The new placements that these options mean for machines of a cluster.
pub fn moves(record: &Record, new: &ClusterOptions) -> Result<Vec<Move>> {
    let wanted = |name: &str| new.machines.iter().find(|machine| machine.name == name);
    let is_new = |machine: &Machine| machine.placement.as_ref().map(|it| it.rules) != new.placement;
    let machines = record.machines.iter().enumerate().filter(|(_, machine)| is_new(machine));
    let moved: Vec<(usize, &MachineOptions)> =
        machines.filter_map(|(index, machine)| Some((index, wanted(&machine.name)?))).collect();
    let indices: Vec<usize> = moved.iter().map(|(index, _)| *index).collect();
    let placed: Vec<Option<Placed>> = match new.placement.filter(|_| !moved.is_empty()) {
        None => moved.iter().map(|_| None).collect(),
        Some(rules) => {
            let all = moved.iter().map(|(index, it)| {
                let machine = &record.machines[*index];
                let page = match machine.pages.wanted == it.pages {
                    true => machine.pages.reserved(),
                    false => it.pages.and_then(Pages::reserved),
                };
                request(&it.name, it.cpus, it.memory, page, nodes_of(&machine.devices), rules)
            });
            ask(record, all.collect(), &indices)?.into_iter().map(Some).collect()
        }
    };
    Ok(moved
        .iter()
        .zip(placed)
        .map(|((index, _), placed)| {
            let machine = &record.machines[*index];
            let live = placed.as_ref().is_some_and(|new| can_become(machine, new));
            let to = placed.as_ref().map_or("no placement".into(), Placed::summary);
            Move { machine: machine.name.clone(), placed, live, text: format!("{}: {to}", machine.name) }
        })
        .collect())
}

/// Whether a machine can be placed so while it runs.
fn can_become(machine: &Machine, new: &Placed) -> bool {
    match &machine.placement {
        Some(old) => old.can_become(new),
        None => new.nodes.is_empty() && new.guest == Guest::flat(machine.cpus as usize),
    }
}

/// Pins the threads of a machine that was started.
///
/// # Errors
/// They can't be pinned, or are not where they must be.
pub fn pin(
    launcher: &dyn Launcher,
    record: &Record,
    index: usize,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let machine = &record.machines[index];
    let Some(pins) = pins::of(machine) else { return Ok(()) };
    let pinned = launcher.pin(record, index, &pins);
    match &machine.placement {
        None => pinned,
        // What is not so is told when it is up, too, but why is known now.
        Some(placed) if placed.rules.cores == Insist::Preferred => {
            pinned.unwrap_or_else(|why| report(Progress::Warning(why.to_string())));
            Ok(())
        }
        Some(placed) => {
            pinned.and_then(|()| insist(placed, true, "cores", &strays(launcher, record, index)?))
        }
    }
}

/// Compares the cores and memory nodes of a machine that is up with its placement. Preferences that were not
/// met are reported.
///
/// # Errors
/// The machine is not where its placement says that it must be.
pub fn check(
    launcher: &dyn Launcher,
    record: &mut Record,
    index: usize,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    check_place(launcher, record, index, report)?;
    pages::check(record, index, report)
}

fn check_place(
    launcher: &dyn Launcher,
    record: &mut Record,
    index: usize,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let machine = &record.machines[index];
    let Some(placed) = machine.placement.clone() else {
        return Ok(());
    };
    let cores = strays(launcher, record, index)?;
    let process = machine.runs.as_ref().and_then(Running::pid).filter(|_| !placed.nodes.is_empty());
    let memory = match process.map(|process| binding::look(process, &placed)) {
        None => vec![],
        Some(Ok((resident, differs))) => {
            record.machines[index].resident = Some(Box::new(resident));
            differs
        }
        Some(Err(why)) => vec![format!("where its memory is can't be told: {why}")],
    };
    insist(&placed, placed.rules.cores == Insist::Strict, "cores", &cores)?;
    insist(&placed, placed.rules.memory == Memory::Strict, "memory", &memory)?;
    for why in placed.fallbacks.iter().chain(&cores).chain(&memory) {
        report(Progress::Warning(format!("{} is not placed as asked: {why}", placed.name)));
    }
    Ok(())
}

/// The differences between a machine's threads and their pins, in words.
fn strays(launcher: &dyn Launcher, record: &Record, index: usize) -> Result<Vec<String>> {
    let machine = &record.machines[index];
    let (Some(pins), Some(process)) = (pins::of(machine), machine.runs.as_ref().and_then(Running::pid))
    else {
        return Ok(vec![]);
    };
    let threads = launcher.core_threads(record, index)?;
    let found = affinity::differences(process, &threads, &pins);
    found.explain(|| format!("could not tell where {} runs", machine.name))
}

/// An error if there are differences from a placement that must be met.
fn insist(placed: &Placed, must: bool, what: &str, differs: &[String]) -> Result<()> {
    match must && !differs.is_empty() {
        false => Ok(()),
        true => Err(error!("{} is not placed as it must be: {}", placed.name, differs.join("; "))
            .hint(format!("With {what} = \"preferred\" that is only a warning."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::cluster::{Description, MachineGroup, Placement};
    use serde_json::json;
    use vshmem_hypervisor::shared::affinity::Pins;

    fn machine(placement: Option<Placed>, cores: &[usize]) -> Machine {
        let machine = json!({"name": "a", "index": 0, "runs": null, "address": null, "cores": cores, "cpus": 2, "memory": 8});
        Machine { placement: placement.map(Box::new), ..serde_json::from_value(machine).unwrap() }
    }

    fn placed(rules: Rules, nodes: &str) -> Placed {
        Placed {
            name: "a".into(),
            memory: 8,
            rules,
            vcpus: vec!["1".parse().unwrap(), "3".parse().unwrap()],
            emulator: "0".parse().unwrap(),
            nodes: nodes.parse().unwrap(),
            near: CpuSet::default(),
            guest: Guest::flat(2),
            why: vec![],
            fallbacks: vec![],
        }
    }

    fn with_policy(policy: &str) -> Rules {
        serde_json::from_value(json!({ "policy": policy })).unwrap()
    }

    #[test]
    fn threads_are_pinned_as_placed_or_to_cores_or_not_at_all() {
        assert_eq!(pins::of(&machine(None, &[])), None);
        let told = |pins: Pins| {
            let vcpus: Vec<_> = pins.vcpus.iter().map(ToString::to_string).collect();
            (vcpus.join(" "), pins.others.map(|set| set.to_string()))
        };
        assert_eq!(told(pins::of(&machine(None, &[4, 0])).unwrap()), ("4 0".into(), None));
        let pinned = machine(Some(placed(Rules::default(), "0")), &[]);
        assert_eq!(told(pins::of(&pinned).unwrap()), ("1 3".into(), Some("0".into())));
        assert_eq!(pins::of(&machine(Some(placed(with_policy("unpinned"), "")), &[])), None);
        let mut settled = machine(None, &[7]);
        write_down(&mut settled, pinned.placement.map(|placed| *placed));
        assert_eq!(settled.cores, [1, 3]);
        write_down(&mut settled, None);
        assert!(settled.cores.is_empty() && settled.placement.is_none());
    }

    #[test]
    fn what_machines_have_is_taken_while_they_run() {
        let mut record: Record = serde_json::from_value(json!({
            "version": 2, "name": "n", "boot": vshmem_base::directories::boot_id(), "starter": null, "accel": "",
            "kernel": "/k", "pool": "/p", "pool_size": 1 << 20, "channels": 1, "since": 0, "machines": []}))
        .unwrap();
        let mut one = machine(Some(placed(Rules::default(), "0-1")), &[]);
        let its = one.placement.take().map(|placed| *placed);
        write_down(&mut one, its);
        let mut taken = Taken::default();
        add(&mut taken, &record, &one);
        assert_eq!(taken, Taken::default(), "it does not run");
        record.starter = Some(vshmem_base::process::Process::current());
        add(&mut taken, &record, &one);
        assert_eq!(
            taken,
            Taken { cpus: "1,3".parse().unwrap(), memory: [(0, 4), (1, 4)].into(), ..Taken::default() }
        );
    }

    #[test]
    fn a_placement_that_goes_takes_a_restart() {
        let group = MachineGroup { name: Some("a".into()), ..MachineGroup::default() };
        let description = Description { machines: vec![group], ..Description::default() };
        let options = description.resolve().unwrap().1;
        let mut record: Record = serde_json::from_value(json!({
            "version": 2, "name": "n", "boot": "", "starter": null, "accel": "", "kernel": "/k", "pool": "/p",
            "pool_size": 1 << 20, "channels": 1, "since": 0, "machines": []}))
        .unwrap();
        record.machines.push(machine(None, &[0, 1]));
        assert_eq!(moves(&record, &options).unwrap(), []);
        record.machines[0] = machine(Some(placed(with_policy("pinned"), "0")), &[]);
        let moved = moves(&record, &options).unwrap().remove(0);
        assert_eq!(moved.text, "a: no placement");
        assert!(!moved.live && moved.placed.is_none());
        let same = ClusterOptions { placement: Some(with_policy("pinned")), ..options };
        assert_eq!(moves(&record, &same).unwrap(), []);
        assert_eq!(Placement::default().rules(), Rules::default());
        let unpinned = placed(with_policy("unpinned"), "");
        assert!(can_become(&machine(None, &[]), &unpinned));
        assert!(!can_become(&machine(None, &[]), &placed(Rules::default(), "0")));
    }
}
