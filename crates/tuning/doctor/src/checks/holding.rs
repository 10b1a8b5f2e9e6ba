//! Machines that keep their cores while they idle.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::kvm;
use crate::look::Look;
use crate::machines::{machines, without_names, Machine};
use crate::system::Unseen;

/// A machine with fewer exits has hardly begun.
const FEW: u64 = 100_000;

/// Cores of a machine that never halts.
pub const HOLDING: Check = Check {
    id: "cpu-pm",
    title: "A machine that keeps its cores while it idles has them to itself",
    about: "With cpu-pm (QEMU: -overcommit cpu-pm=on) a virtual processor waits in the machine: waking it takes no exit, and \
        its core is busy all the time, as it is by idle=poll. Whether that is in force is not what QEMU was told: KVM may \
        refuse, and QEMU goes on with a warning. So the check looks whether KVM has ever seen the machine halt.",
    by_hand: "grep . /sys/kernel/debug/kvm/PID-*/{exits,halt_exits}; top -H -p PID # idle, and at 100 %",
    remedy: "bind each of its processors to a core of its own, or start it without cpu-pm (or idle=poll)",
    class: Class::Live,
    risk: "without it each wake-up goes through the host's scheduler",
    source: "QEMU, qemu(1) (-overcommit); Linux, Documentation/virt/kvm/api.rst (KVM_CAP_X86_DISABLE_EXITS)",
    causes: &["shared-cores"],
    look: holding,
};

fn holding(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    if all.is_empty() {
        return Ok(Verdict::fine("no machine of QEMU can be seen here"));
    }
    if !look.system.path("sys/module/kvm").exists() {
        return Ok(Verdict::fine("no KVM runs on this kernel"));
    }
    if !kvm::counts(look.system)? {
        return Ok(Verdict::unknown("whether machines ever halt is in debugfs, which is not mounted"));
    }
    let (mut holding, mut elsewhere) = (Vec::new(), Vec::new());
    for machine in &all {
        let count = |name: &str| kvm::count(look.system, machine.pid, name);
        let (Some(exits), Some(halts)) = (count("exits")?, count("halt_exits")?) else {
            continue;
        };
        look.note(format!("{}, exits", machine.name), format!("{exits}, {halts} of them to halt"));
        if exits >= FEW && halts == 0 {
            holding.push(machine);
            elsewhere.extend(without_own_cores(machine, &all));
        }
    }
    if holding.is_empty() {
        return Ok(Verdict::fine("machines halt when they idle, or none is on KVM"));
    }
    if elsewhere.is_empty() {
        let unnamed = without_names(&all).map(Verdict::Unknown);
        return Ok(unnamed.unwrap_or_else(|| Verdict::fine("those that never halt have cores of their own")));
    }
    Ok(Verdict::Costs(Costs {
        why: format!(
            "KVM has never seen these machines halt, and they have no cores of their own: {}.",
            elsewhere.join(", ")
        ),
        estimate: "a whole core for each of their processors, which others wait for though it idles".into(),
        ..Costs::default()
    }))
}

/// The name of a machine whose processors are not each bound to a core to which no other one is.
fn without_own_cores(machine: &Machine, all: &[Machine]) -> Option<String> {
    let bound = |core: usize| {
        let vcpus = all.iter().flat_map(|machine| &machine.vcpus);
        vcpus.filter(|vcpu| vcpu.allowed.len() == 1 && vcpu.allowed.contains(&core)).count()
    };
    let is_alone =
        |allowed: &crate::cpus::Cpus| allowed.len() == 1 && allowed.iter().all(|&core| bound(core) == 1);
    machine.vcpus.iter().any(|vcpu| !is_alone(&vcpu.allowed)).then(|| machine.name.clone())
}
