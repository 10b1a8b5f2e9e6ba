//! The commands that change a cluster which runs: `vshmem up` with a file once more, `grow`, `shrink` and
//! `repair`.

use crate::args::ClusterArg;
use crate::complete::values;
use crate::output::print;
use crate::size;
use clap::Args;
use std::time::{Duration, Instant};
use vshmem_base::{interrupt, Result};
use vshmem_cluster::change::apply::{apply, changeable, changes, Permitted};
use vshmem_cluster::change::plan::{described, Change};
use vshmem_cluster::change::size::{grown, shrunk};
use vshmem_cluster::host::rehearsal::rehearse;
use vshmem_cluster::host::repair;
use vshmem_cluster::images::Images;
use vshmem_hypervisor::launcher::options::{ClusterOptions, PoolOptions, Progress};
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::state::machine::no_cluster;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem grow                              one more machine
  vshmem grow 3 -c other

The new machines are like the last one, with its pools, and their names go on from its. The others run on. A machine that
does not come up is no part of the cluster.")]
pub struct Grow {
    #[command(flatten)]
    cluster: ClusterArg,
    /// How many more machines
    #[arg(default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    more: u8,
    /// Though this host may not have all of their memory
    #[arg(long)]
    overcommit: bool,
    #[command(flatten)]
    how: StartArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem shrink                            the last machine
  vshmem shrink -n 2
  vshmem shrink vm1 vm3

What their processes held in pools is released. The first machine of a cluster with a network stays: that of the others
goes through it.")]
pub struct Shrink {
    #[command(flatten)]
    cluster: ClusterArg,
    /// How many of the last machines are removed [default: 1]
    #[arg(short = 'n', long = "machines", value_name = "N", conflicts_with = "names")]
    count: Option<usize>,
    /// The machines
    #[arg(value_name = "VM", add = values::machines())]
    names: Vec<String>,
    #[command(flatten)]
    how: StartArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem repair
  vshmem repair --watch -c other

A machine that has died comes back with its name, its address and the pools that it had, those that it was granted later
among them. What its processes held is released. It is no error if none has died. vshmem restart
turns a machine off and on that runs.

With --watch the command goes on until the cluster has ended (vshmem down) or ctrl-C, and starts each machine again that
dies. Those that die over and over are started less and less often, once a minute at the least.")]
pub struct Repair {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Go on, and repair the cluster whenever a machine dies
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    how: StartArgs,
}

/// Arguments about the start of machines.
#[derive(Args)]
struct StartArgs {
    /// Time limit for booting machines, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

impl StartArgs {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// A function that prints progress, with the time since the start.
pub fn progress_printer(command: &'static str, quiet: bool) -> impl FnMut(Progress) {
    let begun = Instant::now();
    move |step: Progress| {
        let text = match step {
            Progress::Message(text) => text,
            Progress::Warning(text) => return tell!("vshmem {command}: warning: {text}"),
            Progress::Ready(name) => format!("{name} is up"),
        };
        if !quiet {
            tell!("vshmem {command}: {text} ({:.1} s)", begun.elapsed().as_secs_f64());
        }
    }
}

/// Changes a cluster that runs to these options; false if there is no such cluster.
pub fn update(
    options: &ClusterOptions,
    permitted: Permitted,
    timeout: Duration,
    quiet: bool,
) -> Result<bool> {
    let cluster = &options.cluster;
    let Some((record, old)) = changeable(cluster)? else {
        return Ok(false);
    };
    let all = changes(&record, &old, options)?;
    apply(cluster, &all, permitted, timeout, &mut progress_printer("up", quiet))?;
    if !quiet {
        let how = if all.is_empty() { "is as described already" } else { "is as described now" };
        print(&format!("the cluster {cluster} {how}\n"))?;
    }
    Ok(true)
}

/// Prints the changes that `vshmem up` would make.
pub fn show(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    overcommit: bool,
    images: &Images,
) -> Result<u8> {
    let text = match changeable(&options.cluster)? {
        Some((record, old)) => listed(&changes(&record, &old, options)?),
        None => {
            rehearse(launcher, options, overcommit)?;
            started(options)
        }
    };
    let download = |(image, address)| match image == address {
        true => format!("download {image}\n"),
        false => format!("download {image} from {address}\n"),
    };
    let downloads = images.missing().map(download);
    print(&(downloads.collect::<String>() + &text)).map(|()| 0)
}

fn listed(changes: &[Change]) -> String {
    match changes.is_empty() {
        true => "nothing to change\n".into(),
        false => changes.iter().map(|change| format!("{:8} {}\n", change.effort, change.text)).collect(),
    }
}

/// A cluster that does not run, in words.
fn started(options: &ClusterOptions) -> String {
    let pool = |pool: &PoolOptions| match &pool.host {
        Some(host) => format!("use      the pool {host} as {}\n", pool.name),
        None => format!("make     the pool {}: {}\n", pool.name, size::show(pool.size)),
    };
    let pools = options.pools.iter().map(pool);
    let machines = options.machines.iter().map(|machine| format!("start    {}\n", described(machine)));
    let placement = options.placement.map(|rules| format!("place    by {rules}\n"));
    pools.chain(machines).chain(placement).collect()
}

/// Adds machines.
pub fn grow(grow: &Grow) -> Result<u8> {
    let options = |old: &ClusterOptions| grown(old, grow.more.into());
    resize("grow", &grow.cluster.cluster, (&grow.how, grow.overcommit), &options)
}

/// Removes machines.
pub fn shrink(shrink: &Shrink) -> Result<u8> {
    let options = |old: &ClusterOptions| shrunk(old, &shrink.names, shrink.count.unwrap_or(1));
    resize("shrink", &shrink.cluster.cluster, (&shrink.how, false), &options)
}

fn resize(
    command: &'static str,
    cluster: &str,
    (how, overcommit): (&StartArgs, bool),
    options: &dyn Fn(&ClusterOptions) -> Result<ClusterOptions>,
) -> Result<u8> {
    interrupt::watch();
    let Some((record, old)) = changeable(cluster)? else {
        return Err(no_cluster(cluster));
    };
    let new = options(&old)?;
    let resized = |change: &Change| change.adds() || change.removes();
    let all: Vec<Change> = changes(&record, &old, &new)?.into_iter().filter(resized).collect();
    let permitted = Permitted { remove: true, restart: false, overcommit };
    apply(cluster, &all, permitted, how.timeout(), &mut progress_printer(command, how.quiet)).map(|()| 0)
}

/// Starts machines again that have died.
pub fn repair(repair: &Repair) -> Result<u8> {
    interrupt::watch();
    let cluster = &repair.cluster.cluster;
    let mut tell = progress_printer("repair", repair.how.quiet);
    // A cluster that there is not can't be watched either.
    repair::repair(cluster, repair.how.timeout(), &mut tell)?;
    if repair.watch {
        repair::watch(cluster, repair.how.timeout(), &mut tell)?;
    }
    Ok(0)
}
