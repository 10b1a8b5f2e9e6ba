//! Ballooning: memory that the host has taken back.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::system::Unseen;

/// The balloon device.
pub const BALLOON: Check = Check {
    id: "balloon",
    title: "The host has not taken memory back from the machine",
    about: "By a balloon device the host takes memory back from a machine that runs. What is gone shows as memory in use \
        there; the machine has less for caches and may swap, and huge pages behind the balloon are split.",
    by_hand: "grep balloon_ /proc/vmstat",
    remedy: "give the memory back (virsh setmem, QEMU: balloon)",
    class: Class::Live,
    risk: "the host has less",
    source: "QEMU, virtio-balloon; Linux, drivers/virtio/virtio_balloon.c",
    causes: &[],
    look: balloon,
};

fn balloon(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let inflated = look.number("proc/vmstat", "balloon_inflate")?;
    let deflated = look.number("proc/vmstat", "balloon_deflate")?;
    let (Some(inflated), Some(deflated)) = (inflated, deflated) else {
        return Ok(Verdict::fine("the kernel has no balloon"));
    };
    let total = look.number("proc/meminfo", "MemTotal")?.unwrap_or(0);
    let taken = inflated.saturating_sub(deflated) * 4;
    // A little is no loss that could be seen.
    if taken * 100 <= total {
        return Ok(Verdict::fine("the balloon is empty, or as good as"));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("The host has taken back {} MiB, and {} are left.", taken >> 10, total >> 10),
        estimate: "caches and huge pages; where the rest does not suffice, the time of a disk".into(),
        ..Costs::default()
    }))
}
