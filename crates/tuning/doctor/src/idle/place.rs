//! The place of the idle daemon: kernels in which it helps, and those where it would cost others.

use crate::guest::{counts_steal, polls, FAST_CLOCKS};
use crate::instruments::Instruments;
use crate::look::{Hypervisor, Look};
use crate::saved::Saved;
use crate::system::{System, Unseen};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use vshmem_base::error::{error, Error, Result};

/// The source of the knowledge that others want a core.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The hypervisor counts what it takes (steal).
    Steal,
    /// The idle processes count when they are held up for longer than the kernel has them wait (run delay).
    HoldUps,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Steal => "steal time",
            Source::HoldUps => {
                "what holds the idle processes up beyond their run delay, since no steal is counted here"
            }
        })
    }
}

/// The hint by which the daemon's processes become less than all others, also those of other groups.
const GROUP: &str =
    "Start it in a group of the lowest class: systemd-run --pty --slice=-.slice -p CPUWeight=idle vshmem \
    doctor --daemon idle";

/// The source that shows here whether a core is shared.
///
/// # Errors
/// The daemon would gain nothing here, or take from others what it must not, or nobody could tell.
pub fn place(system: &System, instruments: &dyn Instruments) -> Result<Source> {
    let unseen = |unseen: Unseen| error!("it can't be told how processors idle here: {unseen}");
    let saved = Saved::default();
    let mut look = Look::new(system, instruments, &saved);
    let hypervisor = look.hypervisor().map_err(unseen)?;
    if hypervisor == Some(Hypervisor::Nothing) {
        return Err(Error::new(
            "this kernel runs on the hardware, where a processor that idles leaves no machine",
        )
        .hint("Start the daemon in a machine: vshmem doctor --vm NAME --daemon idle."));
    }
    if let Some(how) = polls(&mut look).map_err(unseen)? {
        return Err(error!("idle processors poll already ({how}): the daemon would gain nothing"));
    }
    if let Some(group) = competes(system).map_err(unseen)? {
        return Err(Error::new(format!(
            "the control group {group} has its share of processors, whatever the class of processes in it"
        ))
        .hint(GROUP));
    }
    if counts_steal(&mut look).map_err(unseen)? {
        return Ok(Source::Steal);
    }
    let clock =
        look.need("sys/devices/system/clocksource/clocksource0/current_clocksource").map_err(unseen)?;
    if !FAST_CLOCKS.contains(&&*clock) {
        return Err(error!(
            "no steal is counted here, and reading {clock} leaves the machine: it can't be told whether others want \
             the cores"
        ));
    }
    Ok(Source::HoldUps)
}

/// The control group of this process that competes with others by a weight of its own, if there is one. In a
/// group of the lowest class, all below it is less than what is outside.
fn competes(system: &System) -> std::result::Result<Option<String>, Unseen> {
    let groups = system.text("proc/self/cgroup")?.unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        if controllers.split(',').any(|one| one == "cpu") && path != "/" {
            return Ok(Some(path.into()));
        }
        if controllers.is_empty() {
            return competes_below(system, path);
        }
    }
    Ok(None)
}

/// The group of the unified hierarchy that competes so: the outermost one that has a weight decides.
fn competes_below(system: &System, path: &str) -> std::result::Result<Option<String>, Unseen> {
    let mut group = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        group = format!("{group}/{part}");
        let file = |name: &str| system.text(&format!("sys/fs/cgroup{group}/{name}"));
        if file("cpu.weight")?.is_some() {
            let is_lowest = file("cpu.idle")?.is_some_and(|text| text.trim() == "1");
            return Ok((!is_lowest).then_some(group));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::{Kvm, Recorded};
    use crate::tests::tree::Tree;

    /// A machine whose processors halt at once, and whose daemon is in a group of the lowest class.
    const MACHINE: &str = "\
== proc/cpuinfo
flags : tsc hypervisor
== proc/cmdline
quiet
== proc/stat
cpu  1 2 3 4 5 6 7 0 0 0
== proc/self/cgroup
0::/vshmem-doctor-idle.service
== sys/fs/cgroup/vshmem-doctor-idle.service/cpu.weight
0
== sys/fs/cgroup/vshmem-doctor-idle.service/cpu.idle
1
== sys/devices/system/cpu/cpuidle/current_driver
none
== sys/devices/system/clocksource/clocksource0/current_clocksource
tsc
";

    fn kvm(features: u32) -> Recorded {
        let kvm = Some(Kvm { features, hints: 0 });
        Recorded { hypervisor: Some("KVMKVMKVM".into()), kvm, ..Recorded::default() }
    }

    fn planted(files: &[(&str, &str)]) -> Result<Source> {
        let tree = Tree::new(MACHINE);
        files.iter().for_each(|(path, text)| tree.put(path, text));
        place(tree.system(), &kvm(0))
    }

    #[track_caller]
    fn refused(files: &[(&str, &str)], why: &str) {
        let said = planted(files).expect_err(why).to_string();
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn it_is_told_by_steal_where_that_is_counted() {
        let tree = Tree::new(MACHINE);
        assert_eq!(place(tree.system(), &kvm(1 << 5)).unwrap(), Source::Steal);
        assert_eq!(planted(&[]).unwrap(), Source::HoldUps);
        assert_eq!(planted(&[("proc/stat", "cpu  1 2 3 4 5 6 7 8 0 0\n")]).unwrap(), Source::Steal);
        tree.put("proc/cmdline", "quiet no-steal-acc");
        assert_eq!(place(tree.system(), &kvm(1 << 5)).unwrap(), Source::HoldUps);
    }

    #[test]
    fn where_it_gains_nothing_or_nobody_could_tell_it_is_refused() {
        refused(&[("proc/cpuinfo", "flags : tsc\n")], "runs on the hardware");
        let at = "sys/devices/system/cpu/cpuidle";
        let (driver, governor) = (format!("{at}/current_driver"), format!("{at}/current_governor"));
        let limit = "sys/module/haltpoll/parameters/guest_halt_poll_ns";
        let polls = [(&*driver, "haltpoll"), (&*governor, "haltpoll"), (limit, "200000")];
        refused(&polls, "poll already (haltpoll)");
        assert!(planted(&[(&driver, "haltpoll"), (&governor, "haltpoll"), (limit, "0")]).is_ok());
        refused(&[("proc/cmdline", "idle=poll quiet")], "poll already (idle=poll)");
        let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        refused(&[(clock, "acpi_pm")], "reading acpi_pm leaves the machine");
    }

    #[test]
    fn a_group_with_a_share_of_its_own_is_refused() {
        let group = "sys/fs/cgroup/vshmem-doctor-idle.service/cpu.idle";
        refused(&[(group, "0")], "the control group /vshmem-doctor-idle.service");
        // What is outermost decides.
        let slice =
            [("proc/self/cgroup", "0::/a.slice/b.service\n"), ("sys/fs/cgroup/a.slice/cpu.weight", "100\n")];
        refused(&slice, "/a.slice");
        let idle = ("sys/fs/cgroup/a.slice/cpu.idle", "1\n");
        let busy = ("sys/fs/cgroup/a.slice/b.service/cpu.weight", "100\n");
        assert!(planted(&[slice[0], slice[1], idle, busy]).is_ok());
        refused(&[("proc/self/cgroup", "4:cpu,cpuacct:/user\n0::/\n")], "/user");
        assert!(planted(&[("proc/self/cgroup", "4:cpu,cpuacct:/\n0::/\n")]).is_ok());
    }
}
