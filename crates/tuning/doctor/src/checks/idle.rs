//! Idling of processors.

use super::steal::{stolen, SHARED};
use crate::check::Check;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::{Hypervisor, Look};
use crate::setting::{Setting, LOADED};
use crate::system::Unseen;

const CPUIDLE: &str = "sys/devices/system/cpu/cpuidle";
/// The driver, and the governor that decides for how long it polls.
const HALTPOLL: &str = "haltpoll";
/// The driver's module.
const DRIVER: &str = "cpuidle_haltpoll";
/// The most that it polls, in nanoseconds.
const LIMIT: &str = "sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// Idle processors of a machine.
pub const GUEST: Check = Check {
    id: "idle-exits",
    title: "A virtual processor that waits does not leave the machine at once",
    about: "A processor with nothing to do halts, and in a machine that is an exit: the hypervisor takes the core, and \
        waking the processor goes through the host's scheduler. The cpuidle driver haltpoll looks for work for some \
        microseconds before it halts, which costs the core's idle time and nothing else, where no other machine wants it. \
        With cpu-pm a processor waits in the machine by mwait, and needs neither.",
    by_hand: "grep . /sys/devices/system/cpu/cpuidle/current_{driver,governor}; \
        grep . /sys/module/haltpoll/parameters/guest_halt_poll_ns",
    remedy: "load cpuidle_haltpoll in the machine (with force=1 where the hypervisor does not promise it cores); or where \
        that can't be had, vshmem doctor --daemon idle; a machine with cores of its own may have them while it idles, too \
        (QEMU: -overcommit cpu-pm=on)",
    class: Class::Live,
    risk: "where machines share a core, polling takes it from the others; KVM then stops polling for it on the host",
    source: "Song, Chen and Zang 2011, 3.2 (idle: 0.97 to 2.48 times faster without, mean 1.39, hardware-assisted); Linux, \
        Documentation/virt/guest-halt-polling.rst",
    causes: &[],
    look: guest,
};

fn guest(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let hypervisor = look.hypervisor()?;
    if hypervisor == Some(Hypervisor::Nothing) {
        return Ok(Verdict::fine("this kernel runs on the hardware"));
    }
    if hypervisor == Some(Hypervisor::Kvm)
        && look.flags()?.is_some_and(|flags| flags.iter().any(|flag| flag == "monitor"))
    {
        look.note("/proc/cpuinfo, monitor", "yes");
        return Ok(Verdict::fine(
            "processors wait by mwait, which does not leave the machine (QEMU offers it only where cpu-pm is in force)",
        ));
    }
    let Some(driver) = look.text(&format!("{CPUIDLE}/current_driver"))? else {
        return Ok(Verdict::unknown("the kernel has no cpuidle, and does not say how it idles"));
    };
    let line = look.system.text("proc/cmdline")?.unwrap_or_default();
    if let Some(word) = line.split_whitespace().find(|word| word.starts_with("idle=")) {
        look.note("/proc/cmdline", word);
        return Ok(Verdict::unknown(format!(
            "the kernel was told {word}, and does not say whether it obeys"
        )));
    }
    if hypervisor == Some(Hypervisor::Kvm) && matches!(&*driver, "haltpoll" | "none") {
        measure(look);
    }
    if driver == "haltpoll" {
        return polling(look);
    }
    if driver != "none" {
        return Ok(Verdict::fine(format!(
            "{driver} chooses how to idle, and leaves the machine only in deep states"
        )));
    }
    match hypervisor {
        Some(Hypervisor::Kvm) => halting(look),
        Some(Hypervisor::Tcg) => Ok(Verdict::fine(
            "emulated processors halt without an exit of the hardware: polling gains nothing",
        )),
        _ => Ok(Verdict::unknown("what an exit costs here depends on the hypervisor, which is not KVM")),
    }
}

/// The time of a wake-up, as processors idle now.
fn measure(look: &mut Look<'_>) {
    let Some(wake) = look.instruments.wake() else { return };
    if let Some(time) = wake.there_and_back {
        look.measure("to an idle processor and back", time, "µs");
    }
    look.measure("how late a sleep of a millisecond ends", wake.late, "µs");
}

/// The worth of the driver haltpoll: its governor decides for how long it polls, up to a limit.
fn polling(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let governor = look.text(&format!("{CPUIDLE}/current_governor"))?.unwrap_or_default();
    if governor != HALTPOLL {
        let path = format!("{CPUIDLE}/current_governor");
        let offered = look.text(&format!("{CPUIDLE}/available_governors"))?.unwrap_or_default();
        let why = format!(
            "The driver haltpoll leaves its polling to the governor {governor}, which knows no machines."
        );
        if !offered.split_whitespace().any(|name| name == HALTPOLL) {
            let remedy = "take a kernel with the governor haltpoll (CPU_IDLE_GOV_HALTPOLL)";
            return Ok(costs(why, Vec::new(), Some((Class::MachineRestart, remedy))));
        }
        return Ok(costs(
            why,
            vec![look.change(&path, HALTPOLL)?],
            Some((Class::Live, "choose the governor haltpoll")),
        ));
    }
    // A limit of zero is the driver without what it is for.
    if look.text(LIMIT)?.as_deref() != Some("0") {
        return Ok(Verdict::fine("processors poll before they halt (haltpoll)"));
    }
    let why = "An idle processor halts at once: haltpoll may poll for 0 ns.".into();
    let remedy = "let it poll for 200 µs at most (guest_halt_poll_ns)";
    Ok(costs(why, vec![look.change(LIMIT, "200000")?], Some((Class::Live, remedy))))
}

/// Processors that halt at once, though KVM has a driver for them.
fn halting(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let promises = look.instruments.kvm().is_some_and(|kvm| kvm.dedicates_cores());
    look.note(
        "cpuid, KVM_HINTS_REALTIME",
        if promises { "cores are promised" } else { "cores are not promised" },
    );
    if let Some(percent) = stolen(look)?.filter(|percent| !promises && *percent > SHARED) {
        return Ok(Verdict::fine(format!(
            "an idle processor halts at once, and others want its core ({percent:.0} % steal): polling would take it \
             from them"
        )));
    }
    let why = "An idle processor halts at once, and leaves the machine (cpuidle driver none).".into();
    // Built in, it is there without having had an effect.
    if look.system.path(&format!("sys/module/{DRIVER}")).exists() {
        let remedy = "boot the machine with cpuidle_haltpoll.force=1 on its kernel's command line";
        return Ok(costs(why, Vec::new(), Some((Class::MachineRestart, remedy))));
    }
    let release = look.need("proc/sys/kernel/osrelease")?;
    let modules = look.system.text(&format!("lib/modules/{release}/modules.dep"))?.unwrap_or_default();
    if !modules.contains("/cpuidle-haltpoll.ko") {
        look.note(format!("/lib/modules/{release}"), "no cpuidle-haltpoll");
        return Ok(costs(why, Vec::new(), None));
    }
    let options = if promises { Vec::new() } else { vec!["force=1".into()] };
    let setting = Setting::Module { name: DRIVER.into(), options };
    Ok(costs(why, vec![Change { setting, from: String::new(), to: LOADED.into() }], None))
}

fn costs(why: String, changes: Vec<Change>, remedy: Option<(Class, &str)>) -> Verdict {
    let remedy = remedy.map(|(class, text)| (class, text.into()));
    let estimate = "two passes through the hypervisor for each wake-up: 1.4 times slower in the paper where threads wait \
        for each other, nothing where they don't"
        .into();
    Verdict::Costs(Costs { why, estimate, changes, remedy, ..Costs::default() })
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
