//! Large pages of this host: how many are left, which pages machines and pools get, and whether they have
//! them.
//!
//! Reserved pages are no memory that anybody else could have, so they are counted apart from it, by node. A
//! record is the claim to them, as it is to memory ([`super::claims`]); pages that a machine or a pool has
//! already are not free any more, so they do not count again. Surplus pages (`nr_overcommit_hugepages`) are
//! not counted on: the kernel may not find them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use vshmem_base::directories::{boot_id, cluster_names};
use vshmem_base::error::{error, Error, Result};
use vshmem_base::{interrupt, memory, size};
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::shared::pool;
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Machine, MadePool, Record};
use vshmem_placement::binding::{self, Resident};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::{Given, Pages};
use vshmem_placement::rules::Insist;

/// The directory in which the kernel lists pages.
const SYS: &str = "/sys";

/// The large pages of a host that are left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Bytes of reserved pages, by their size and by node. Sizes that are not in it the host does not have.
    pub reserved: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// The number of pages of each size that the host has reserved, free or not.
    total: BTreeMap<u64, u64>,
    /// The size that `vm.nr_hugepages` means.
    default: Option<u64>,
    /// The reason why the kernel gives nobody transparent huge pages, if so, and the remedy.
    no_transparent: Option<(String, String)>,
}

/// The reason why a machine or pool can't have its pages, and the remedy.
type Refusal = (String, String);

impl Left {
    /// The pages that are free now.
    fn of_host() -> Left {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Left::read(Path::new(SYS), &meminfo)
    }

    fn read(sys: &Path, meminfo: &str) -> Left {
        let number = |path: &Path| fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let mut left = Left::default();
        for (size, all) in sizes(&sys.join("kernel/mm/hugepages")) {
            let count = |name: &str| number(&all.join(name)).unwrap_or(0u64);
            let name = all.file_name().unwrap_or_default();
            let mut by_node: BTreeMap<u32, u64> = BTreeMap::new();
            for (node, path) in numbered(&sys.join("devices/system/node"), "node") {
                let free = number(&path.join("hugepages").join(name).join("free_hugepages"));
                by_node.insert(node, free.unwrap_or(0u64).saturating_mul(size));
            }
            if by_node.is_empty() {
                by_node.insert(0, count("free_hugepages").saturating_mul(size));
            }
            left.total.insert(size, count("nr_hugepages"));
            left.reserved.insert(size, by_node);
            // Promised to programs that have not touched them; nobody says on which nodes.
            left.take(size, &CpuSet::default(), count("resv_hugepages").saturating_mul(size));
        }
        let default = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
        left.default = default.and_then(|text| size::parse(text.trim()).ok());
        let thp = sys.join("kernel/mm/transparent_hugepage/enabled");
        left.no_transparent = match fs::read_to_string(&thp) {
            Err(_) => Some(("this kernel has none".into(), "Take reserved ones: 2M.".into())),
            Ok(text) if text.contains("[never]") => Some((
                format!("the kernel gives nobody any ({} says never)", thp.display()),
                format!("As root: echo madvise >{}", thp.display()),
            )),
            Ok(_) => None,
        };
        left
    }

    /// The pages that all clusters of this user but one leave.
    pub fn for_cluster(name: &str) -> Result<Left> {
        let mut left = Left::of_host();
        for other in cluster_names()?.iter().filter(|other| *other != name) {
            // An unreadable record does not keep another cluster from being started.
            if let Some(other) = Record::read(other).ok().flatten().filter(|other| other.boot == boot_id()) {
                left.take_outstanding(&other, &[]);
            }
        }
        Ok(left)
    }

    /// The pages that are left for these machines of a record, which may run still, and for its pools that
    /// are not made yet.
    pub fn for_machines(record: &Record, indices: &[usize]) -> Result<Left> {
        let mut left = Left::for_cluster(&record.name)?;
        left.take_outstanding(record, indices);
        for machine in indices.iter().map(|&index| &record.machines[index]) {
            // They are free once it has ended.
            if let Some(size) = machine.pages.reserved() {
                left.give(size, &nodes_of(machine), held(machine));
            }
        }
        Ok(left)
    }

