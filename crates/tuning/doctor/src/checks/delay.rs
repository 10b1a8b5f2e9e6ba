//! The time for which virtual processors wait for a core.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, without_names, MachineThread};
use crate::system::{System, Unseen};

/// More than this of the time in which a processor wants a core it waits for it, in percent.
const MUCH: f64 = 3.0;
/// A processor that ran for less than this, in nanoseconds, says nothing.
const SHORT: f64 = 1e9;

/// Run delay of virtual processors.
pub const DELAY: Check = Check {
    id: "run-delay",
    title: "Virtual processors don't wait for a core",
    about: "The host's kernel counts for each thread how long it ran, and how long it could have run and had no core. For \
        a virtual processor the second is what its machine sees as steal, if it sees it at all. The counts are those \
        since the thread was started.",
    by_hand: "cat /proc/$(pgrep -o qemu-system)/task/*/schedstat # ns that it ran, and waited",
    remedy: "keep other work off the machines' cores: bind processors to cores, and make those an isolated partition \
        (cpuset.cpus.partition, rather than isolcpus, which needs a reboot), or run less",
    class: Class::Live,
    risk: "other work has fewer cores, also when the machines are idle",
    source: "Linux, Documentation/scheduler/sched-stats.rst and admin-guide/cgroup-v2.rst (cpuset.cpus.partition)",
    causes: &["shared-cores", "emulator-cores", "isolated-cores", "quota", "cpu-pm"],
    look: delay,
};

fn delay(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    if all.is_empty() {
        return Ok(Verdict::fine("no machine of QEMU can be seen here"));
    }
    let mut worst: Option<(f64, String)> = None;
    for machine in &all {
        for vcpu in &machine.vcpus {
            let Some(percent) = waited(look.system, vcpu)? else {
                continue;
            };
            look.note(
                format!("{}, {}", machine.name, vcpu.name),
                format!("waited for {percent:.1} % of the time"),
            );
            if worst.as_ref().is_none_or(|(most, _)| percent > *most) {
                worst = Some((percent, format!("{} of {}", vcpu.name, machine.name)));
            }
        }
    }
    Ok(match (worst, without_names(&all)) {
        (Some((percent, name)), _) if percent > MUCH => Verdict::Costs(Costs {
            why: format!("{name} waited for a core for {percent:.0} % of the time in which it wanted one."),
            estimate: format!("{percent:.0} % of that processor's time, and more where others wait for it"),
            proven: true,
            ..Costs::default()
        }),
        (_, Some(why)) => Verdict::Unknown(why),
        (None, _) => {
            Verdict::unknown("the kernel keeps no schedstat, or no virtual processor has run for a second")
        }
        _ => Verdict::fine("none waited for long since its start"),
    })
}

/// The share of the time in which a thread wanted a core that it waited for one, in percent.
fn waited(system: &System, vcpu: &MachineThread) -> Result<Option<f64>, Unseen> {
    let text = system.text(&vcpu.thread.file("schedstat"))?.unwrap_or_default();
    let mut counts = text.split_whitespace().map_while(|word| word.parse::<f64>().ok());
    let (Some(ran), Some(waited)) = (counts.next(), counts.next()) else {
        return Ok(None);
    };
    Ok((ran > SHORT).then(|| 100.0 * waited / (ran + waited)))
}
