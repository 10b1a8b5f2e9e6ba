//! Same-page merging (KSM): equal pages become one.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::system::Unseen;

/// Kernel samepage merging.
pub const KSM: Check = Check {
    id: "ksm",
    title: "No thread of the kernel goes through memory for equal pages",
    about: "Kernel samepage merging (KSM) compares the memory of machines, and shares equal pages until somebody writes. \
        That saves memory, takes a part of a core, splits huge pages, makes first writes slow, and lets a machine learn by \
        the time of a write what another one has.",
    by_hand: "grep . /sys/kernel/mm/ksm/{run,pages_sharing,full_scans}",
    remedy: "stop it",
    class: Class::Live,
    risk: "no more memory is saved; pages that are shared stay so until they are written to",
    source: "Linux, Documentation/admin-guide/mm/ksm.rst",
    causes: &[],
    look: ksm,
};

fn ksm(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    const RUN: &str = "sys/kernel/mm/ksm/run";
    let Some(run) = look.text(RUN)? else {
        return Ok(Verdict::fine("the kernel was built without it"));
    };
    if run != "1" {
        return Ok(Verdict::fine("it is off"));
    }
    let sharing = look.text("sys/kernel/mm/ksm/pages_sharing")?.unwrap_or_default();
    look.text("sys/kernel/mm/ksm/full_scans")?;
    Ok(Verdict::Costs(Costs {
        why: format!("KSM is on; it saves {sharing} pages."),
        estimate: "a part of a core, small pages, and a copy at the first write to a shared page".into(),
        changes: vec![look.change(RUN, "0")?],
        ..Costs::default()
    }))
}
