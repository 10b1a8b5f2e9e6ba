//! Quotas: machines that may use only so much of the processors.

use super::isolation::groups;
use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::machines;
use crate::system::Unseen;
use crate::text::number;

/// More than this part of what a group ran it was kept waiting, in percent.
const MUCH: f64 = 1.0;

/// Quotas of control groups.
pub const QUOTA: Check = Check {
    id: "quota",
    title: "No quota stops machines",
    about: "A control group with a quota (cpu.max, systemd's CPUQuota=, Kubernetes' limits) is stopped in each period in which \
        it has used it up: all processors of the machine at once, also one that holds a lock. The kernel counts for how \
        long.",
    by_hand: "grep -r throttled_usec /sys/fs/cgroup --include=cpu.stat | grep -v ' 0$'",
    remedy: "give the machine whole processors and no quota, or a weight (cpu.weight), which only counts where others want the \
        cores",
    class: Class::Live,
    risk: "others on the host get less",
    source: "Linux, Documentation/scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst (cpu.max, cpu.stat)",
    causes: &[],
    look: quota,
};

fn quota(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    let mut stopped = Vec::new();
    for machine in &all {
        for group in groups(look.system, machine)? {
            let stat = format!("sys/fs/cgroup{group}/cpu.stat");
            let text = look.system.text(&stat)?.unwrap_or_default();
            let (Some(used), Some(waited)) = (number(&text, "usage_usec"), number(&text, "throttled_usec"))
            else {
                continue;
            };
            let percent = 100.0 * waited as f64 / (used + waited).max(1) as f64;
            if percent > MUCH {
                look.note(format!("/{stat}"), format!("throttled for {percent:.0} % of the time"));
                look.text(&format!("sys/fs/cgroup{group}/cpu.max"))?;
                stopped.push(format!("{} ({percent:.0} %)", machine.name));
            }
        }
    }
    if stopped.is_empty() {
        let none = "no machine of QEMU can be seen here";
        return Ok(Verdict::fine(if all.is_empty() { none } else { "none was stopped for long" }));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("A quota stops machines: {}.", stopped.join(", ")),
        estimate: "that part of the time in which they had work, for up to a tenth of a second each time"
            .into(),
        proven: true,
        ..Costs::default()
    }))
}
