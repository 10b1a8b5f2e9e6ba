//! Polling by a machine and by its host.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::guest::polls;
use crate::look::{Hypervisor, Look};
use crate::system::Unseen;

/// Both poll for the same wake-up.
pub const DOUBLE: Check = Check {
    id: "double-polling",
    title: "A machine that polls before it halts has the host not poll, too",
    about: "A processor that polls before it halts (haltpoll, idle=poll) looks for its wake-up itself. Where KVM then polls \
        once more, a wake-up that neither of them sees takes the core for both times. haltpoll switches the host's polling \
        off for its machine, where KVM lets it (KVM_FEATURE_POLL_CONTROL).",
    by_hand: "cpuid -1 -l 0x40000001 # bit 12 of eax; on the host: grep . /sys/module/kvm/parameters/halt_poll_ns",
    remedy: "on the host let KVM not poll (halt_poll_ns=0), if all of its machines poll; or take a newer QEMU and kernel there",
    class: Class::Live,
    risk: "machines that don't poll wake later",
    source: "Linux, Documentation/virt/guest-halt-polling.rst and Documentation/virt/kvm/halt-polling.rst",
    causes: &[],
    look: double,
};

fn double(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    if look.hypervisor()? != Some(Hypervisor::Kvm) {
        return Ok(Verdict::fine("this kernel is in no machine of KVM"));
    }
    match polls(look)?.as_deref() {
        None => return Ok(Verdict::fine("processors don't poll before they halt")),
        Some("haltpoll") => (),
        // It never halts.
        Some(how) => {
            return Ok(Verdict::fine(format!(
                "processors never halt ({how}), so the host has nothing to wait for"
            )))
        }
    }
    let Some(kvm) = look.instruments.kvm() else {
        return Ok(Verdict::unknown("KVM's features could not be read"));
    };
    let leaves = kvm.leaves_polling();
    look.note("cpuid, KVM_FEATURE_POLL_CONTROL", if leaves { "yes" } else { "no" });
    if leaves {
        return Ok(Verdict::fine("haltpoll has switched the host's polling off"));
    }
    Ok(Verdict::Costs(Costs {
        why: "haltpoll can't switch the host's polling off: the host polls once more, unless it is off for all.".into(),
        estimate: "up to halt_poll_ns of the host's core (200 µs by default) for each time that a processor idles".into(),
        ..Costs::default()
    }))
}