    /// Takes off the pages that machines of a record, but for these, and its pools have claimed and don't
    /// have yet.
    fn take_outstanding(&mut self, record: &Record, but: &[usize]) {
        let machines = record.machines.iter().enumerate().filter(|(index, _)| !but.contains(index));
        for (_, machine) in machines.filter(|(_, machine)| state(record, machine) != MachineState::Died) {
            if let Some(size) = machine.pages.reserved() {
                self.take(size, &nodes_of(machine), machine.memory.saturating_sub(held(machine)));
            }
        }
        if record.machines.iter().any(|machine| state(record, machine) != MachineState::Died) {
            for pool in &record.pools {
                if let Some(size) = pool.pages.reserved() {
                    let has = fs::metadata(&pool.path).map_or(0, |file| file.blocks() * 512);
                    self.take(size, &CpuSet::default(), pool.size.saturating_sub(has));
                }
            }
        }
    }

    /// Takes pages, from these nodes as far as they have some; without any, from those that have the most.
    fn take(&mut self, size: u64, nodes: &CpuSet, mut bytes: u64) {
        let Some(by_node) = self.reserved.get_mut(&size) else { return };
        let mut order: Vec<u32> = by_node.keys().copied().collect();
        order.sort_by_key(|node| (!nodes.contains(*node), u64::MAX - by_node[node]));
        for node in order {
            let left = by_node.get_mut(&node).expect("it is one of the keys");
            let taken = bytes.min(*left);
            *left -= taken;
            bytes -= taken;
        }
    }

    fn give(&mut self, size: u64, nodes: &CpuSet, bytes: u64) {
        if let Some(by_node) = self.reserved.get_mut(&size) {
            let node = nodes.first().or(by_node.keys().next().copied()).unwrap_or(0);
            *by_node.entry(node).or_default() += bytes;
        }
    }

    /// Bytes of reserved pages of this size that are left.
    fn sum(&self, size: u64) -> u64 {
        self.reserved.get(&size).map_or(0, |by_node| by_node.values().sum())
    }

    /// The reason why memory of this size can't be in these pages, if it can't.
    fn refusal(&self, pages: Pages, bytes: u64) -> Option<Refusal> {
        let Some(size) = pages.reserved() else {
            return self.no_transparent.clone().filter(|_| pages == Pages::Transparent);
        };
        if !self.reserved.contains_key(&size) {
            return Some(("this host's processor or kernel has none".into(), "Take others.".into()));
        }
        let left = self.sum(size);
        if left >= bytes {
            return None;
        }
        let all = self.total.get(&size).copied().unwrap_or(0);
        let wanted = all + (bytes - left).div_ceil(size);
        let why = format!("{} of those that this host has reserved are left", size::show(left));
        let mut remedy = match self.default == Some(size) {
            true => format!("As root: sysctl vm.nr_hugepages={wanted}"),
            false => {
                format!(
                    "As root: echo {wanted} >/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
                    size >> 10
                )
            }
        };
        if pages == Pages::OneGib {
            remedy += &format!(
                ". A host that has run for a while rarely has room for them; then hugepagesz=1G \
                 hugepages={wanted} on its kernel's command line"
            );
        }
        Some((why, remedy))
    }

    /// Chooses pages for memory of this size, and takes them. `extra` gives further reasons against some.
    ///
    /// # Errors
    /// It can't have those that it must have.
    fn choose(
        &mut self,
        what: &str,
        bytes: u64,
        wanted: Pages,
        insist: Insist,
        extra: &dyn Fn(Pages) -> Option<Refusal>,
    ) -> Result<Given> {
        let mut given = Given { wanted: Some(wanted), ..Given::default() };
        let mut pages = wanted;
        loop {
            match self.refusal(pages, bytes).or_else(|| extra(pages)) {
                None => break,
                Some((why, remedy)) => {
                    let said = format!("{what} can't have its {} in {pages}: {why}", size::show(bytes));
                    match pages.next_best() {
                        Some(next) if insist == Insist::Preferred => {
                            given.fallbacks.push(format!("{said}. {remedy}"));
                            pages = next;
                        }
                        _ => return Err(Error::new(said).hint(remedy)),
                    }
                }
            }
        }
        if let Some(size) = pages.reserved() {
            self.take(size, &CpuSet::default(), bytes);
        }
        given.given = Some(pages);
        Ok(given)
    }
}

/// The host's reserved pages that this user's other clusters leave: bytes, by the size of
/// these in bytes, and by node.
pub fn left_by_others(except: &str) -> Result<BTreeMap<u64, BTreeMap<u32, u64>>> {
    Left::for_cluster(except).map(|left| left.reserved)
}

