//! Features that the processor which programs see lacks.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::guest::FAST_CLOCKS;
use crate::look::Look;
use crate::system::Unseen;

const MODEL: &str =
    "start the machine with the host's own processor model (QEMU: -cpu host, or the nearest named one)";
const MIGRATION: &str = "a machine with such a model moves only to hosts that have all of its features";

/// A counter that neither stops nor changes its pace.
pub const INVARIANT_TSC: Check = Check {
    id: "invariant-tsc",
    title: "The processor's counter can serve as a clock",
    about: "The kernel takes the processor's counter (TSC) for a clock only if it neither stops nor changes its pace \
        (nonstop_tsc). Processor models hide that from a machine so that it may move between hosts. Without it, and \
        without a hypervisor's own clock, time is read from an emulated device.",
    by_hand: "grep -ow nonstop_tsc /proc/cpuinfo | head -1",
    remedy: "start the machine with -cpu host,+invtsc, or with kvm-clock (which -cpu host has)",
    class: Class::MachineRestart,
    risk: MIGRATION,
    source: "Linux, Documentation/virt/kvm/x86/timekeeping.rst; QEMU, invtsc in docs/system/cpu-models-x86",
    causes: &[],
    look: invariant_tsc,
};

fn invariant_tsc(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let Some(has) = has(look, "nonstop_tsc")? else {
        return Ok(Verdict::fine("this architecture's counter is always one"));
    };
    if has {
        return Ok(Verdict::fine("the processor has nonstop_tsc"));
    }
    let offered = look.need("sys/devices/system/clocksource/clocksource0/available_clocksource")?;
    match offered.split_whitespace().find(|name| FAST_CLOCKS.contains(name)) {
        Some(name) => {
            Ok(Verdict::fine(format!("it lacks nonstop_tsc, but the kernel has {name} all the same")))
        }
        None => Ok(Verdict::Costs(Costs {
            why: "The processor has no invariant TSC, and the kernel no other fast clock.".into(),
            estimate: "that of a slow clock source".into(),
            ..Costs::default()
        })),
    }
}

/// Vector instructions.
pub const VECTORS: Check = Check {
    id: "vector-instructions",
    title: "Programs see the processor's vector instructions",
    about: "Libraries for numbers, compression and cryptography choose their code by what the processor says. QEMU's \
        default model (qemu64) has neither AVX nor AVX2, so that they take their oldest.",
    by_hand: "grep -owE 'avx2?|avx512f' /proc/cpuinfo | sort -u",
    remedy: MODEL,
    class: Class::MachineRestart,
    risk: MIGRATION,
    source: "QEMU, docs/system/cpu-models-x86; Youseff et al. 2008 (autotuned linear algebra)",
    causes: &[],
    look: vectors,
};

fn vectors(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let (Some(avx), Some(avx2)) = (has(look, "avx")?, has(look, "avx2")?) else {
        return Ok(Verdict::fine("this architecture always has vector instructions"));
    };
    if avx && avx2 {
        return Ok(Verdict::fine("the processor has AVX and AVX2"));
    }
    let lacks = if avx { "AVX2" } else { "AVX" };
    if !is_machine(look)? {
        return Ok(Verdict::fine(format!("the hardware itself has no {lacks}")));
    }
    Ok(Verdict::Costs(Costs {
        why: format!(
            "The machine's processor has no {lacks}: its model hides it, unless the host is as old as that."
        ),
        estimate: "half to seven eighths of the speed of code for vectors".into(),
        ..Costs::default()
    }))
}

/// A compare-and-swap of 16 bytes.
pub const CX16: Check = Check {
    id: "cx16",
    title: "Programs can compare and swap 16 bytes",
    about: "Lock-free queues, and Vshmem's semaphores with SEM_UNDO, change 16 bytes by one instruction (cmpxchg16b). \
        QEMU's oldest models lack it.",
    by_hand: "grep -ow cx16 /proc/cpuinfo | head -1",
    remedy: MODEL,
    class: Class::MachineRestart,
    risk: MIGRATION,
    source: "docs/design/operations.md of Vshmem (semaphores); x86-64-v2 of the psABI",
    causes: &[],
    look: cx16,
};

fn cx16(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    Ok(match has(look, "cx16")? {
        None => Verdict::fine("this architecture needs no such feature"),
        Some(true) => Verdict::fine("the processor has cx16"),
        Some(false) => Verdict::Costs(Costs {
            why: "The processor has no cx16.".into(),
            estimate: "a lock in the place of one instruction, or a program that does not start".into(),
            ..Costs::default()
        }),
    })
}

/// Tagged TLB entries, where page tables are switched at each system call.
pub const PCID: Check = Check {
    id: "pcid",
    title: "System calls keep the TLB",
    about: "Against Meltdown the kernel has page tables of its own (PTI), and changes them at each system call. With PCID \
        the TLB keeps both; without it, each system call empties it.",
    by_hand: "grep -ow pcid /proc/cpuinfo | head -1; cat /sys/devices/system/cpu/vulnerabilities/meltdown",
    remedy: "start the machine with -cpu host, or with +pcid",
    class: Class::MachineRestart,
    risk: MIGRATION,
    source: "QEMU, docs/system/cpu-models-x86 (pcid); Linux, Documentation/arch/x86/pti.rst; Song, Chen and Zang 2011, \
        3.4 (iTLB)",
    causes: &[],
    look: pcid,
};

fn pcid(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let Some(has) = has(look, "pcid")? else {
        return Ok(Verdict::fine("this architecture tags its TLB always"));
    };
    let state = look.text("sys/devices/system/cpu/vulnerabilities/meltdown")?;
    Ok(match state {
        _ if has => Verdict::fine("the processor has PCID"),
        None => Verdict::unknown("the kernel does not say whether it switches page tables at system calls"),
        Some(state) if state.contains("PTI") => Verdict::Costs(Costs {
            why: "The kernel switches page tables at each system call, and the processor has no PCID.".into(),
            estimate: "the TLB at each system call: up to 30 % of programs that make many".into(),
            ..Costs::default()
        }),
        Some(_) => Verdict::fine("it lacks PCID, but page tables stay at system calls"),
    })
}

/// True if the processor has a feature; `None`: it is not of this kind.
fn has(look: &mut Look<'_>, name: &str) -> Result<Option<bool>, Unseen> {
    let has = look.flags()?.map(|flags| flags.iter().any(|flag| flag == name));
    if let Some(has) = has {
        look.note(format!("/proc/cpuinfo, {name}"), if has { "yes" } else { "no" });
    }
    Ok(has)
}

fn is_machine(look: &Look<'_>) -> Result<bool, Unseen> {
    Ok(look.flags()?.is_some_and(|flags| flags.iter().any(|flag| flag == "hypervisor")))
}
