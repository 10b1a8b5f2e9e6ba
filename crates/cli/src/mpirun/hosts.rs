//! The hosts of a job: machines of a cluster, or places that a command prefix reaches.

use super::args::Mpirun;
use crate::args::ClusterArg;
use std::ffi::{OsStr, OsString};
use vshmem_base::{error, Error, Result};
use vshmem_hypervisor::launcher::table::location;
use vshmem_hypervisor::state::machine::find;
use vshmem_hypervisor::state::record::{Granted, Machine, Record};
use vshmem_mpi::files::{printed, Files, Prefix};
use vshmem_mpi::hosts::{deal_out, parse_file, parse_list, NamedHost, MOST_RANKS};
use vshmem_mpi::processors::{share_out, Processors, PROBE};
use vshmem_session::commands::location::{Location, Reached};

/// Bytes of the longest list of processors that is taken.
const MAX_PRINTED: u64 = 1 << 20;

/// A host of a job.
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its location.
    pub location: Location,
    /// Its processors; `None`: unknown.
    pub processors: Option<u32>,
    /// Its processors, if it is no machine, in more detail.
    own_processors: Processors,
    /// The processors that its ranks are bound to, in the words of hwloc; `None`: any.
    pub part: Option<String>,
    /// The pool of its ranks, as `VSHMEM_POOL` names it there; `None`: the machine's own.
    pub pool: Option<String>,
    /// The pool's size, if it is the machine's own.
    pub pool_size: Option<u64>,
    /// Number of ranks that it runs.
    pub ranks: u32,
    slots: u32,
}

/// The hosts that run ranks, with their numbers.
pub fn hosts(job: &Mpirun) -> Result<Vec<Host>> {
    let named = named(job)?;
    let mut hosts = match &job.exec {
        _ if job.local => vec![here(job.pool.as_deref())?],
        Some(template) => reached(&named, template, job.pool.as_deref())?,
        None => machines(&job.cluster, &named, job.pool.as_deref())?,
    };
    if let Some(ppn) = job.ppn {
        hosts.iter_mut().for_each(|host| host.slots = ppn);
    }
    let slots: Vec<u32> = hosts.iter().map(|host| host.slots).collect();
    let ranks = job.ranks.unwrap_or(slots.iter().sum());
    if !(1..=MOST_RANKS).contains(&ranks) || job.ppn == Some(0) {
        return Err(error!("a job has from 1 to {MOST_RANKS} ranks, and not {ranks}").code(2));
    }
    for (host, ranks) in hosts.iter_mut().zip(deal_out(&slots, ranks)) {
        host.ranks = ranks;
    }
    hosts.retain(|host| host.ranks > 0);
    Ok(hosts)
}

/// The hosts that the command line names; none: all machines.
fn named(job: &Mpirun) -> Result<Vec<NamedHost>> {
    if !job.host.is_empty() {
        return parse_list(&job.host.join(","));
    }
    if let Some(file) = &job.hostfile {
        let text = std::fs::read_to_string(file)
            .map_err(|e| error!("could not read the host file {}: {e}", file.display()).code(2))?;
        return parse_file(&text);
    }
    let named = |name: &String| NamedHost { name: name.clone(), slots: None, pool: None };
    Ok(job.vm.iter().map(named).collect())
}

fn machines(cluster: &ClusterArg, named: &[NamedHost], pool: Option<&str>) -> Result<Vec<Host>> {
    let names: Vec<String> = named.iter().map(|named| named.name.clone()).collect();
    let (record, machines) = find(&cluster.cluster, &names)?;
    check_network(&record, &machines)?;
    let host = |(index, machine): (usize, Machine)| {
        let named = named.get(index);
        let asked = named.and_then(|named| named.pool.clone()).or(pool.map(Into::into));
        let (pool, pool_size) = match asked {
            Some(asked) => (Some(asked), None),
            None => own_pool(&record, &machine)?,
        };
        Ok(Host {
            name: machine.name.clone(),
            processors: Some(machine.cpus),
            own_processors: Processors::default(),
            part: None,
            pool_size,
            pool,
            ranks: 0,
            slots: named.and_then(|named| named.slots).unwrap_or(machine.cpus.max(1)),
            location: Location::Machine(location(&record, &machine)),
        })
    };
    machines.into_iter().enumerate().map(host).collect()
}

/// The pool that programs use in a machine, if it is not the cluster's own, and its size.
fn own_pool(record: &Record, machine: &Machine) -> Result<(Option<String>, Option<u64>)> {
    let is_clusters = |pool: &&Granted| pool.path == record.pool;
    let own = machine.pools.iter().find(is_clusters).or(machine.pools.first());
    let own = own.ok_or_else(|| {
        error!("{} has no pool, by which its ranks could talk", machine.name)
            .hint("Give it one: vshmem grant POOL MACHINE.")
    })?;
    Ok(((!is_clusters(&own)).then(|| own.name.clone()), Some(own.size)))
}

/// The way to a host's files.
pub fn reach(host: &Host) -> Files {
    Files::Reached(match &host.location {
        Location::Machine(machine) => {
            let program = std::env::current_exe().unwrap_or("vshmem".into());
            let words =
                ["exec", "--no-stdin", "--user", "root", "--cluster", &machine.cluster, &machine.name, "--"];
            let words = words.map(OsString::from).into_iter();
            let prefix = std::iter::once(program.into()).chain(words).collect();
            Prefix { words: prefix, ..Prefix::default() }
        }
        Location::Reached(reached) => command_prefix(reached),
        Location::Local => Prefix { words: vec!["env".into()], ..Prefix::default() },
    })
}