/// The directories of page sizes, by the sizes in bytes.
fn sizes(directory: &Path) -> Vec<(u64, std::path::PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let size = size::parse(name.strip_prefix("hugepages-")?).ok()?;
        Some((size, entry.path()))
    };
    entries.filter_map(size).collect()
}

/// The directories whose names are this word and a number, by the number.
fn numbered(directory: &Path, word: &str) -> Vec<(u32, std::path::PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix(word)?.parse().ok()?;
        Some((number, entry.path()))
    };
    entries.filter_map(number).collect()
}

/// The nodes that a machine's memory comes from; empty: any.
fn nodes_of(machine: &Machine) -> CpuSet {
    machine.placement.as_ref().map(|placed| placed.nodes.clone()).unwrap_or_default()
}

/// Bytes of reserved pages that a machine has already.
fn held(machine: &Machine) -> u64 {
    let process = machine.runs.as_ref().filter(|runs| runs.alive()).and_then(Running::pid);
    process.and_then(|process| memory::of_process(process, "HugetlbPages")).unwrap_or(0)
}

/// Chooses the pages of these machines, and of pools that are not made yet. The caller has the lock by which
/// memory is claimed.
///
/// # Errors
/// A machine or pool can't have the pages that it must have.
pub fn choose_pages(record: &mut Record, indices: &[usize]) -> Result<()> {
    let mut lacking = None;
    let chosen = interrupt::wait_for(FREED_TIMEOUT, || {
        let mut tried = record.clone();
        match choose_all(&mut tried, indices) {
            Ok(()) => Ok(Some(tried)),
            Err(why) => {
                lacking = Some(why);
                Ok(None)
            }
        }
    })?;
    match (chosen, lacking) {
        (Some(chosen), _) => *record = chosen,
        (None, Some(why)) => return Err(why),
        (None, None) => (),
    }
    Ok(())
}

/// Time within which the pages of a machine that was killed are free again.
const FREED_TIMEOUT: Duration = Duration::from_secs(1);

/// Chooses the pages of these machines, and of pools that are not made yet, from those that are left now.
fn choose_all(record: &mut Record, indices: &[usize]) -> Result<()> {
    let Some(options) = record.options.clone() else { return Ok(()) };
    let wanted = |name: &str| options.machines.iter().find(|it| it.name == *name).and_then(|it| it.pages);
    let is_open = |pool: &MadePool| pool.pages.wanted.is_some() && pool.pages.given.is_none();
    let any_machine = indices.iter().any(|&index| wanted(&record.machines[index].name).is_some());
    let mut left = match any_machine || record.pools.iter().any(is_open) {
        true => Left::for_machines(record, indices)?,
        false => Left::default(),
    };
    let insist = options.pages.insist;
    let mut pools = std::mem::take(&mut record.pools);
    for pool in pools.iter_mut().filter(|pool| is_open(pool)) {
        let what = format!("the pool {}", pool.name);
        let pages = pool.pages.wanted.unwrap_or(Pages::Small);
        pool.pages = left.choose(&what, pool.size, pages, insist, &|pages| no_pool(pages, pool.size))?;
        if let Some(page) = pool.pages.reserved() {
            let name = pool.path.file_name().unwrap_or_default().to_owned();
            let path = pool::directory_for(page).map_err(Error::new)?.join(name);
            record.move_pool(&pool.path, &path);
            pool.path = path;
        }
    }
    record.pools = pools;
    for &index in indices {
        let machine = &mut record.machines[index];
        let given = match wanted(&machine.name) {
            None => Given::default(),
            Some(pages) => left.choose(&machine.name, machine.memory, pages, insist, &|_| None)?,
        };
        *machine.pages = given;
    }
    Ok(())
}

/// The reason why no pool of this size can be in these pages, if none can.
fn no_pool(pages: Pages, bytes: u64) -> Option<Refusal> {
    let size = pages.reserved()?;
    if bytes < 2 * size {
        let (one, two) = (size::show(size), size::show(2 * size));
        let why =
            format!("there a segment takes {one} or a multiple of that, and what tells of them as much");
        return Some((why, format!("Give it {two} or more, or take other pages.")));
    }
    let why = pool::directory_for(size).err()?;
    let at = format!("/dev/hugepages-{}", size::show(size));
    let mount = format!("mount -t hugetlbfs -o mode=1777,pagesize={} hugetlbfs {at}", size::show(size));
    Some((why, format!("As root: mkdir -p {at} && {mount}")))
}

