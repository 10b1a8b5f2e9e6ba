//! A change of a cluster each. The record's options say after each what has been done.

use super::plan::{Change, Step};
use crate::description::pools::OWN;
use crate::host::{claims, cluster, devices, made_pools, placing, users};
use std::fs;
use std::time::Duration;
use vshmem_base::directories::{cluster_directory, private_directory};
use vshmem_base::error::{Error, Result};
use vshmem_base::lock::{try_lock_cluster, wait_for_lock};
use vshmem_guest::settings::{address, hosts_file};
use vshmem_hypervisor::launcher::options::{ClusterOptions, MachineOptions, PoolOptions, Progress};
use vshmem_hypervisor::launcher::starting::network_of;
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::launcher::target::Target;
use vshmem_hypervisor::shared::pool;
use vshmem_hypervisor::state::disks::Disks;
use vshmem_hypervisor::state::machine::{index_of, no_cluster, state, MachineState};
use vshmem_hypervisor::state::record::{Granted, Machine, MadePool, Record};
use vshmem_inspect::host_pool::{HostPool, UNRESERVED};
use vshmem_inspect::pools::reserve;
use vshmem_placement::plan::Placed;
use vshmem_session::commands::job::Job;
use vshmem_session::commands::run::{run, RunOptions};

/// Time that a machine may take to take a pool, or to let go of it.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a machine may take to shut down.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a change, except that machines which are to be started or restarted are not yet.
pub fn make(cluster: &str, change: &Change, report: &mut dyn FnMut(Progress)) -> Result<()> {
    let live = change.machine.is_none();
    match &change.step {
        Step::AddPool(pool) => add_pool(cluster, pool, report),
        Step::DropPool(name) => drop_pool(cluster, name),
        Step::Reserve(name) => with_record(cluster, |record, options| {
            let pool = found(&mut options.pools, |pool| pool.name == *name)?;
            pool.reserve = true;
            reserve(&granted(record, pool)?.path.to_string_lossy(), UNRESERVED)
        }),
        Step::Grant(machine, pool) => give(cluster, machine, pool, live),
        Step::Revoke(machine, pool) => take(cluster, machine, pool, live),
        Step::Remove(name) => remove(cluster, name),
        Step::Add(machine) => add(cluster, machine),
        Step::Resize(machine) => with_record(cluster, |record, options| {
            let index = index_of(record, &machine.name)?;
            let resized = &mut record.machines[index];
            (resized.cpus, resized.memory, resized.outdated) = (machine.cpus, machine.memory, true);
            let options = found(&mut options.machines, |it| it.name == machine.name)?;
            (options.cpus, options.memory, options.pages) = (machine.cpus, machine.memory, machine.pages);
            Ok(())
        }),
        Step::Pages(rules) => with_record(cluster, |_, options| {
            options.pages = *rules;
            Ok(())
        }),
        Step::Cold(cold) => with_record(cluster, |_, options| {
            options.cold = *cold;
            Ok(())
        }),
        Step::Devices(machine, wants) => with_record(cluster, |record, options| {
            let index = index_of(record, machine)?;
            record.machines[index].outdated = true;
            found(&mut options.machines, |it| it.name == *machine)?.devices.clone_from(wants);
            Ok(())
        }),
        Step::Uplink(uplink) => with_record(cluster, |record, options| {
            record.machines.iter_mut().for_each(|machine| machine.outdated = true);
            options.uplink.clone_from(uplink);
            Ok(())
        }),
        Step::Rules(rules) => with_record(cluster, |_, options| {
            options.placement = *rules;
            Ok(())
        }),
        Step::Place(machine, placed) => place(cluster, machine, placed.as_deref(), live, report),
        Step::Restart(_) => Ok(()),
        Step::Other => Err(Error::new("this can't be changed in a cluster that there is")),
    }
}

/// Changes a cluster's record and its options, under its lock. Nothing is written if that fails.
fn with_record<T>(
    cluster: &str,
    change: impl FnOnce(&mut Record, &mut ClusterOptions) -> Result<T>,
) -> Result<T> {
    let lock = wait_for_lock(&format!("the cluster {cluster}"), || try_lock_cluster(cluster))?;
    let mut record = Record::read(cluster)?.ok_or_else(|| no_cluster(cluster))?;
    let mut options = record.options.take().ok_or_else(gone)?;
    let done = change(&mut record, &mut options)?;
    record.options = Some(options);
    record.write()?;
    drop(lock);
    Ok(done)
}

/// The error where another command has changed the cluster meanwhile.
fn gone() -> Error {
    Error::new("another command has changed the cluster meanwhile").hint("Repeat the command.")
}

