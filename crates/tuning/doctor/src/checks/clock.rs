//! The clock source: its kind, and the cost of a look at it.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::guest::FAST_CLOCKS;
use crate::look::{Hypervisor, Look};
use crate::system::Unseen;

/// The directory of the clock source.
const AT: &str = "sys/devices/system/clocksource/clocksource0";
/// The source of Xen's machines. Programs read it by themselves where Xen vouches for the counter, which no
/// file tells. It is memory of the kernel's and the counter, so nothing leaves the machine for it.
const XEN: &str = "xen";
/// Sources that are devices: a hypervisor emulates them.
const DEVICES: [&str; 2] = ["acpi_pm", "hpet"];
/// The time from which on a look at the clock entered the kernel: a share of what a system call takes.
const ENTERED: f64 = 0.75;

/// The clock source, and what it costs.
pub const SOURCE: Check = Check {
    id: "clock-source",
    title: "Programs read the clock without leaving the machine",
    about: "A program that reads the clock needs no system call where the processor's counter (TSC, kvm-clock) is the \
        clock source; of Xen's (xen), where Xen vouches for the counter. Any other source makes a system call of it. A \
        device (acpi_pm, hpet) in a machine also makes an exit to the hypervisor, which emulates it, often under a lock \
        that all virtual processors share.",
    by_hand: "cat /sys/devices/system/clocksource/clocksource0/*_clocksource",
    remedy: "make the processor's counter the clock source",
    class: Class::Live,
    risk: "where counters of processors are not in step, time may jump; the kernel does not offer those that it has found so",
    source: "Song, Chen and Zang 2011, 3.1 (vtime: 1.09 to 1.44 times faster without); Linux, \
        Documentation/virt/kvm/x86/timekeeping.rst",
    causes: &["invariant-tsc"],
    look: source,
};

fn source(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let current = look.need(&format!("{AT}/current_clocksource"))?;
    let available = look.need(&format!("{AT}/available_clocksource"))?;
    let clock = look.instruments.clock();
    let entered = clock.map(|clock| clock.read > ENTERED * clock.call);
    if let Some(clock) = clock {
        look.measure("reading the clock", clock.read, "ns");
        look.measure("reading it by a system call", clock.call, "ns");
    }
    let is_fast = FAST_CLOCKS.contains(&&*current);
    match entered {
        Some(false) if is_fast => {
            return Ok(Verdict::fine(format!("{current} is read by the processor itself")))
        }
        None if is_fast => {
            return Ok(Verdict::fine(format!("the source is {current}; what it costs was not measured")))
        }
        Some(true) if is_fast => {
            let why = format!("The source is {current}, yet each look at the clock enters the kernel.");
            let remedy = "see whether the vDSO is off (vdso=0, a sandbox), or the hypervisor does not vouch for the counter";
            return Ok(Verdict::Costs(Costs {
                why,
                estimate: "the whole of a system call for each look at the clock".into(),
                proven: true,
                remedy: Some((Class::MachineRestart, remedy.into())),
                ..Costs::default()
            }));
        }
        Some(false) if current == XEN => {
            return Ok(Verdict::fine(format!("{current} is read without entering the kernel")))
        }
        None if current == XEN => {
            let why =
                format!("the source is {current}; whether looks at it enter the kernel was not measured");
            return Ok(Verdict::Unknown(why));
        }
        _ => (),
    }
    slow(look, &current, &available, entered.is_some())
}

/// The source is no counter of the processor's.
fn slow(look: &mut Look<'_>, current: &str, available: &str, proven: bool) -> Result<Verdict, Unseen> {
    let exits = DEVICES.contains(&current) && look.hypervisor()? != Some(Hypervisor::Nothing);
    let leaves = if exits { ", and leaves the machine," } else { "" };
    let estimate = match DEVICES.contains(&current) {
        true => {
            "microseconds for each look at the clock; programs that look often ran 1.26 times slower in the \
            paper (mean of nine)"
        }
        false => "the whole of a system call for each look at the clock",
    };
    let mut costs = Costs {
        why: format!("Time is read from {current}: each look at the clock enters the kernel{leaves} for it."),
        estimate: estimate.into(),
        proven,
        ..Costs::default()
    };
    match better(look, available)? {
        Some(name) => costs.changes = vec![look.change(&format!("{AT}/current_clocksource"), name)?],
        None => {
            let remedy = "the kernel offers no counter: give the machine an invariant TSC or kvm-clock, or see in the \
                kernel's log why it distrusts the counter";
            costs.remedy = Some((Class::MachineRestart, remedy.into()));
        }
    }
    Ok(Verdict::Costs(costs))
}

/// The best source that is offered. A TSC that may stop or change its pace is only second to a hypervisor's
/// clock.
fn better(look: &Look<'_>, available: &str) -> Result<Option<&'static str>, Unseen> {
    let steady = look.flags()?.is_none_or(|flags| flags.iter().any(|flag| flag == "nonstop_tsc"));
    let order = if steady {
        FAST_CLOCKS
    } else {
        ["kvm-clock", "hyperv_clocksource_tsc_page", "tsc", "arch_sys_counter"]
    };
    let offered = |name: &&str| available.split_whitespace().any(|offered| offered == *name);
    Ok(order.into_iter().find(offered))
}
