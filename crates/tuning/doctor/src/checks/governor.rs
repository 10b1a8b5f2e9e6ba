//! The governor: the processors' clock rate.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::system::Unseen;

const AT: &str = "sys/devices/system/cpu";

/// The governor of the clock rate.
pub const GOVERNOR: Check = Check {
    id: "governor",
    title: "Processors run at full speed when there is work",
    about: "A governor chooses the clock rate. `powersave` of acpi-cpufreq stays at the lowest rate; `ondemand` and \
        `conservative` go up a while after work has come, which programs that wake each other never reach. In a machine \
        the host decides. (intel_pstate and amd-pstate-epp call a governor powersave that does go up.)",
    by_hand: "grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_{driver,governor}",
    remedy: "let processors run at full speed (performance)",
    class: Class::Live,
    risk: "power and heat",
    source: "Linux, Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst",
    causes: &[],
    look: governor,
};

fn governor(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let mut slow = Vec::new();
    let mut seen = None;
    for cpu in look.online()? {
        let at = format!("{AT}/cpu{cpu}/cpufreq");
        let system = look.system;
        let Some(governor) = system.text(&format!("{at}/scaling_governor"))? else {
            continue;
        };
        let driver = system.text(&format!("{at}/scaling_driver"))?.unwrap_or_default();
        let (governor, driver) = (governor.trim().to_owned(), driver.trim().to_owned());
        if is_slow(&governor, &driver) {
            slow.push(look.change(&format!("{at}/scaling_governor"), "performance")?);
        }
        if seen.as_ref() != Some(&(governor.clone(), driver.clone())) {
            look.note(format!("/{at}"), format!("{driver}: {governor}"));
        }
        seen = Some((governor, driver));
    }
    let Some((governor, driver)) = seen else {
        return Ok(Verdict::fine(
            "this kernel does not choose the clock rate: the host or the firmware does",
        ));
    };
    if slow.is_empty() {
        return Ok(Verdict::fine(format!("{governor} of {driver} goes up with the work")));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Processors under {}, which goes up late or never: {}.", slow[0].from, slow.len()),
        estimate:
            "up to the ratio of the highest clock rate to the lowest; most for work that comes in bursts"
                .into(),
        changes: slow,
        ..Costs::default()
    }))
}

/// True if a governor goes up late or never.
fn is_slow(governor: &str, driver: &str) -> bool {
    match governor {
        "powersave" => !matches!(driver, "intel_pstate" | "amd-pstate-epp"),
        "ondemand" | "conservative" => true,
        _ => false,
    }
}