fn found<T>(all: &mut [T], is_it: impl Fn(&T) -> bool) -> Result<&mut T> {
    all.iter_mut().find(|it| is_it(it)).ok_or_else(gone)
}

/// A pool of the options as machines get it.
fn granted(record: &Record, pool: &PoolOptions) -> Result<Granted> {
    let (name, path, size, transport) = match &pool.host {
        Some(host) => {
            let HostPool { path, size, transport, .. } = HostPool::find(host)?;
            (pool.name.clone(), path, size, transport)
        }
        None if pool.name == OWN => {
            let name = table::of(record).pool_name(&record.name);
            (name, record.pool.clone(), record.pool_size, record.transport.clone())
        }
        None => {
            let path = pool::file(&made_for(record, &pool.name));
            (pool.name.clone(), path, pool.size, pool.transport.clone())
        }
    };
    let doorbell = record.doorbell && transport.is_none();
    Ok(Granted { transport, ..Granted::new(name, path, size, doorbell) })
}

fn add_pool(cluster: &str, wanted: &PoolOptions, report: &mut dyn FnMut(Progress)) -> Result<()> {
    let name = pool::further(cluster, &wanted.name);
    if wanted.host.is_none() {
        // An interrupted command may have left it.
        users::check_unused(&pool::path(&name).to_string_lossy())?;
        with_record(cluster, |record, _| {
            record.made_pools.retain(|made| *made != name);
            record.made_pools.push(name.clone());
            Ok(())
        })?;
    }
    with_record(cluster, |record, options| {
        if wanted.host.is_none() {
            pool::remove(&name)?;
            make_pool(record, options, wanted, report).inspect_err(|_| {
                // Nobody is to think that its memory is still to come.
                record.pools.retain(|made| made.name != wanted.name);
                let _ = record.write();
            })?;
        } else if wanted.reserve {
            reserve(&granted(record, wanted)?.path.to_string_lossy(), UNRESERVED)?;
        }
        options.pools.push(wanted.clone());
        // The cluster's own one stays the first.
        options.pools[1..].sort_by(|one, other| one.name.cmp(&other.name));
        Ok(())
    })
}

/// Makes a pool for a cluster, with the memory that it is to have.
fn make_pool(
    record: &mut Record,
    options: &ClusterOptions,
    wanted: &PoolOptions,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let path = pool::path(&pool::further(&record.name, &wanted.name));
    record.pools.retain(|made| made.name != wanted.name);
    record.pools.push(MadePool::of(wanted, path));
    record.options = Some(options.clone());
    claims::claim_again(record, &[], |_| Ok(()))?;
    let made = record.pools.last_mut().expect("it was just put there");
    made_pools::create(&made.path, wanted)?;
    made_pools::back(made, wanted, options, report)
}

/// The name on this host of a cluster's pool of this name, if that was made for the cluster.
fn made_for(record: &Record, name: &str) -> String {
    let made = record.pools.iter().find(|made| made.name == name);
    made.map_or_else(|| pool::further(&record.name, name), |made| pool::reference(&made.path))
}

fn drop_pool(cluster: &str, name: &str) -> Result<()> {
    with_record(cluster, |record, options| {
        let made = made_for(record, name);
        if record.made_pools.contains(&made) {
            pool::remove(&made)?;
            record.made_pools.retain(|other| *other != made);
            record.pools.retain(|other| other.name != name);
        }
        options.pools.retain(|pool| pool.name != name);
        Ok(())
    })
}

fn give(cluster: &str, machine: &str, name: &str, live: bool) -> Result<()> {
    let its = with_record(cluster, |record, options| {
        granted(record, found(&mut options.pools, |pool| pool.name == name)?)
    })?;
    if live {
        let Granted { name, path, size, transport, .. } = its.clone();
        let mut target = Target::find(cluster, machine)?;
        target.grant(&HostPool { name, path, size, transport }, POOL_TIMEOUT)?;
    }
    with_record(cluster, |record, options| {
        let index = index_of(record, machine)?;
        record.machines[index].outdated |= !live;
        let first = &mut record.machines[index].first_pools;
        first.retain(|had| had.path != its.path);
        first.push(its);
        let pools = &mut found(&mut options.machines, |it| it.name == machine)?.pools;
        pools.retain(|had| had != name);
        pools.push(name.into());
        Ok(())
    })
}

fn take(cluster: &str, machine: &str, name: &str, live: bool) -> Result<()> {
    let its = with_record(cluster, |record, options| {
        granted(record, found(&mut options.pools, |pool| pool.name == name)?)
    })?;
    if live {
        let mut target = Target::find(cluster, machine)?;
        // It may have lost the pool by another command.
        if target.pools().iter().any(|had| had.path == its.path) {
            target.revoke(&its.name, POOL_TIMEOUT)?;
        }
    }
    with_record(cluster, |record, options| {
        let index = index_of(record, machine)?;
        record.machines[index].outdated |= !live;
        record.machines[index].first_pools.retain(|had| had.path != its.path);
        found(&mut options.machines, |it| it.name == machine)?.pools.retain(|had| had != name);
        Ok(())
    })
}

