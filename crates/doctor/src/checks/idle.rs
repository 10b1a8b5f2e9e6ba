//! What a processor does when there is nothing to do.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::{Hypervisor, Look};
use crate::system::Unseen;

/// Idle processors of a machine.
pub const GUEST: Check = Check {
    id: "idle-exits",
    title: "A virtual processor that waits does not leave the machine at once",
    about: "A processor with nothing to do halts, and in a machine that is an exit: the hypervisor takes the core, and \
        waking the processor goes through the host's scheduler. The cpuidle driver haltpoll looks for work for some \
        microseconds before it halts, which costs the core's idle time and nothing else, where no other machine wants it.",
    by_hand: "grep . /sys/devices/system/cpu/cpuidle/current_{driver,governor}; \
        grep . /sys/module/haltpoll/parameters/guest_halt_poll_ns",
    remedy: "modprobe cpuidle_haltpoll in the machine (force=1 where the hypervisor does not dedicate cores to it)",
    class: Class::Live,
    risk: "where machines share a core, polling takes it from the others; KVM then stops polling for it on the host",
    source: "Song, Chen and Zang 2011, 3.2 (idle: 0.97 to 2.48 times faster without, mean 1.39, hardware-assisted); Linux, \
        Documentation/virt/guest-halt-polling.rst",
    causes: &[],
    look: guest,
};

fn guest(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    const AT: &str = "sys/devices/system/cpu/cpuidle";
    let hypervisor = look.hypervisor()?;
    if hypervisor == Some(Hypervisor::Nothing) {
        return Ok(Verdict::fine("this kernel runs on the hardware"));
    }
    let Some(driver) = look.text(&format!("{AT}/current_driver"))? else {
        return Ok(Verdict::unknown("the kernel has no cpuidle, and does not say how it idles"));
    };
    look.text(&format!("{AT}/current_governor"))?;
    let line = look.system.text("proc/cmdline")?.unwrap_or_default();
    if let Some(word) = line.split_whitespace().find(|word| word.starts_with("idle=")) {
        look.note("/proc/cmdline", word);
        return Ok(Verdict::unknown(format!(
            "the kernel was told {word}, and does not say whether it obeys"
        )));
    }
    if driver == "haltpoll" {
        // A limit of zero is the driver without what it is for.
        let limit = look.text("sys/module/haltpoll/parameters/guest_halt_poll_ns")?;
        if limit.as_deref() != Some("0") {
            return Ok(Verdict::fine("processors poll before they halt (haltpoll)"));
        }
    } else if driver != "none" {
        return Ok(Verdict::fine(format!(
            "{driver} chooses how to idle, and leaves the machine only in deep states"
        )));
    }
    let mut costs = Costs {
        why: format!("An idle processor halts at once, and leaves the machine (cpuidle driver {driver})."),
        estimate: "two passes through the hypervisor for each wake-up: 1.4 times slower in the paper where threads wait \
            for each other, nothing where they don't"
            .into(),
        ..Costs::default()
    };
    match hypervisor {
        Some(Hypervisor::Kvm) => (),
        Some(Hypervisor::Tcg) => {
            return Ok(Verdict::fine(
                "emulated processors halt without an exit of the hardware: polling gains nothing",
            ))
        }
        _ => {
            return Ok(Verdict::unknown(
                "what an exit costs here depends on the hypervisor, which is not KVM",
            ))
        }
    }
    if driver == "haltpoll" {
        costs.remedy = Some((Class::Live, "let it poll for 200 µs at most (guest_halt_poll_ns)".into()));
        costs.changes = vec![look.change("sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000")?];
    }
    Ok(Verdict::Costs(costs))
}

/// The host's polling for machines whose processors wait.
pub const HOST: Check = Check {
    id: "halt-polling",
    title: "The host waits a moment before it takes a halted processor's core",
    about: "When a virtual processor halts, KVM looks for its wake-up for up to halt_poll_ns before it gives the core to \
        others. A machine that polls itself (haltpoll) switches that off for itself, so that nobody polls twice.",
    by_hand: "grep . /sys/module/kvm/parameters/halt_poll_ns*",
    remedy: "let KVM poll for 200 µs at most, which is the kernel's default",
    class: Class::Live,
    risk: "a host whose cores are all wanted loses the time of polling; KVM polls less where it is in vain",
    source: "Linux, Documentation/virt/kvm/halt-polling.rst",
    causes: &[],
    look: host,
};

fn host(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    const LIMIT: &str = "sys/module/kvm/parameters/halt_poll_ns";
    let Some(limit) = look.text(LIMIT)? else {
        return Ok(Verdict::fine("no KVM runs on this kernel"));
    };
    if limit != "0" {
        return Ok(Verdict::fine(format!("KVM polls for up to {limit} ns")));
    }
    Ok(Verdict::Costs(Costs {
        why: "KVM gives a halted processor's core away at once.".into(),
        estimate: "a pass through the host's scheduler, 5 to 50 µs, for each wake-up in a machine".into(),
        changes: vec![look.change(LIMIT, "200000")?],
        ..Costs::default()
    }))
}
