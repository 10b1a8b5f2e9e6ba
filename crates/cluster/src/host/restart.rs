//! Starts machines of a cluster anew: those that died, and those that run, whose power is cut.

use super::boot::{self, Initramfs, Outfit, Software};
use super::cluster::{self, MachineState};
use super::hypervisor::Running;
use super::qemu::sandbox::Leash;
use super::qemu::Link;
use super::state::{self, boot_id, Granted, Lock, Record};
use super::up::Step;
use super::{accel, doorbell, driver, interrupt, wires};
use crate::error::{Error, Result};
use std::time::Duration;

/// How long another command may be at work on the cluster.
const OTHERS_WITHIN: Duration = Duration::from_secs(20);
/// How long a QEMU may take to end by itself.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Starts the machines of these names anew, together, as `up` has started them. Their processes are dead by then, and
/// nobody waits for what those held; the others run on. Pools that were granted to them later are theirs no more.
pub fn restart(
    cluster: &str,
    names: &[String],
    patience: Duration,
    tell: &mut dyn FnMut(Step),
) -> Result<()> {
    let lock = interrupt::wait_for(OTHERS_WITHIN, || state::try_lock_cluster(cluster))?;
    let lock = lock.ok_or_else(|| {
        Error::new(format!(
            "another vshmem command is at work on the cluster {cluster}"
        ))
        .hint("Wait until it is done, or end it.")
    })?;
    let (record, places) = find(cluster, names, &lock)?;
    let software = {
        let mut note = |_: &str| ();
        let driver = match &record.driver {
            Some(path) => driver::Choice::File(path.clone()),
            None => driver::Choice::None,
        };
        let accel = match record.accel.as_str() {
            "kvm" => accel::Choice::Kvm,
            _ => accel::Choice::Tcg,
        };
        record
            .hypervisor()
            .software(Some(&record.kernel), &driver, accel, &mut note)?
    };
    let initramfs = Initramfs::write(cluster, &software)?;
    together(record, &places, (&software, &initramfs), patience, tell)
        .map_err(|error| interrupt::check().err().unwrap_or(error))?;
    drop(lock);
    Ok(())
}

/// The cluster's record, and where in it the machines of these names are.
fn find(cluster: &str, names: &[String], _lock: &Lock) -> Result<(Record, Vec<usize>)> {
    let Some(record) = Record::read(cluster)? else {
        // The lock's file was made for nothing.
        state::forget_cluster(cluster)?;
        return Err(cluster::no_cluster(cluster));
    };
    if record.boot != boot_id() {
        return Err(
            Error::new(format!("the cluster {cluster} ended with this host"))
                .hint("Start it with: vshmem up"),
        );
    }
    let mut places = Vec::new();
    for name in names {
        let place = cluster::place(&record, name)?;
        if cluster::state(&record, &record.machines[place]) == MachineState::Starting {
            return Err(Error::new(format!("{name} is being started")));
        }
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok((record, places))
}

/// A machine that is ended unless it comes up.
struct Starting(Option<Running>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.end(Duration::ZERO);
        }
    }
}

fn together(
    mut record: Record,
    places: &[usize],
    means: (&Software, &Initramfs),
    patience: Duration,
    tell: &mut dyn FnMut(Step),
) -> Result<()> {
    // All first: none is to be wired to one that ends.
    for &place in places {
        end(&mut record, place)?;
    }
    let mut starting = Vec::new();
    for &place in places {
        starting.push((place, begin(&mut record, place, means, tell)?));
    }
    boot::wait(&record, places.to_vec(), patience, &mut |name| {
        // Whatever becomes of the others.
        for (place, machine) in &mut starting {
            if record.machines[*place].name == name {
                machine.0 = None;
            }
        }
        tell(Step::Ready(name.into()));
    })
}

/// A new QEMU for the machine, which is written down.
fn begin(
    record: &mut Record,
    place: usize,
    (software, initramfs): (&Software, &Initramfs),
    tell: &mut dyn FnMut(Step),
) -> Result<Starting> {
    let link = match record.machines[place].address {
        Some(_) => Some(Link {
            wires: wires::anew(record, place, &mut |text| tell(Step::Note(text.into())))?,
        }),
        None => None,
    };
    let pools = record.machines[place].pools.iter();
    let bells = match record.doorbell {
        true => pools
            .map(|pool| doorbell::serve(&pool.path))
            .collect::<Result<_>>()?,
        false => vec![],
    };
    let outfit = Outfit {
        software,
        initramfs,
        ports: record.ports,
        bells: &bells,
    };
    let hypervisor = record.hypervisor();
    let (running, leash) = hypervisor.start(record, place, &outfit, link)?;
    let starting = Starting(Some(running.clone()));
    record.machines[place].runs = Some(running);
    record.machines[place].since = Some(state::now());
    record.write()?;
    boot::or_ended(record, place, leash.map(Leash::let_go).transpose())?;
    let cores = &record.machines[place].cores;
    if !cores.is_empty() {
        boot::or_ended(record, place, hypervisor.pin(record, place, cores))?;
    }
    Ok(starting)
}

/// Ends a machine if it runs, and all that its processes have in pools. It has the pools again then that it began with.
fn end(record: &mut Record, place: usize) -> Result<()> {
    if let Some(running) = record.machines[place].runs.as_ref().filter(|it| it.alive()) {
        running.end(ENDS_WITHIN);
        if running.alive() {
            let name = &record.machines[place].name;
            return Err(Error::new(format!("{name} does not turn off")));
        }
    }
    cluster::bury_one(record, place);
    let machine = &mut record.machines[place];
    machine.pools.clone_from(&record.first_pools);
    if machine.pools.is_empty() {
        return Err(
            Error::new("an older vshmem has started this cluster, and did not write down all that its machines have")
                .hint("Start it anew with: vshmem down && vshmem up"),
        );
    }
    let gone = |pool: &&Granted| !pool.path.exists();
    if let Some(pool) = machine.pools.iter().find(gone) {
        return Err(Error::new(format!(
            "{} had the pool {}, whose file {} is gone",
            machine.name,
            pool.name,
            pool.path.display()
        ))
        .hint("Start the cluster anew with: vshmem down && vshmem up"));
    }
    // The sockets that the QEMU before has left would be taken for those of the new one.
    cluster::remove_sockets(&record.machine_directory(&record.machines[place])?);
    record.write()
}