/// Whether a host has a network card with verbs that is connected.
pub fn has_verbs(host: &Host) -> bool {
    let look = "ls /dev/infiniband/uverbs* && grep -l ACTIVE /sys/class/infiniband/*/ports/*/state";
    reach(host).output(&["sh".as_ref(), "-c".as_ref(), look.as_ref()]).is_some()
}

/// An error unless machines have a network: the launcher and its daemons find each other by TCP.
fn check_network(record: &Record, machines: &[Machine]) -> Result<()> {
    match machines.iter().find(|machine| machine.address.is_none()) {
        Some(machine) if machines.len() > 1 => Err(error!(
            "{} has no network, by which MPI's launcher starts ranks in other machines",
            machine.name
        )
        .hint(format!("Start the cluster {} without --no-net.", record.name))),
        _ => Ok(()),
    }
}

fn reached(named: &[NamedHost], template: &str, pool: Option<&str>) -> Result<Vec<Host>> {
    if named.is_empty() {
        return Err(Error::new("--exec needs hosts: -host NAME,... or -hostfile FILE").code(2));
    }
    named.iter().map(|named| reached_host(named, prefix(template, &named.name)?, pool)).collect()
}

/// This kernel as a host.
fn here(pool: Option<&str>) -> Result<Host> {
    let named = NamedHost { name: "localhost".into(), slots: None, pool: None };
    let by_environment = std::env::var("VSHMEM_POOL").ok();
    let pool = pool.or(by_environment.as_deref()).unwrap_or("default");
    reached_host(&named, vec!["env".into()], Some(pool))
}

fn reached_host(named: &NamedHost, prefix: Vec<OsString>, pool: Option<&str>) -> Result<Host> {
    let program = std::env::current_exe().unwrap_or("vshmem".into());
    let pool = named.pool.clone().or(pool.map(Into::into)).ok_or_else(|| {
        error!("{} has no pool", named.name)
            .hint("Name it as it is called there: --pool POOL, or pool=POOL in the host file.")
            .code(2)
    })?;
    let reached = Reached { name: named.name.clone(), prefix, program };
    let own_processors = processors(&reached)?;
    let processors = own_processors.count;
    Ok(Host {
        name: named.name.clone(),
        location: Location::Reached(reached),
        processors,
        own_processors,
        part: None,
        pool: Some(pool),
        pool_size: None,
        ranks: 0,
        slots: named.slots.or(processors).unwrap_or(1),
    })
}

/// The prefix of commands that look at the files of a host that is reached.
pub fn command_prefix(reached: &Reached) -> Prefix {
    Prefix { words: reached.prefix.clone(), by_shell: reached.joins_words(), ..Prefix::default() }
}

/// The processors of a host. An error if it can't be reached.
fn processors(reached: &Reached) -> Result<Processors> {
    // What reaches it says on standard error why it can't.
    let mut probe = command_prefix(reached).command(&["sh", "-c", PROBE].map(OsStr::new));
    let shown = || reached.prefix.join(" ".as_ref()).to_string_lossy().into_owned();
    let printed = printed(&mut probe, MAX_PRINTED).map_err(|why| {
        error!("could not run a command in {} by {}: {why}", reached.name, shown())
            .hint("Does the host run, is that its name, and can it run sh?")
    })?;
    Ok(Processors::parse(&String::from_utf8_lossy(&printed)))
}

/// Gives hosts that share a kernel processors of their own, to which their ranks are bound.
pub fn apportion(hosts: &mut [Host]) -> Result<()> {
    let all: Vec<_> = hosts.iter().map(|host| (&host.own_processors, host.ranks)).collect();
    let parts = share_out(&all).map_err(|at| {
        error!("{} has too few processors to bind {} ranks", hosts[at].name, hosts[at].ranks)
            .hint("Other hosts share its kernel, and have their own part of it. Leave --bind-to out, or start fewer ranks.")
            .code(2)
    })?;
    for (host, part) in hosts.iter_mut().zip(parts) {
        host.part = part;
    }
    Ok(())
}

/// The words that precede a command in a host.
fn prefix(template: &str, name: &str) -> Result<Vec<OsString>> {
    let words = shlex::split(template).filter(|words| words.iter().any(|word| word.contains("{}")));
    let words = words.ok_or_else(|| {
        error!("--exec {template} does not name the host").hint("Write {} where its name belongs.").code(2)
    })?;
    Ok(words.into_iter().map(|word| word.replace("{}", name).into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_name_hosts() {
        assert_eq!(prefix("podman exec -i {}", "one").unwrap(), ["podman", "exec", "-i", "one"]);
        let got = prefix("kubectl exec -i -n 'my space' pod/{}-0 --", "one").unwrap();
        assert_eq!(got, ["kubectl", "exec", "-i", "-n", "my space", "pod/one-0", "--"]);
        assert!(prefix("podman exec", "one").is_err() && prefix("'{}", "one").is_err());
    }

    #[test]
    fn hosts_that_are_reached_need_a_pool() {
        let one = parse_list("one:3").unwrap();
        let why = reached(&one, "env {}", None).err().unwrap().to_string();
        assert!(why.starts_with("one has no pool"), "{why}");
        let hosts = reached(&one, "env A={}", Some("/run/pool")).unwrap();
        assert_eq!((hosts[0].slots, hosts[0].pool.as_deref()), (3, Some("/run/pool")));
        assert!(hosts[0].processors.is_some_and(|count| count > 0));
        assert!(reached(&[], "env {}", Some("x")).is_err());
    }
}
