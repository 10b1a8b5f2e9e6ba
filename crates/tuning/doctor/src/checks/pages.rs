//! The size of pages: of anonymous memory, of shared memory, and of pools.

use crate::check::Check;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::{Hypervisor, Look};
use crate::machines::machines;
use crate::mounts;
use crate::setting::Setting;
use crate::system::Unseen;
use crate::text::number;

const SHM: &str = "dev/shm";
const THP: &str = "sys/kernel/mm/transparent_hugepage";
/// Memory in KiB below which the kernel has huge pages off: each takes too large a part.
const SMALL: u64 = 512 << 10;
/// Memory in KiB below which huge pages gain nothing that could be seen.
const MUCH: u64 = 64 << 10;
const SOURCE: &str =
    "Younge 2015, 7.1 (huge pages with KVM); Linux, Documentation/admin-guide/mm/transhuge.rst";

/// Transparent huge pages of anonymous memory.
pub const HUGE: Check = Check {
    id: "huge-pages",
    title: "Programs and machines get huge pages",
    about: "In a machine an address goes through two page tables, the machine's and the host's. Pages of 2 MiB in both \
        spare most of these walks, and fill at one fault what takes 512. QEMU asks for them (madvise) for a machine's \
        private memory; many programs don't ask.",
    by_hand: "cat /sys/kernel/mm/transparent_hugepage/enabled; grep AnonHugePages /proc/meminfo",
    remedy: "let those have huge pages that ask for them (madvise)",
    class: Class::Live,
    risk: "programs that ask may use more memory; memory that is in use keeps its small pages until khugepaged has come by",
    source: SOURCE,
    causes: &[],
    look: huge,
};

fn huge(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let path = format!("{THP}/enabled");
    let Some(state) = look.chosen(&path)? else {
        return Ok(Verdict::unknown("the kernel was built without transparent huge pages, or hides them"));
    };
    look.number("proc/meminfo", "AnonHugePages")?;
    look.number("proc/meminfo", "HugePages_Total")?;
    let memory = look.number("proc/meminfo", "MemTotal")?.unwrap_or(u64::MAX);
    let touch = look.instruments.touch();
    if let Some(touch) = touch {
        look.measure("touching 4 KiB, small pages", touch.small, "ns");
        look.measure("touching 4 KiB, huge pages asked for", touch.large, "ns");
    }
    Ok(match &*state {
        "always" => Verdict::fine("all memory may be in huge pages"),
        "madvise" => Verdict::fine("programs that ask get huge pages, as QEMU does for machines; others don't"),
        _ if memory < SMALL => {
            Verdict::fine("no program gets one, which is the kernel's choice where there are less than 512 MiB")
        }
        _ => Verdict::Costs(Costs {
            why: "No program gets a huge page, not even one that asks.".into(),
            estimate: format!(
                "512 faults in the place of one, and longer page walks: 2 to 30 % where much memory is in use{}",
                match look.hypervisor()? {
                    Some(Hypervisor::Tcg) => " (which emulation can't show)",
                    _ => "",
                }
            ),
            changes: vec![look.change(&path, "madvise")?],
            ..Costs::default()
        }),
    })
}

/// Transparent huge pages of shared memory without a file.
pub const SHARED: Check = Check {
    id: "shared-huge-pages",
    title: "Shared memory of machines is in huge pages",
    about: "Memory that QEMU shares with other processes (memfd, for vhost-user and virtiofs) is no anonymous memory: \
        shmem_enabled decides on it, which is `never` unless somebody changes it.",
    by_hand: "cat /sys/kernel/mm/transparent_hugepage/shmem_enabled; grep -A20 memfd: /proc/$(pgrep -o qemu-system)/smaps",
    remedy: "let shared memory have huge pages where it is asked for (advise), which QEMU does",
    class: Class::Live,
    risk: "shared memory may take more; what is in use keeps its small pages",
    source: SOURCE,
    causes: &["huge-pages"],
    look: shared,
};