/// Gives machines that were to have reserved pages the next best ones, for this reason, if these are
/// preferred; false: there is no such machine.
pub fn demote(record: &mut Record, indices: &[usize], why: &Error) -> bool {
    if record.options.as_ref().is_none_or(|options| options.pages.insist == Insist::Strict) {
        return false;
    }
    let mut any = false;
    for &index in indices {
        let Machine { name, pages, .. } = &mut record.machines[index];
        if let Some(given) = pages.given.filter(|given| given.reserved().is_some()) {
            pages.fallbacks.push(format!("{name} can't have its memory in {given}: {why}"));
            pages.given = given.next_best();
            any = true;
        }
    }
    any
}

/// Compares the pages of a machine that is up with those that it was to have. Preferences that were not met
/// are reported.
///
/// # Errors
/// Its pages are not those that it must have.
pub fn check(record: &mut Record, index: usize, report: &mut dyn FnMut(Progress)) -> Result<()> {
    let insist = record.options.as_ref().map(|options| options.pages.insist).unwrap_or_default();
    let machine = &mut record.machines[index];
    let Some(process) = machine.runs.as_ref().and_then(Running::pid) else { return Ok(()) };
    let mut differs = Vec::new();
    if machine.resident.is_none() {
        let nodes = machine.placement.iter().flat_map(|placed| &placed.guest.nodes);
        let parts: Vec<u64> = nodes.map(|node| node.memory).collect();
        let parts = if parts.is_empty() { vec![machine.memory] } else { parts };
        // As the hypervisor is told it.
        let parts: Vec<u64> = parts.into_iter().map(|bytes| bytes / 1024 * 1024).collect();
        match binding::machine_memory(process, &parts) {
            Ok(found) => machine.resident = Some(Box::new(found)),
            Err(why) => differs.push(format!("in which pages its memory is can't be told: {why}")),
        }
    }
    if let (Some(given), Some(found)) = (machine.pages.given, machine.resident.as_deref()) {
        differs.extend(difference(given, machine.memory, found));
    }
    let name = &machine.name;
    if machine.pages.wanted.is_none() || differs.is_empty() && machine.pages.fallbacks.is_empty() {
        return Ok(());
    }
    if insist == Insist::Strict && !differs.is_empty() {
        return Err(error!("{name} does not have the pages that it must have: {}", differs.join("; "))
            .hint("With insist = \"preferred\" under [pages] that is only a warning."));
    }
    for why in &machine.pages.fallbacks {
        report(Progress::Warning(why.clone()));
    }
    for why in differs {
        report(Progress::Warning(format!("{name} does not have the pages that were asked for: {why}")));
    }
    Ok(())
}

