//! The start of the machines of a batch, at once where their launcher can do that: most of it is waiting for
//! another process.

use super::serving;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use vshmem_base::error::{Error, Result};
use vshmem_hypervisor::boot::initramfs_files::Initramfs;
use vshmem_hypervisor::boot::software::Software;
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::launcher::traits::{Launcher, StartOptions, Started};
use vshmem_hypervisor::shared::network::Link;
use vshmem_hypervisor::state::ports::Ports;
use vshmem_hypervisor::state::record::Record;
use vshmem_hypervisor::template::templates::Templates;

/// The parts of a start that all machines of a cluster have in common.
#[derive(Clone, Copy)]
pub struct Common<'a> {
    pub launcher: &'a dyn Launcher,
    pub software: &'a Software,
    pub initramfs: &'a Initramfs,
    pub ports: Ports,
    pub templates: &'a Templates,
}

/// A machine to be started.
struct Job {
    index: usize,
    sockets: Vec<Option<PathBuf>>,
    links: Option<Vec<Link>>,
}

/// Starts the machines with these indices, which have one entry of `links` each. Returns what became of each
/// of them.
pub fn start_all(
    common: Common<'_>,
    record: &Record,
    batch: Range<usize>,
    links: &mut dyn Iterator<Item = Option<Vec<Link>>>,
    report: &mut dyn FnMut(Progress),
) -> Result<Vec<(usize, Result<Started>)>> {
    let job = |index: usize| {
        let sockets = serving::sockets(common.launcher, record, &record.machines[index].pools)?;
        Ok(Job { index, sockets, links: links.next().expect("each machine has an entry") })
    };
    let jobs: Vec<Job> = batch.map(job).collect::<Result<_>>()?;
    if jobs.len() > 1 && common.launcher.facts().starts_at_once {
        return Ok(at_once(common, record, jobs, report));
    }
    let mut all = Vec::new();
    for job in jobs {
        let index = job.index;
        let outcome = start(common, record, job, report);
        let failed = outcome.is_err();
        all.push((index, outcome));
        if failed {
            break;
        }
    }
    Ok(all)
}

/// Starts machines in a thread each. What they report is passed on in this one.
fn at_once(
    common: Common<'_>,
    record: &Record,
    jobs: Vec<Job>,
    report: &mut dyn FnMut(Progress),
) -> Vec<(usize, Result<Started>)> {
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let one = |job: Job| {
            let (index, tell) = (job.index, tell.clone());
            let report = move |progress| drop(tell.send(progress));
            (index, scope.spawn(move || start(common, record, job, &mut { report })))
        };
        let threads: Vec<_> = jobs.into_iter().map(one).collect();
        drop(tell);
        told.into_iter().for_each(report);
        let outcome = |(index, thread): (usize, thread::ScopedJoinHandle<'_, Result<Started>>)| {
            let panicked = |_| Err(Error::new("a thread that starts a machine has panicked"));
            (index, thread.join().unwrap_or_else(panicked))
        };
        threads.into_iter().map(outcome).collect()
    })
}

fn start(common: Common<'_>, record: &Record, job: Job, report: &mut dyn FnMut(Progress)) -> Result<Started> {
    let Common { launcher, software, initramfs, ports, templates } = common;
    let options = StartOptions { software, initramfs, ports, templates, doorbell_sockets: &job.sockets };
    launcher.start(record, job.index, &options, job.links, report)
}
