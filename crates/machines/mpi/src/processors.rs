//! The processors that a host's ranks may be bound to, where several hosts are containers of one kernel: each
//! launcher's daemon would count the same ones from the first.

use std::collections::{BTreeMap, BTreeSet};

/// A script for sh that prints what [`Processors::parse`] reads. It needs no other program.
pub const PROBE: &str = r#"nproc 2>/dev/null || echo
read -r kernel </proc/sys/kernel/random/boot_id && echo "$kernel"
while read -r name list; do
    case $name in Cpus_allowed_list:) echo "$list" ;; esac
done </proc/self/status
for file in /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list; do
    read -r list <"$file" && echo "$list"
done 2>/dev/null
:"#;

/// Processors of a number above this are not believed.
const MOST_PROCESSORS: u32 = 1 << 16;

/// The processors of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processors {
    /// The number that its processes may use; `None`: it does not say.
    pub count: Option<u32>,
    /// The boot id of its kernel.
    kernel: String,
    /// The processors that its processes may use, core by core.
    cores: Vec<Vec<u32>>,
}

impl Processors {
    /// Reads what [`PROBE`] has printed.
    pub fn parse(printed: &str) -> Processors {
        let mut lines = printed.lines().map(str::trim);
        let count = lines.next().and_then(|count| count.parse().ok());
        let kernel = lines.next().unwrap_or_default().into();
        let allowed: BTreeSet<u32> = lines.next().into_iter().flat_map(numbers).collect();
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut rest = allowed.clone();
        for siblings in lines {
            let core: Vec<u32> = numbers(siblings).filter(|number| rest.remove(number)).collect();
            core.first().map(|first| cores.insert(*first, core.clone()));
        }
        // Of these it is not known to which core they belong.
        cores.extend(rest.into_iter().map(|number| (number, vec![number])));
        Processors { count, kernel, cores: cores.into_values().collect() }
    }
}

/// The numbers of a list like `0-2,8`.
fn numbers(list: &str) -> impl Iterator<Item = u32> + '_ {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok().filter(|last| *last < MOST_PROCESSORS)?)
    };
    list.split(',').filter_map(range).flatten()
}

/// The processors that each of these hosts has for itself, as hwloc takes them (`HWLOC_SYNTHETIC`); `None`:
/// all that it sees, since no other host has its kernel. Cores are shared out by ranks.
///
/// # Errors
/// The index of a host that gets fewer processors than it has ranks.
pub fn share_out(hosts: &[(&Processors, u32)]) -> Result<Vec<Option<String>>, usize> {
    let neighbours = |at: &usize| {
        let kernel = &hosts[*at].0.kernel;
        hosts.iter().filter(move |(it, _)| !kernel.is_empty() && it.kernel == *kernel)
    };
    let mut order: Vec<usize> = (0..hosts.len()).filter(|at| neighbours(at).count() > 1).collect();
    // Those with the least choice come first.
    order.sort_by_key(|at| hosts[*at].0.cores.len());
    let mut taken = BTreeSet::new();
    let mut out = vec![None; hosts.len()];
    for at in order {
        let (own, ranks) = hosts[at];
        let all: BTreeSet<u32> =
            neighbours(&at).flat_map(|(it, _)| it.cores.iter().map(|core| core[0])).collect();
        let all_ranks: u32 = neighbours(&at).map(|(_, ranks)| ranks).sum();
        let quota = (all.len() * ranks as usize / all_ranks.max(1) as usize).max(1);
        let is_free = |core: &&Vec<u32>| core.iter().all(|number| !taken.contains(&(&own.kernel, *number)));
        let part: Vec<&Vec<u32>> = own.cores.iter().filter(is_free).take(quota).collect();
        // hwloc's cores all have as many processors.
        let width = part.iter().map(|core| core.len()).min().unwrap_or(0);
        if part.len() * width < ranks as usize {
            return Err(at);
        }
        taken.extend(part.iter().copied().flatten().map(|number| (&own.kernel, *number)));
        out[at] = Some(topology(&part, width));
    }
    Ok(out)
}

