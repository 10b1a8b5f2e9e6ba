//! Steal: the time that the hypervisor takes.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::guest::counts_steal;
use crate::look::{Hypervisor, Look};
use crate::system::Unseen;

/// Others want the machine's cores if more than this part of its processors' time was taken since boot, in
/// percent.
pub const SHARED: f64 = 1.0;

/// Steal since boot.
pub const STEAL: Check = Check {
    id: "steal",
    title: "The hypervisor does not take the cores of processors that have work",
    about: "A hypervisor that counts steal tells a machine for how long its processors had work and no core. The check has \
        the average since boot; `jitter` measures now.",
    by_hand: "grep '^cpu ' /proc/stat # the 8th number is steal, of the sum of the first 8",
    remedy: "find on the host who takes the core: vshmem doctor there has checks for that; or ask for fewer processors",
    class: Class::Live,
    risk: "none by itself",
    source: "Linux, Documentation/filesystems/proc.rst (/proc/stat); Han et al. 2010 (unpinned processors)",
    causes: &[],
    look: steal,
};

fn steal(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    if look.hypervisor()? == Some(Hypervisor::Nothing) {
        return Ok(Verdict::fine("this kernel runs on the hardware"));
    }
    if !counts_steal(look)? {
        return Ok(Verdict::unknown("the hypervisor counts no steal here"));
    }
    let Some(percent) = stolen(look)? else {
        return Ok(Verdict::unknown("/proc/stat has no count of steal"));
    };
    if percent <= SHARED {
        return Ok(Verdict::fine(format!("{percent:.1} % of the time since boot")));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("The hypervisor took {percent:.0} % of the processors' time since boot."),
        estimate: format!("{percent:.0} % of the time, and more where threads wait for each other"),
        proven: true,
        ..Costs::default()
    }))
}

/// The part of the processors' time since boot that the hypervisor took, in percent.
pub fn stolen(look: &mut Look<'_>) -> Result<Option<f64>, Unseen> {
    let stat = look.system.text("proc/stat")?.unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    // What follows is a part of the first two already.
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).take(8).map_while(|word| word.parse().ok()).collect();
    let &[.., steal] = &*ticks else { return Ok(None) };
    let total: f64 = ticks.iter().sum();
    if ticks.len() < 8 || total <= 0.0 {
        return Ok(None);
    }
    let percent = 100.0 * steal / total;
    look.note("/proc/stat, steal since boot", format!("{percent:.1} %"));
    Ok(Some(percent))
}
