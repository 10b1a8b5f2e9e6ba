//! Siblings in the machine and on the host.

use super::cores::same_node;
use crate::check::Check;
use crate::cpus::{self, Cpus};
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, without_names, Machine, MachineThread};
use crate::setting::Setting;
use crate::system::{System, Unseen};
use serde_json::Value;
use std::collections::BTreeMap;

/// The threads that the machine takes for those of one core.
pub const TOPOLOGY: Check = Check {
    id: "guest-siblings",
    title: "Virtual processors that are siblings in the machine are so on the host",
    about: "The machine's scheduler, MPI and OpenMP place work by cores: two threads of a core get the second piece of work \
        last. Where the machine takes two for cores of their own, and both are bound to one core of the host, it puts two \
        busy threads there while others idle; where it takes two whole cores for one, programs that want a core for each \
        thread use half of them. QEMU numbers siblings one after the other, most hosts number them half way apart, so \
        binding in order makes both mistakes at once. QEMU's monitor says what the machine is shown; on AMD a machine sees \
        no siblings at all without the feature topoext.",
    by_hand: "virsh qemu-monitor-command VM '{\"execute\": \"query-cpus-fast\"}'; in the machine: \
        cat /sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    remedy: "start the machine with the topology to which it is bound (QEMU: -smp cores=N,threads=M, on AMD with +topoext; \
        libvirt: topology in cpu)",
    class: Class::MachineRestart,
    risk: "licences may count cores",
    source: "QEMU, qemu(1) (-smp); Linux, Documentation/arch/x86/topology.rst; Han et al. 2010",
    causes: &["core-siblings"],
    look: topology,
};

/// A bound virtual processor.
struct Bound<'a> {
    vcpu: &'a MachineThread,
    /// The processor of the host to which it is bound.
    cpu: usize,
    /// The core that the machine is shown for it.
    shown: String,
}

fn topology(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let cores = cores(look)?;
    let (mut wrong, mut changes, mut unseen, mut judged) = (Vec::new(), Vec::new(), None, false);
    let mut halves = false;
    let all = machines(look)?;
    for machine in all.iter().filter(|machine| bound(machine).count() > 1) {
        let bound = match shown(look.system, machine) {
            Ok(bound) => bound,
            Err(why) => {
                unseen.get_or_insert(why);
                continue;
            }
        };
        judged = true;
        let groups = |key: &dyn Fn(&Bound<'_>) -> String| described(&bound, key);
        look.note(format!("{}, siblings that it is shown", machine.name), groups(&|it| it.shown.clone()));
        look.note(
            format!("{}, siblings on the host", machine.name),
            groups(&|it| cores.get(&it.cpu).map_or_else(String::new, cpus::show)),
        );
        let Some((first, second, apart)) = mismatch(&bound, &cores) else {
            continue;
        };
        halves |= apart;
        wrong.push(format!(
            "{}: {} and {} are {}, and bound to {}",
            machine.name,
            first.vcpu.name,
            second.vcpu.name,
            if apart { "siblings there" } else { "cores of their own there" },
            if apart { "different cores of the host" } else { "one core of the host" }
        ));
        changes.push(exchanged(look.system, &bound, &cores));
    }
    if wrong.is_empty() {
        return Ok(match unseen {
            Some(why) => Verdict::Unknown(why.to_string()),
            None if judged => Verdict::fine("what machines are shown is how they are bound"),
            None => without_names(&all).map_or_else(
                || Verdict::fine("no machine has two processors that are bound to a core each"),
                Verdict::Unknown,
            ),
        });
    }
    let changes = changes.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default().concat();
    let live = "bind each of the machine's cores to one of the host's: the same ones, otherwise given out";
    Ok(Verdict::Costs(Costs {
        why: format!("{}.", wrong.join("; ")),
        estimate: if halves {
            "programs that want a core for each thread use half of the cores".into()
        } else {
            "up to half of the speed of two threads that the machine puts there while others idle".into()
        },
        remedy: (!changes.is_empty()).then(|| (Class::Live, live.into())),
        changes,
        ..Costs::default()
    }))
}

/// The core of each processor of the host.
fn cores(look: &Look<'_>) -> Result<BTreeMap<usize, Cpus>, Unseen> {
    let core = |cpu: usize| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        // Few architectures don't tell.
        let core = look.system.text(&path)?.map(|text| cpus::parse(&text));
        Ok((cpu, core.unwrap_or_else(|| Cpus::from([cpu]))))
    };
    look.online()?.into_iter().map(core).collect()
}

