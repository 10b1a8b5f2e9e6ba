//! Idle states: the depth to which the host's cores sleep.

use super::cores::bound;
use crate::check::Check;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::machines;
use crate::setting::Setting;
use crate::system::Unseen;

/// Microseconds: what tuned's profile for hosts of machines allows, where states have no names that it knows.
const LATE: u64 = 70;

/// Idle states of cores.
pub const DEPTH: Check = Check {
    id: "idle-states",
    title: "Cores of bound virtual processors wake up at once",
    about: "A core of the host that has nothing to do goes to sleep, the deeper the longer it takes to wake. Each interrupt \
        and each message for a machine whose processor halted waits for that. Looked at are states of more than 70 µs that \
        such a core has been in and may go to: a limit of latency (PM QoS, /dev/cpu_dma_latency, as tuned's profiles \
        virtual-host and realtime set it) forbids them, and so does their file `disable`.",
    by_hand: "grep . /sys/devices/system/cpu/cpu0/cpuidle/state*/{name,latency,usage,disable}; \
        od -An -td4 /dev/cpu_dma_latency",
    remedy: "forbid these states (tuned-adm profile virtual-host; or the state's file disable)",
    class: Class::Live,
    risk: "more power, and less of a turbo for the other cores",
    source: "Linux, Documentation/admin-guide/pm/cpuidle.rst; tuned, virtual-host (force_latency)",
    causes: &[],
    look: depth,
};

fn depth(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let cores = bound(&machines(look)?);
    if cores.is_empty() {
        return Ok(Verdict::fine("no virtual processor of QEMU is bound to a core here"));
    }
    let (mut deepest, mut changes, mut seen) = (0, Vec::new(), false);
    for core in cores {
        let at = format!("sys/devices/system/cpu/cpu{core}/cpuidle");
        for state in look.system.names(&at)?.iter().filter(|name| name.starts_with("state")) {
            seen = true;
            let number = |name: &str| -> Result<u64, Unseen> {
                let text = look.system.text(&format!("{at}/{state}/{name}"))?.unwrap_or_default();
                Ok(text.trim().parse().unwrap_or(0))
            };
            let latency = number("latency")?;
            if latency <= LATE || number("usage")? == 0 || number("disable")? != 0 {
                continue;
            }
            deepest = deepest.max(latency);
            let setting = Setting::file(&format!("{at}/{state}/disable"));
            changes.push(Change { setting, from: "0".into(), to: "1".into() });
        }
    }
    if !seen {
        return Ok(Verdict::fine("this kernel does not choose how deeply cores sleep"));
    }
    if changes.is_empty() {
        return Ok(Verdict::fine(format!("they have not slept in states of more than {LATE} µs")));
    }
    let allowed = allowed(look)?;
    look.note("/dev/cpu_dma_latency", format!("{allowed} µs"));
    if allowed < deepest {
        return Ok(Verdict::fine(format!("nothing may take more than {allowed} µs")));
    }
    Ok(Verdict::Costs(Costs {
        why: format!(
            "Cores that machines have for themselves sleep so deeply that they take {deepest} µs to wake."
        ),
        estimate: format!("up to {deepest} µs for each wake-up of a virtual processor that has halted"),
        changes,
        ..Costs::default()
    }))
}

/// The latency that PM QoS allows now, in microseconds: a number of 32 bits.
fn allowed(look: &Look<'_>) -> Result<u64, Unseen> {
    let path = "dev/cpu_dma_latency";
    let bytes =
        std::fs::read(look.system.path(path)).map_err(|why| Unseen::File { path: path.into(), why })?;
    let number = bytes.first_chunk().map_or(-1, |bytes| i32::from_ne_bytes(*bytes));
    // What it can't mean forbids nothing.
    Ok(u64::try_from(number).unwrap_or(u64::from(u32::MAX)))
}
