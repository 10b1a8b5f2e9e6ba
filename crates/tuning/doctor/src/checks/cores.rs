//! The cores that threads of machines may use.

use crate::check::Check;
use crate::cpus::{self, Cpus};
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, without_names, Machine, MachineThread};
use crate::matching::{assign, Matching};
use crate::setting::Setting;
use crate::system::{System, Unseen};
use std::collections::BTreeSet;

const HAN: &str =
    "Han et al. 2010 (pinned and unpinned processors); Song, Chen and Zang 2011, 3.3 (cache sharing)";
const NO_MACHINE: &str = "no machine of QEMU can be seen here";

/// Virtual processors that can't but share a core.
pub const CPUS: Check = Check {
    id: "shared-cores",
    title: "Each virtual processor has a core",
    about: "Virtual processors that are bound to too few cores take turns there, whatever the scheduler does: one that \
        holds a lock waits for one that spins for it. The check gives each a core out of those that it may use, as far \
        as that goes, over all machines; those for which it does not go share.",
    by_hand: "grep Cpus_allowed_list /proc/$(pgrep -o qemu-system)/task/*/status; vshmem ps --json | jq '.clusters[].machines[].cores'",
    remedy: "bind them to cores of their own, or run fewer virtual processors",
    class: Class::Live,
    risk: "another core may be on another node than the machine's memory, or have work that is not of a machine",
    source: HAN,
    causes: &[],
    look: shared,
};

fn shared(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    if all.is_empty() {
        return Ok(Verdict::fine(NO_MACHINE));
    }
    let vcpus: Vec<(&Machine, &MachineThread)> =
        all.iter().flat_map(|machine| machine.vcpus.iter().map(move |vcpu| (machine, vcpu))).collect();
    let online = look.online()?;
    let allowed: Vec<Cpus> = vcpus.iter().map(|(_, vcpu)| &vcpu.allowed & &online).collect();
    let matching = assign(&allowed);
    if matching.left.is_empty() {
        let unnamed = without_names(&all);
        return Ok(unnamed.map_or_else(|| Verdict::fine("there is a core for each"), Verdict::Unknown));
    }
    let crowd: Vec<String> =
        matching.crowded.iter().map(|&it| format!("{} of {}", vcpus[it].1.name, vcpus[it].0.name)).collect();
    let cores: Cpus = matching.crowded.iter().flat_map(|&it| allowed[it].iter().copied()).collect();
    Ok(Verdict::Costs(Costs {
        why: format!("{} share the cores {}.", crowd.join(", "), cpus::show(&cores)),
        estimate: format!(
            "{:.1} processors to a core there: each runs that much slower, and more where they wait for each other",
            crowd.len() as f64 / cores.len() as f64
        ),
        changes: free_cores(look.system, &all, &vcpus, &matching),
        ..Costs::default()
    }))
}

/// Binds those for which no core was left to cores that no virtual processor was given, on the same node if
/// there is one; nothing if there are too few.
fn free_cores(
    system: &System,
    all: &[Machine],
    vcpus: &[(&Machine, &MachineThread)],
    matching: &Matching,
) -> Vec<Change> {
    let mut taken: BTreeSet<usize> = matching.owners.keys().copied().collect();
    // Where QEMU does not say which threads are processors, those that are bound to a core may be.
    let unnamed = all.iter().filter(|machine| machine.vcpus.is_empty()).flat_map(|machine| &machine.others);
    taken.extend(unnamed.filter(|it| it.allowed.len() == 1).flat_map(|it| &it.allowed));
    let changes = matching.left.iter().map(|&it| {
        let vcpu = vcpus[it].1;
        let admitted = vcpu.thread.admitted(system);
        let near = vcpu.allowed.first().map(|&core| same_node(system, core)).unwrap_or_default();
        let mut free = admitted.iter().copied().filter(|core| !taken.contains(core));
        let core = free.clone().find(|core| near.contains(core)).or_else(|| free.next())?;
        taken.insert(core);
        let setting = Setting::Affinity(vcpu.thread.clone());
        let from = setting.current(system).ok()??;
        Some(Change { setting, from, to: core.to_string() })
    });
    changes.collect::<Option<Vec<Change>>>().unwrap_or_default()
}

/// The processors of a core's node.
pub fn same_node(system: &System, core: usize) -> Cpus {
    let names = system.names("sys/devices/system/node").unwrap_or_default();
    let lists = names
        .iter()
        .filter(|name| name.starts_with("node"))
        .filter_map(|name| system.text(&format!("sys/devices/system/node/{name}/cpulist")).ok().flatten());
    lists.map(|list| cpus::parse(&list)).find(|cpus| cpus.contains(&core)).unwrap_or_default()
}

