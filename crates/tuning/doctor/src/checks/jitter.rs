//! Jitter: time that a processor's work does not get.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::{Hypervisor, Look};
use crate::system::Unseen;

/// More than this is lost to nobody on this kernel, in percent: a quiet processor loses a tenth of it.
const MUCH: f64 = 3.0;
/// The most that threads of this kernel may take, in percent: beyond it, what else is lost can't be told.
const BUSY: f64 = 15.0;

/// Steal and jitter.
pub const JITTER: Check = Check {
    id: "jitter",
    title: "Work takes the same time each time",
    about: "The same piece of work is done for 0.7 s. What pieces take beyond the fastest is lost: to threads of this \
        kernel (which it counts), to the hypervisor (which counts it as steal, if it does at all), or to what interrupts. In \
        programs that wait for each other the slowest decides.",
    by_hand: "grep '^cpu ' /proc/stat # the 8th number is steal",
    remedy: "find on the host who takes the core: vshmem doctor there has checks for that",
    class: Class::Live,
    risk: "none by itself",
    source: "Sottile and Minnich 2004 (fixed work quantum); Han et al. 2010 (remote memory and unpinned processors)",
    causes: &["shared-cores", "emulator-cores", "interrupts", "steal"],
    look: jitter,
};

fn jitter(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let Some(quantum) = look.instruments.quantum() else {
        return Ok(Verdict::unknown(
            "it was not measured: this is a recorded system, or keeps no /proc/thread-self/schedstat",
        ));
    };
    look.measure("time lost in all", quantum.lost, "%");
    look.measure("lost to threads of this kernel", quantum.waited, "%");
    look.measure("stolen by the hypervisor, as it says", quantum.stolen, "%");
    look.measure("longest delay", quantum.longest, "µs");
    let rest = (quantum.lost - quantum.waited).max(quantum.stolen);
    if rest <= MUCH {
        return Ok(Verdict::fine(format!(
            "{rest:.1} % of the time is lost to others than this kernel's threads"
        )));
    }
    if quantum.waited > BUSY {
        return Ok(Verdict::unknown(format!(
            "this kernel's own threads took {:.0} % of the processor meanwhile: try again when it is quiet",
            quantum.waited
        )));
    }
    let silent = match look.hypervisor()? {
        Some(Hypervisor::Tcg) => " Emulation counts no steal.",
        _ => "",
    };
    Ok(Verdict::Costs(Costs {
        why: format!("{rest:.1} % of the time is lost, and not to threads of this kernel.{silent}"),
        estimate: format!("{rest:.0} % of the time, and more where threads wait for each other"),
        proven: true,
        ..Costs::default()
    }))
}
