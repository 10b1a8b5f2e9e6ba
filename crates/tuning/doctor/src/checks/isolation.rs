//! Cores that are isolated from other work.

use super::cores::bound;
use crate::check::Check;
use crate::cpus::{self, Cpus};
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, without_names, Machine};
use crate::system::{System, Unseen};

/// Isolation of bound virtual processors' cores.
pub const ISOLATED: Check = Check {
    id: "isolated-cores",
    title: "Cores of bound virtual processors are kept from other work",
    about: "The host's scheduler balances: it looks for work on other cores, and puts its own where it finds room, also on a \
        core to which a virtual processor is bound. In a partition of cpuset of the kind `isolated` it does neither, and the \
        partition can be made and dissolved while all runs; isolcpus does the same from boot on. A partition that has become \
        invalid is none.",
    by_hand: "cat /sys/fs/cgroup/cpuset.cpus.isolated /sys/devices/system/cpu/isolated; \
        grep -r . /sys/fs/cgroup --include=cpuset.cpus.partition",
    remedy: "make the cores a partition: in the machines' control group write them to cpuset.cpus and \
        cpuset.cpus.exclusive, and `isolated` to cpuset.cpus.partition (libvirt, systemd: AllowedCPUs= of machine.slice first)",
    class: Class::Live,
    risk: "other work has fewer cores, also when the machines are idle; in the partition nothing is balanced, so each virtual \
        processor must be bound",
    source: "Song, Chen and Zang 2011, 3.3 (cache sharing: 2.4 to 8.0 %); Linux, Documentation/admin-guide/cgroup-v2.rst \
        (cpuset.cpus.partition) and kernel-parameters.txt (isolcpus)",
    causes: &[],
    look: isolated,
};

fn isolated(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    let bound = bound(&all);
    if bound.is_empty() {
        let none = || Verdict::fine("no virtual processor of QEMU is bound to a core here");
        return Ok(without_names(&all).map_or_else(none, Verdict::Unknown));
    }
    if (&look.online()? - &bound).is_empty() {
        return Ok(Verdict::fine("virtual processors have all cores: other work has no other place"));
    }
    let mut kept = Cpus::new();
    for list in ["sys/fs/cgroup/cpuset.cpus.isolated", "sys/devices/system/cpu/isolated"] {
        kept.extend(cpus::parse(&look.text(list)?.unwrap_or_default()));
    }
    look.text("sys/devices/system/cpu/nohz_full")?;
    let mut invalid = None;
    for machine in &all {
        for group in groups(look.system, machine)? {
            let file = |name: &str| format!("sys/fs/cgroup{group}/{name}");
            let kind = look.system.text(&file("cpuset.cpus.partition"))?.unwrap_or_default();
            match kind.trim() {
                "isolated" => kept.extend(cpus::parse(&look.need(&file("cpuset.cpus.effective"))?)),
                kind if kind.starts_with("isolated invalid") => invalid = Some(format!("{group}: {kind}")),
                _ => continue,
            }
            look.note(format!("/{}", file("cpuset.cpus.partition")), kind.trim());
        }
    }
    let open = &bound - &kept;
    if open.is_empty() {
        return Ok(Verdict::fine("they are isolated"));
    }
    let why = match invalid {
        Some(invalid) => format!("The partition of bound virtual processors is none ({invalid})."),
        None => {
            format!("Other work may run on the cores of bound virtual processors: {}.", cpus::show(&open))
        }
    };
    Ok(Verdict::Costs(Costs {
        why,
        estimate: "2 to 8 % in the paper; and a pause whenever other work comes there".into(),
        ..Costs::default()
    }))
}

/// A machine's control group in the unified hierarchy, and those above it.
pub fn groups(system: &System, machine: &Machine) -> Result<Vec<String>, Unseen> {
    let text = system.text(&format!("proc/{}/cgroup", machine.pid))?.unwrap_or_default();
    let mut path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned();
    let mut groups = Vec::new();
    while let Some((above, last)) = path.rsplit_once('/').map(|(above, last)| (above.to_owned(), last)) {
        if !last.is_empty() {
            groups.push(path);
        }
        path = above;
    }
    Ok(groups)
}