/// QEMU's other threads on the cores of bound virtual processors.
pub const EMULATOR: Check = Check {
    id: "emulator-cores",
    title: "QEMU's other threads leave bound virtual processors alone",
    about: "QEMU has threads beside those of the processors: the emulator, input and output, workers. Where they may only \
        run on cores to which processors are bound, they interrupt those, though other cores are idle.",
    by_hand: "grep -H . /proc/$(pgrep -o qemu-system)/task/*/comm; taskset -acp $(pgrep -o qemu-system)",
    remedy: "bind them to the other cores (libvirt: emulatorpin, iothreadpin)",
    class: Class::Live,
    risk: "devices of the machine answer from another core, perhaps of another node",
    source: HAN,
    causes: &[],
    look: emulator,
};

fn emulator(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    if all.is_empty() {
        return Ok(Verdict::fine(NO_MACHINE));
    }
    let bound = bound(&all);
    if bound.is_empty() {
        let none = || Verdict::fine("no virtual processor is bound to a core");
        return Ok(without_names(&all).map_or_else(none, Verdict::Unknown));
    }
    let mut changes = Vec::new();
    let mut left = false;
    let named = all.iter().filter(|machine| !machine.vcpus.is_empty());
    for it in named.flat_map(|machine| &machine.others).filter(|it| it.allowed.is_subset(&bound)) {
        let to: Cpus = &it.thread.admitted(look.system) - &bound;
        look.note(
            format!("{}, thread {}", it.name, it.thread.number),
            format!("processors {}", cpus::show(&it.allowed)),
        );
        let setting = Setting::Affinity(it.thread.clone());
        match setting.current(look.system) {
            _ if to.is_empty() => left = true,
            Ok(Some(from)) => changes.push(Change { setting, from, to: cpus::show(&to) }),
            _ => (),
        }
    }
    if changes.is_empty() {
        if let Some(why) = without_names(&all) {
            return Ok(Verdict::Unknown(why));
        }
        return Ok(Verdict::fine(match left {
            true => "they share cores with virtual processors, since those have all that there are",
            false => "they may run elsewhere",
        }));
    }
    Ok(Verdict::Costs(Costs {
        why: format!(
            "Threads of QEMU that may only run where virtual processors are bound: {}.",
            changes.len()
        ),
        estimate: "a pause of the processor, 10 µs to milliseconds, whenever its machine uses a device"
            .into(),
        changes,
        ..Costs::default()
    }))
}

/// The cores to which one virtual processor each is bound.
pub fn bound(machines: &[Machine]) -> Cpus {
    let vcpus = machines.iter().flat_map(|machine| &machine.vcpus);
    vcpus.filter(|vcpu| vcpu.allowed.len() == 1).flat_map(|vcpu| vcpu.allowed.iter().copied()).collect()
}

/// Bound virtual processors on the two threads of one core.
pub const SIBLINGS: Check = Check {
    id: "core-siblings",
    title: "Bound virtual processors don't share a physical core while others are free",
    about: "With simultaneous multithreading (SMT) the kernel shows a core as two processors, which share its units and \
        first caches. Virtual processors that are bound to both are slower by a third to a half, unless the machine knows \
        that they are siblings and there is no other core.",
    by_hand: "cat /sys/devices/system/cpu/cpu*/topology/thread_siblings_list | sort -u",
    remedy: "bind them to processors of different cores, or show the machine the host's topology (QEMU: -smp threads=2)",
    class: Class::Live,
    risk: "another core may be on another node than the machine's memory",
    source: HAN,
    causes: &[],
    look: siblings,
};

fn siblings(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    let bound = bound(&all);
    if bound.is_empty() {
        let none = "no virtual processor is bound to a core";
        return Ok(Verdict::fine(if all.is_empty() { NO_MACHINE } else { none }));
    }
    let (mut shared, mut free) = (BTreeSet::new(), 0);
    for cpu in look.online()? {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let core = cpus::parse(&look.system.need(&path)?);
        let used = core.intersection(&bound).count();
        if used > 1 {
            shared.insert(cpus::show(&core));
        }
        // Each core once.
        free += usize::from(used == 0 && core.first() == Some(&cpu));
    }
    let shared: Vec<String> = shared.into_iter().collect();
    if shared.is_empty() || free == 0 {
        return Ok(Verdict::fine(match shared.is_empty() {
            true => "each has a physical core",
            false => "they share physical cores, since none is free",
        }));
    }
    look.note("cores with two bound processors", shared.join("; "));
    Ok(Verdict::Costs(Costs {
        why: format!(
            "Virtual processors share the cores {}, and {free} other cores have none.",
            shared.join("; ")
        ),
        estimate: "a third to a half of the speed of both".into(),
        ..Costs::default()
    }))
}
