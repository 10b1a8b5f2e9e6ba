//! A machine as its own kernel sees it: clocks that need no exit, polling before a halt, and steal.

use crate::look::Look;
use crate::system::Unseen;

/// Clock sources that a processor reads by itself, from the best.
pub const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// The way in which idle processors poll before they halt, if they do.
pub fn polls(look: &mut Look<'_>) -> Result<Option<String>, Unseen> {
    const AT: &str = "sys/devices/system/cpu/cpuidle";
    let line = look.system.text("proc/cmdline")?.unwrap_or_default();
    if line.split_whitespace().any(|word| word == "idle=poll") {
        return Ok(Some("idle=poll".into()));
    }
    let is = |look: &mut Look<'_>, file: &str| -> Result<bool, Unseen> {
        Ok(look.text(&format!("{AT}/{file}"))?.as_deref() == Some("haltpoll"))
    };
    let polls = is(look, "current_driver")? && is(look, "current_governor")?;
    let limit = look.text("sys/module/haltpoll/parameters/guest_halt_poll_ns")?;
    Ok((polls && limit.as_deref() != Some("0")).then(|| "haltpoll".into()))
}

/// True if the kernel counts the time that the hypervisor takes.
pub fn counts_steal(look: &mut Look<'_>) -> Result<bool, Unseen> {
    let line = look.system.text("proc/cmdline")?.unwrap_or_default();
    if line.split_whitespace().any(|word| word == "no-steal-acc") {
        return Ok(false);
    }
    if look.instruments.hypervisor().as_deref() == Some("XenVMMXenVMM")
        || look.instruments.kvm().is_some_and(|kvm| kvm.counts_steal())
    {
        return Ok(true);
    }
    // A count that is not zero is counted.
    let stat = look.system.need("proc/stat")?;
    Ok(stat.lines().next().and_then(steal).is_some_and(|ticks| ticks > 0))
}

/// The ticks that the hypervisor took, of a line of /proc/stat.
pub fn steal(line: &str) -> Option<u64> {
    line.split_whitespace().nth(8)?.parse().ok()
}
