//! Timer slack: timers that may be late.

use crate::check::Check;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, MachineThread};
use crate::setting::Setting;
use crate::system::Unseen;

/// QEMU itself asks for 1 ns; the kernel's default is 50 µs.
const LATE: u64 = 1000;

/// Timer slack.
pub const SLACK: Check = Check {
    id: "timer-slack",
    title: "QEMU's timers are not late",
    about: "The kernel may let a thread's timers go off up to its slack late, to wake the processor more rarely. A machine's \
        emulated timers, and its processors under emulation, are QEMU's timers. QEMU asks for the least slack at its start; \
        something else may have set it since.",
    by_hand: "cat /proc/$(pgrep -o qemu-system)/timerslack_ns",
    remedy: "set it to 1 ns",
    class: Class::Live,
    risk: "the host's processors wake more often",
    source: "prctl(2), PR_SET_TIMERSLACK; proc_pid_timerslack_ns(5)",
    causes: &[],
    look: slack,
};

fn slack(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    let mut changes = Vec::new();
    for machine in &all {
        // Threads of workers wait for work, not for a time.
        let main = machine.others.iter().find(|it| it.thread.number == machine.pid);
        for it in main.into_iter().chain(&machine.vcpus) {
            changes.extend(late(look, it)?);
        }
    }
    if changes.is_empty() {
        let none = "no machine of QEMU can be seen here";
        return Ok(Verdict::fine(if all.is_empty() { none } else { "they go off in time" }));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Threads whose timers may be late: {}.", changes.len()),
        estimate: "the slack, for each sleep and timer in the machine".into(),
        changes,
        ..Costs::default()
    }))
}

fn late(look: &mut Look<'_>, it: &MachineThread) -> Result<Option<Change>, Unseen> {
    // Only the process has the file, by the number of each of its threads.
    let path = format!("proc/{}/timerslack_ns", it.thread.number);
    let Some(now) = look.text(&path)? else {
        return Ok(None);
    };
    let is_late = now.parse::<u64>().is_ok_and(|slack| slack > LATE);
    let setting = Setting::File { path, process: Some(it.thread.clone()) };
    Ok(is_late.then(|| Change { setting, from: now, to: "1".into() }))
}