/// The difference between these pages and those that were found for so many bytes of memory, in words.
pub fn difference(given: Pages, bytes: u64, found: &Resident) -> Option<String> {
    let (huge, touched) = (found.transparent_huge, found.bytes());
    match given.reserved() {
        Some(size) => {
            let there = found.pages.get(&size).copied().unwrap_or(0);
            let (there, all) = (size::show(there), (there < bytes).then(|| size::show(bytes))?);
            Some(format!("{there} of {all} are in {given}"))
        }
        None if given == Pages::Small => {
            (huge > 0).then(|| format!("{} are in transparent huge pages", size::show(huge)))
        }
        None => (huge < touched / 2)
            .then(|| format!("{} of the {} in use are in {given}", size::show(huge), size::show(touched))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// A directory like `/sys` of a host with two nodes, of which the second has pages of 2M, and none has
    /// 1G.
    fn host(name: &str) -> PathBuf {
        let sys = std::env::temp_dir().join(format!("vshmem-pages-{name}-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let all = "kernel/mm/hugepages/hugepages-2048kB";
        write(&format!("{all}/nr_hugepages"), "300\n");
        write(&format!("{all}/resv_hugepages"), "20\n");
        for (node, free) in [(0, "16\n"), (1, "256\n")] {
            let path = format!("devices/system/node/node{node}/hugepages/hugepages-2048kB/free_hugepages");
            write(&path, free);
        }
        write("kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        sys
    }

    fn left(name: &str) -> Left {
        let sys = host(name);
        let left = Left::read(&sys, "Hugepagesize:       2048 kB\n");
        fs::remove_dir_all(sys).unwrap();
        left
    }

    #[test]
    fn free_pages_are_read_by_node() {
        let left = left("read");
        // Promised ones are taken off where there are the most.
        assert_eq!(left.reserved, [(2 * MIB, [(0, 32 * MIB), (1, 472 * MIB)].into())].into());
        assert_eq!((left.default, left.no_transparent), (Some(2 * MIB), None));
    }

    #[test]
    fn pages_are_taken_near_first() {
        let mut left = left("take");
        left.take(2 * MIB, &CpuSet::from_iter([0]), 48 * MIB);
        assert_eq!(left.reserved[&(2 * MIB)], [(0, 0), (1, 456 * MIB)].into());
        left.give(2 * MIB, &CpuSet::from_iter([0]), 8 * MIB);
        left.take(2 * MIB, &CpuSet::default(), 400 * MIB);
        assert_eq!(left.reserved[&(2 * MIB)], [(0, 8 * MIB), (1, 56 * MIB)].into());
    }

    #[test]
    fn what_is_strict_is_had_or_refused_with_what_to_do() {
        let mut left = left("strict");
        let all = &|_| None;
        let given = left.choose("a", 256 * MIB, Pages::TwoMib, Insist::Strict, all).unwrap();
        assert_eq!((given.given, given.fallbacks.len()), (Some(Pages::TwoMib), 0));
        let why = left.choose("b", 256 * MIB, Pages::TwoMib, Insist::Strict, all).unwrap_err().to_string();
        assert!(why.contains("b can't have its 256M in pages of 2M: 248M of those"), "{why}");
        assert!(why.contains("As root: sysctl vm.nr_hugepages=304"), "{why}");
        let why = left.choose("c", GIB, Pages::OneGib, Insist::Strict, all).unwrap_err().to_string();
        assert!(why.contains("in pages of 1G: this host's processor"), "{why}");
    }

    #[test]
    fn a_pool_is_larger_than_one_of_its_pages() {
        assert!(no_pool(Pages::Small, 1 << 20).is_none());
        let (why, remedy) = no_pool(Pages::OneGib, 1 << 30).expect("one page is too few");
        assert!(why.contains("a segment takes 1G") && remedy.contains("Give it 2G"), "{why}. {remedy}");
    }

    #[test]
    fn what_is_preferred_falls_back_and_says_so() {
        let mut left = left("preferred");
        let all = &|_| None;
        let given = left.choose("a", GIB, Pages::OneGib, Insist::Preferred, all).unwrap();
        assert_eq!((given.given, given.fallbacks.len()), (Some(Pages::Transparent), 2));
        left.no_transparent = Some(("none".into(), "Do.".into()));
        let given = left.choose("a", GIB, Pages::Transparent, Insist::Preferred, all).unwrap();
        assert_eq!(given.given, Some(Pages::Small));
        assert_eq!(given.fallbacks, ["a can't have its 1G in transparent huge pages: none. Do."]);
        // What else there is against some counts, too.
        let no_mount = |pages: Pages| pages.reserved().map(|_| ("no mount".into(), "Mount.".into()));
        let given = left.choose("p", 4 * MIB, Pages::TwoMib, Insist::Preferred, &no_mount).unwrap();
        assert!(given.fallbacks[0].ends_with("in pages of 2M: no mount. Mount."), "{given:?}");
    }

    #[test]
    fn pages_are_compared_with_those_that_were_given() {
        let found = |page, bytes, transparent_huge| Resident {
            pages: [(page, bytes)].into(),
            transparent_huge,
            ..Resident::default()
        };
        let why = |given, found: Resident| difference(given, 4 * MIB, &found).unwrap_or_default();
        assert_eq!(why(Pages::TwoMib, found(2 * MIB, 4 * MIB, 0)), "");
        assert_eq!(why(Pages::TwoMib, found(2 * MIB, 2 * MIB, 0)), "2M of 4M are in pages of 2M");
        assert_eq!(why(Pages::OneGib, found(4096, MIB, 0)), "0 of 4M are in pages of 1G");
        assert_eq!(why(Pages::Transparent, found(4096, 4 * MIB, 2 * MIB)), "");
        let few = "0 of the 4M in use are in transparent huge pages";
        assert_eq!(why(Pages::Transparent, found(4096, 4 * MIB, 0)), few);
        assert_eq!(why(Pages::Small, found(4096, MIB, 0)), "");
        assert_eq!(why(Pages::Small, found(4096, 2 * MIB, 2 * MIB)), "2M are in transparent huge pages");
    }
}