/// Has a machine run elsewhere: now, or from when it is restarted. If it does not run where it must, it goes
/// back.
fn place(
    cluster: &str,
    machine: &str,
    placed: Option<&Placed>,
    live: bool,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    with_record(cluster, |record, options| {
        let index = index_of(record, machine)?;
        let launcher = table::of(record);
        record.options = Some(options.clone());
        let before = record.clone();
        record.machines[index].outdated |= !live;
        claims::claim_cores(record, |record| placing::set_place(record, index, placed))?;
        if !live {
            return Ok(());
        }
        let done = placing::pin(launcher, record, index, report)
            .and_then(|()| placing::check(launcher, record, index, report));
        done.map_err(|why| {
            let back = before.write().and_then(|()| placing::pin(launcher, &before, index, &mut |_| ()));
            back.err().map_or(why.clone(), |stays| stays.about(&why.to_string()))
        })
    })
}

/// Adds a machine that does not run yet.
fn add(cluster: &str, wanted: &MachineOptions) -> Result<()> {
    with_record(cluster, |record, options| {
        let taken = |index: &u32| record.machines.iter().any(|machine| machine.index == *index);
        let index = (0..).find(|index| !taken(index)).expect("there are fewer machines than numbers");
        let its = options.pools.iter().filter(|pool| wanted.pools.contains(&pool.name));
        let pools: Vec<Granted> = its.map(|pool| granted(record, pool)).collect::<Result<_>>()?;
        let machine = Machine {
            name: wanted.name.clone(),
            index,
            since: None,
            runs: None,
            address: options.network.then(|| address(index).to_string()),
            cores: vec![],
            placement: None,
            resident: None,
            pages: Box::default(),
            cpus: wanted.cpus,
            memory: wanted.memory,
            devices: vec![],
            image: wanted.image.clone(),
            first_pools: pools.clone(),
            pools,
            lost_pools: vec![],
            outdated: false,
            user: None,
        };
        private_directory(&record.machine_directory(&machine)?)?;
        record.machines.push(machine);
        options.machines.push(wanted.clone());
        Ok(())
    })
}

/// Claims memory of this host for machines that are to be started.
pub fn claim(cluster: &str, names: &[String], overcommit: bool) -> Result<()> {
    with_record(cluster, |record, options| {
        let indices: Vec<usize> = names.iter().map(|name| index_of(record, name)).collect::<Result<_>>()?;
        record.options = Some(options.clone());
        devices::claim(record, &indices, |record| {
            claims::claim(record, &indices, overcommit, |record| placing::place(record, &indices))
        })
    })
}

/// Ends a machine and removes what belongs to it.
pub fn remove(cluster: &str, name: &str) -> Result<()> {
    with_record(cluster, |record, options| {
        let index = index_of(record, name)?;
        if let Some(running) = &record.machines[index].runs {
            running.end(EXIT_TIMEOUT);
        }
        cluster::declare_one_dead(record, index);
        devices::release(&cluster_directory(cluster)?, Some(name))?;
        let directory = record.machine_directory(&record.machines[index])?;
        let _ = fs::remove_dir_all(directory);
        Disks::of(cluster, name)?.remove();
        record.machines.remove(index);
        options.machines.retain(|machine| machine.name != name);
        Ok(())
    })
}

/// Tells machines that run the names of all, but for these, which know them.
pub fn tell_hosts(cluster: &str, but: &[String], report: &mut dyn FnMut(Progress)) -> Result<()> {
    let record = Record::read(cluster)?.ok_or_else(|| no_cluster(cluster))?;
    let runs = |machine: &&Machine| state(&record, machine) == MachineState::Running;
    let told =
        record.machines.iter().filter(|machine| !but.contains(&machine.name) && machine.address.is_some());
    let job = |machine: &Machine| {
        let (network, hosts) = network_of(&record, machine.index);
        Job::own(
            table::location(&record, machine),
            &["hosts", &hosts_file(&machine.name, Some(network), &hosts)],
        )
    };
    let jobs: Vec<Job> = told.filter(runs).map(job).collect::<Result<_>>()?;
    if jobs.is_empty() {
        return Ok(());
    }
    let how = RunOptions { prefix: false, keep_going: true, insist: true, silent: true };
    if run(&jobs, how)? != 0 {
        let what = "not all machines know the names of the others: see /etc/hosts there";
        report(Progress::Message(what.into()));
    }
    Ok(())
}