fn shared(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let path = format!("{THP}/shmem_enabled");
    let Some(state) = look.chosen(&path)? else {
        return Ok(Verdict::unknown(
            "the kernel was built without huge pages of shared memory, or hides them",
        ));
    };
    let mut all = Anonymous::default();
    for machine in machines(look)? {
        let of = format!("proc/{}/smaps", machine.pid);
        let it = Anonymous::of(&look.system.text(&of)?.unwrap_or_default());
        look.note(
            format!("/{of}, memfd"),
            format!("{} MiB, {} of them in huge pages", it.all >> 10, it.huge >> 10),
        );
        all.all += it.all;
        all.huge += it.huge;
    }
    Ok(match &*state {
        _ if all.all < MUCH => Verdict::fine("no machine here has its memory in memfds"),
        "never" | "deny" => Verdict::Costs(Costs {
            why: format!(
                "Machines have {} MiB in memfds, which {state} keeps in small pages.",
                all.all >> 10
            ),
            estimate: "longer page walks for all of a machine's memory: 2 to 30 % where much is in use"
                .into(),
            changes: vec![look.change(&path, "advise")?],
            ..Costs::default()
        }),
        state => Verdict::fine(format!("memory in memfds may be in huge pages ({state})")),
    })
}

/// Memory of memfds that a process has mapped, in KiB. Files of a mounted tmpfs don't follow `shmem_enabled`.
#[derive(Default)]
struct Anonymous {
    all: u64,
    huge: u64,
}

impl Anonymous {
    fn of(smaps: &str) -> Anonymous {
        let mut sums = Anonymous::default();
        let mut is_memfd = false;
        for line in smaps.lines() {
            let name = line.split_whitespace().next().unwrap_or_default();
            if !name.ends_with(':') {
                is_memfd = line.contains(" /memfd:");
            } else if is_memfd {
                let value = number(line, name.trim_end_matches(':')).unwrap_or(0);
                match name {
                    "Rss:" => sums.all += value,
                    "ShmemPmdMapped:" => sums.huge += value,
                    _ => (),
                }
            }
        }
        sums
    }
}

/// Huge pages behind pools.
pub const POOL: Check = Check {
    id: "pool-huge-pages",
    title: "Pools are in huge pages",
    about:
        "A pool is a file on a tmpfs, whose mount option huge= decides on its pages: neither `enabled` nor \
        `shmem_enabled` do (but for `deny` and `force`). Without the option they are small.",
    by_hand: "findmnt -no OPTIONS /dev/shm; grep ShmemPmdMapped /proc/meminfo",
    remedy: "give the mount the option (mount -o remount,huge=within_size /dev/shm), before pools are made",
    class: Class::Live,
    risk: "each file there may take up to 2 MiB more; pools that exist keep their pages",
    source: "Linux, Documentation/filesystems/tmpfs.rst (huge=)",
    causes: &[],
    look: pool,
};

fn pool(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let system = look.system;
    let mut used = 0;
    for directory in system.names("dev/shm")?.iter().filter(|name| name.starts_with("vshmem.")) {
        // Others' pools can't be seen, and are theirs to ask about.
        for pool in system.names(&format!("dev/shm/{directory}")).unwrap_or_default() {
            used += system.allocated(&format!("dev/shm/{directory}/{pool}"))? >> 10;
        }
    }
    look.note("/dev/shm, memory of pools", format!("{} MiB", used >> 10));
    if used < MUCH {
        return Ok(Verdict::fine("there are no pools in /dev/shm with much in them"));
    }
    let mounts = system.need("proc/self/mounts")?;
    let Some(options) = mounts::options(&mounts, &format!("/{SHM}")) else {
        return Ok(Verdict::unknown("nothing is mounted on /dev/shm"));
    };
    look.note("/proc/self/mounts, /dev/shm", options);
    let huge = mounts::huge(options);
    let shared = format!("{THP}/shmem_enabled");
    let forced = look.chosen(&shared)?.unwrap_or_default();
    look.number("proc/meminfo", "ShmemPmdMapped")?;
    Ok(match (&*forced, huge) {
        ("force", _) => Verdict::fine("all shared memory is to be in huge pages (force)"),
        ("deny", _) | (_, "never") => Verdict::Costs(Costs {
            why: "Pools in /dev/shm are in small pages: the mount has no huge= option, or all is denied.".into(),
            changes: large(look, huge, &forced)?,
            estimate: "TLB misses of programs that go through large segments; small segments, semaphores and queues \
                don't notice"
                .into(),
            ..Costs::default()
        }),
        (_, huge) => Verdict::fine(format!("pools may be in huge pages (huge={huge})")),
    })
}

/// The settings by which pools have huge pages.
fn large(look: &Look<'_>, huge: &str, forced: &str) -> Result<Vec<Change>, Unseen> {
    let mut changes = Vec::new();
    if forced == "deny" {
        changes.push(look.change(&format!("{THP}/shmem_enabled"), "never")?);
    }
    if huge == "never" {
        let setting = Setting::HugePages(SHM.into());
        changes.push(Change { setting, from: huge.into(), to: "within_size".into() });
    }
    Ok(changes)
}
