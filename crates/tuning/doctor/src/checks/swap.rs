//! Swap: memory on a disk.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::machines;
use crate::system::Unseen;

/// Swapped memory.
pub const SWAP: Check = Check {
    id: "swap",
    title: "Memory is not on a disk",
    about: "Memory of a machine that the host has swapped out stops the virtual processor that touches it until a disk has \
        answered, and neither the machine nor its programs can tell. A machine that swaps itself does so twice.",
    by_hand: "grep VmSwap /proc/[0-9]*/status | sort -k2n | tail; grep -E 'pswp(in|out)' /proc/vmstat",
    remedy: "give the host or the machine more memory, or lock the machine's (QEMU: -overcommit mem-lock=on)",
    class: Class::MachineRestart,
    risk: "locked memory is lost to others",
    source: "Youseff et al. 2008 (DGEMM in scarce memory); proc(5)",
    causes: &["balloon"],
    look: swap,
};

fn swap(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let mut swapped = Vec::new();
    for machine in machines(look)? {
        let size = look.number(&format!("proc/{}/status", machine.pid), "VmSwap")?.unwrap_or(0);
        if size > 0 {
            swapped.push(format!("{} MiB of {}", (size >> 10).max(1), machine.name));
        }
    }
    let of_memory = |name: &str, look: &mut Look<'_>| look.number("proc/meminfo", name);
    let total = of_memory("SwapTotal", look)?.unwrap_or(0);
    let used = total.saturating_sub(of_memory("SwapFree", look)?.unwrap_or(total));
    let back = look.number("proc/vmstat", "pswpin")?.unwrap_or(0);
    if !swapped.is_empty() {
        return Ok(Verdict::Costs(Costs {
            why: format!("The host has swapped out {}.", swapped.join(", ")),
            estimate: "the time of a disk for each page that is touched again".into(),
            ..Costs::default()
        }));
    }
    // What was swapped out and never asked for again costs nothing.
    if used > 0 && back > 0 {
        return Ok(Verdict::Costs(Costs {
            why: format!(
                "{} MiB are swapped out, and {back} pages had to be read back since boot.",
                used >> 10
            ),
            estimate: "the time of a disk for each page that is touched again".into(),
            ..Costs::default()
        }));
    }
    Ok(Verdict::fine(if used == 0 {
        "nothing is swapped out"
    } else {
        "nothing that was swapped out is missed"
    }))
}