fn topology(cores: &[&Vec<u32>], width: usize) -> String {
    let numbers = cores.iter().flat_map(|core| core.iter().take(width)).map(u32::to_string);
    let numbers = numbers.collect::<Vec<_>>().join(",");
    format!("pack:1 core:{} pu:{width}(indexes={numbers})", cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kernel: &str, allowed: &str, siblings: &str) -> Processors {
        Processors::parse(&format!("4\n{kernel}\n{allowed}\n{}", siblings.replace(' ', "\n")))
    }

    fn shared(hosts: &[(Processors, u32)]) -> Result<Vec<String>, usize> {
        let hosts: Vec<_> = hosts.iter().map(|(it, ranks)| (it, *ranks)).collect();
        let shown = |part: Option<String>| part.unwrap_or_else(|| "all".into());
        share_out(&hosts).map(|parts| parts.into_iter().map(shown).collect())
    }

    #[test]
    fn what_the_probe_prints_is_read() {
        let printed = std::process::Command::new("sh").args(["-c", PROBE]).output().unwrap();
        let got = Processors::parse(&String::from_utf8(printed.stdout).unwrap());
        assert!(got.count.is_some_and(|count| count > 0) && got.kernel.len() == 36, "{got:?}");
        assert!(got.cores.iter().flatten().count() >= got.count.unwrap() as usize, "{got:?}");
    }

    #[test]
    fn cores_have_the_processors_that_are_allowed() {
        let cores = |allowed: &str, siblings: &str| host("k", allowed, siblings).cores;
        assert_eq!(cores("0-3", "0,2 0,2 1,3 1,3"), [[0, 2], [1, 3]]);
        assert_eq!(cores("1-2", "0,2 1,3"), [[1], [2]]);
        assert_eq!(cores("0,5-6", ""), [[0], [5], [6]]);
        assert_eq!(cores("0-4294967295,x,3-1,7", "y"), [[7]]);
        assert_eq!(Processors::parse(""), Processors::default());
    }

    #[test]
    fn hosts_of_one_kernel_have_cores_of_their_own() {
        let four = || host("k", "0-7", "0,4 1,5 2,6 3,7");
        let parts = shared(&[(four(), 1), (four(), 1)]).unwrap();
        assert_eq!(parts, ["pack:1 core:2 pu:2(indexes=0,4,1,5)", "pack:1 core:2 pu:2(indexes=2,6,3,7)"]);
        let parts = shared(&[(four(), 3), (four(), 1)]).unwrap();
        assert_eq!(parts, ["pack:1 core:3 pu:2(indexes=0,4,1,5,2,6)", "pack:1 core:1 pu:2(indexes=3,7)"]);
        // Another kernel's processors are others.
        let parts = shared(&[(four(), 1), (host("other", "0", ""), 1), (four(), 1)]).unwrap();
        assert_eq!(parts[1], "all");
        assert_eq!(shared(&[(host("", "0", ""), 1), (host("", "0", ""), 1)]).unwrap(), ["all", "all"]);
    }

    #[test]
    fn hosts_with_less_choice_come_first() {
        let (all, first) = (host("k", "0-1", ""), host("k", "0", ""));
        let parts = shared(&[(all, 1), (first, 1)]).unwrap();
        assert_eq!(parts, ["pack:1 core:1 pu:1(indexes=1)", "pack:1 core:1 pu:1(indexes=0)"]);
    }

    #[test]
    fn too_many_ranks_can_t_be_bound() {
        let two = || host("k", "0-1", "");
        assert_eq!(shared(&[(two(), 1), (two(), 2)]), Err(1));
        assert_eq!(shared(&[(two(), 1), (two(), 1), (two(), 1)]), Err(2));
    }
}
