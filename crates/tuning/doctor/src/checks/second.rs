//! Nested paging: the hypervisor's second page table.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::kvm;
use crate::look::Look;
use crate::machines::machines;
use crate::system::Unseen;

/// Less memory than this in machines shows nothing, in KiB.
const LITTLE: u64 = 64 << 10;

/// The sizes of its pages.
pub const SECOND: Check = Check {
    id: "second-page-table",
    title: "KVM has large pages in its own page table",
    about: "The processor walks two page tables for a machine: the machine's, and KVM's (EPT, NPT). KVM's has large pages only \
        where the host's memory has, and not where kvm.nx_huge_pages splits those from which the machine executes (against \
        a bug of some processors, iTLB multihit). Without EPT or NPT KVM keeps a page table for each of the machine's in \
        software. KVM counts each machine's pages by size in debugfs.",
    by_hand: "grep . /sys/module/kvm/parameters/{nx_huge_pages,tdp_mmu} /sys/module/kvm_{intel,amd}/parameters/{ept,npt}; \
        grep . /sys/kernel/debug/kvm/*/pages_*",
    remedy: "see to huge pages of the host (huge-pages, shared-huge-pages), and start the machine anew",
    class: Class::MachineRestart,
    risk: "where the processor has the bug, a machine could stop it without the split",
    source: "Linux, Documentation/admin-guide/hw-vuln/multihit.rst and Documentation/virt/kvm/x86/mmu.rst; Song, Chen and Zang \
        2011, 3.4 (two page tables)",
    causes: &["huge-pages", "shared-huge-pages"],
    look: second,
};

fn second(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    const NX: &str = "sys/module/kvm/parameters/nx_huge_pages";
    if !look.system.path("sys/module/kvm").exists() {
        return Ok(Verdict::fine("no KVM runs on this kernel"));
    }
    for (path, remedy) in [
        ("sys/module/kvm_intel/parameters/ept", "load kvm_intel with ept=1"),
        ("sys/module/kvm_amd/parameters/npt", "load kvm_amd with npt=1"),
    ] {
        if matches!(look.text(path)?.as_deref(), Some("N" | "0")) {
            return Ok(Verdict::Costs(Costs {
                why: "KVM keeps page tables in software: a second one for each of a machine's programs.".into(),
                estimate: "an exit whenever a program's page table changes: half of the speed and less for programs that \
                    start others or map memory"
                    .into(),
                remedy: Some((Class::MachineRestart, format!("{remedy}, when no machine runs"))),
                ..Costs::default()
            }));
        }
    }
    look.text("sys/module/kvm/parameters/tdp_mmu")?;
    let splits = look.text(NX)?.is_some_and(|text| text == "Y");
    let bug = look.text("sys/devices/system/cpu/vulnerabilities/itlb_multihit")?;
    if splits && bug.as_deref().is_some_and(|text| text.starts_with("Not affected")) {
        return Ok(Verdict::Costs(Costs {
            why: "KVM splits large pages from which machines execute, though the processor does not have that bug.".into(),
            estimate: "TLB misses of large programs: some percent".into(),
            remedy: Some((Class::Live, "let KVM not split them (nx_huge_pages)".into())),
            changes: vec![look.change(NX, "N")?],
            ..Costs::default()
        }));
    }
    sizes(look, splits)
}

/// Judges the pages that are there.
fn sizes(look: &mut Look<'_>, splits: bool) -> Result<Verdict, Unseen> {
    let all = machines(look)?;
    if all.is_empty() {
        return Ok(Verdict::fine("no machine of QEMU can be seen here"));
    }
    if !kvm::counts(look.system)? {
        return Ok(Verdict::unknown("KVM's counts of pages are in debugfs, which is not mounted"));
    }
    let mut small = Vec::new();
    for machine in &all {
        let mut kib = [0; 3];
        for (sum, (name, size)) in kib.iter_mut().zip([("4k", 4), ("2m", 2 << 10), ("1g", 1 << 20)]) {
            *sum = kvm::count(look.system, machine.pid, &format!("pages_{name}"))?.unwrap_or(0) * size;
        }
        let total: u64 = kib.iter().sum();
        if total == 0 {
            continue;
        }
        let [of_4k, of_2m, of_1g] = kib.map(|kib| kib >> 10);
        let is = format!("{of_4k} MiB by 4 KiB, {of_2m} MiB by 2 MiB, {of_1g} MiB by 1 GiB");
        look.note(format!("{}, pages of KVM", machine.name), is);
        if total >= LITTLE && kib[0] * 2 >= total {
            small.push(format!("{} % of {}", 100 * kib[0] / total, machine.name));
        }
    }
    if small.is_empty() {
        return Ok(Verdict::fine("most memory of machines is in large pages, or there is little of it"));
    }
    if splits {
        look.note("the split", "the processor has the bug, so it must stay");
    }
    Ok(Verdict::Costs(Costs {
        why: format!("KVM maps much in small pages: {}.", small.join(", ")),
        estimate: "longer page walks in the hypervisor's table: 2 to 30 % where much memory is in use".into(),
        ..Costs::default()
    }))
}