fn bound(machine: &Machine) -> impl Iterator<Item = (&MachineThread, usize)> + '_ {
    let one =
        |vcpu: &MachineThread| (vcpu.allowed.len() == 1).then(|| vcpu.allowed.first().copied()).flatten();
    machine.vcpus.iter().filter_map(move |vcpu| Some((vcpu, one(vcpu)?)))
}

/// The topology that a machine is shown of its bound processors.
fn shown<'a>(system: &System, machine: &'a Machine) -> Result<Vec<Bound<'a>>, Unseen> {
    let told = system.vcpus(machine.pid)?;
    // Without that feature AMD's processors can't say that they have siblings.
    let blind = match told.first() {
        Some(first) => {
            let property = |name: &str| system.property(machine.pid, &first.object, name);
            // Other architectures' have none.
            let vendor = property("vendor").unwrap_or_default();
            let is_amd = matches!(vendor.as_str(), Some("AuthenticAMD" | "HygonGenuine"));
            is_amd && property("topoext")? == Value::Bool(false)
        }
        None => false,
    };
    let find = |(vcpu, cpu): (&'a MachineThread, usize)| {
        let it = told.iter().find(|it| it.thread == vcpu.thread.number)?;
        let shown = if blind { it.index.to_string() } else { it.core.clone() };
        Some(Bound { vcpu, cpu, shown })
    };
    Ok(bound(machine).filter_map(find).collect())
}

/// Groups of processors by a key: `CPU 0/KVM + CPU 1/KVM, CPU 2/KVM`.
fn described(bound: &[Bound<'_>], key: &dyn Fn(&Bound<'_>) -> String) -> String {
    let groups = grouped(bound, key);
    let names =
        |group: &Vec<usize>| group.iter().map(|&it| &*bound[it].vcpu.name).collect::<Vec<_>>().join(" + ");
    groups.iter().map(names).collect::<Vec<_>>().join(", ")
}

/// The places of those with the same key, in the order in which they come.
fn grouped(bound: &[Bound<'_>], key: &dyn Fn(&Bound<'_>) -> String) -> Vec<Vec<usize>> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, it) in bound.iter().enumerate() {
        let key = key(it);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(place),
            None => groups.push((key, vec![place])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Two that are siblings on one side only, and whether it is the machine's. Two on one core of the host that
/// the machine takes for two are worse, so they are named first. Those on the very same processor are another
/// check's.
fn mismatch<'a, 'b>(
    bound: &'a [Bound<'b>],
    cores: &BTreeMap<usize, Cpus>,
) -> Option<(&'a Bound<'b>, &'a Bound<'b>, bool)> {
    let pairs =
        || bound.iter().enumerate().flat_map(|(n, one)| bound[n + 1..].iter().map(move |other| (one, other)));
    let of = |wanted: bool| {
        pairs().filter(|(one, other)| one.cpu != other.cpu).find(|(one, other)| {
            let (there, here) = (one.shown == other.shown, cores.get(&one.cpu) == cores.get(&other.cpu));
            there != here && there == wanted
        })
    };
    of(false)
        .map(|(one, other)| (one, other, false))
        .or_else(|| of(true).map(|(one, other)| (one, other, true)))
}

/// Gives the same processors of the host out so that siblings in the machine are siblings there; `None` if
/// their cores are of other sizes than the machine's, or of several nodes, where memory would have to move.
fn exchanged(system: &System, bound: &[Bound<'_>], cores: &BTreeMap<usize, Cpus>) -> Option<Vec<Change>> {
    let taken: Cpus = bound.iter().map(|it| it.cpu).collect();
    let node = same_node(system, *taken.first()?);
    if taken.len() < bound.len() || !node.is_empty() && !taken.is_subset(&node) {
        return None;
    }
    let mut left: Vec<Cpus> =
        cores.values().map(|core| core & &taken).filter(|core| !core.is_empty()).collect();
    left.sort();
    left.dedup();
    let mut changes = Vec::new();
    for group in grouped(bound, &|it| it.shown.clone()) {
        let own: Cpus = group.iter().map(|&it| bound[it].cpu).collect();
        // Where most of them are already.
        let fits = left.iter().enumerate().filter(|(_, core)| core.len() == group.len());
        let (place, _) = fits.max_by_key(|(place, core)| ((*core & &own).len(), usize::MAX - place))?;
        let mut free = left.remove(place);
        let (stay, leave): (Vec<usize>, Vec<usize>) =
            group.iter().partition(|&&it| free.contains(&bound[it].cpu));
        for it in stay {
            free.remove(&bound[it].cpu);
        }
        for (it, cpu) in leave.into_iter().zip(free) {
            let setting = Setting::Affinity(bound[it].vcpu.thread.clone());
            let from = setting.current(system).ok()??;
            changes.push(Change { setting, from, to: cpu.to_string() });
        }
    }
    Some(changes)
}
