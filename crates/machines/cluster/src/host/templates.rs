//! Making templates ahead of the machines that thaw from them.

use super::{cluster, roots, up};
use std::collections::BTreeSet;
use vshmem_base::directories::{cluster_directory, private_directory};
use vshmem_base::error::Result;
use vshmem_base::lock::lock_cluster;
use vshmem_base::user::{self, uid};
use vshmem_hypervisor::boot::initramfs_files::Initramfs;
use vshmem_hypervisor::launcher::options::{ClusterOptions, Progress, RootKind};
use vshmem_hypervisor::launcher::traits::{Launcher, StartOptions};
use vshmem_hypervisor::state::record::Record;
use vshmem_hypervisor::template::templates::Templates;
use vshmem_session::share;

/// A directory as of a cluster, in which a template is made. It goes when it is dropped.
struct Scratch(String);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = cluster::remove(&self.0, None);
    }
}

/// Makes the templates that the machines of a cluster of these options would thaw from, as far as there are
/// none yet. Returns their names.
///
/// # Errors
/// A machine could not thaw, or its template could not be made.
pub fn make(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    report: &mut dyn FnMut(Progress),
) -> Result<BTreeSet<String>> {
    up::check_host(launcher, options)?;
    let cluster = format!("template-{}", std::process::id());
    let options = &ClusterOptions { cluster: cluster.clone(), ..options.clone() };
    let _lock = lock_cluster(&cluster)?;
    private_directory(&cluster_directory(&cluster)?)?;
    let _scratch = Scratch(cluster);
    let mut message = |text: &str| report(Progress::Message(text.into()));
    let pools = up::find_pools(launcher, options)?;
    let transport = pools.iter().find_map(|pool| pool.transport.as_deref());
    let (kernel, accel) = (options.kernel.as_deref(), options.accel.as_deref());
    let software = launcher.software(transport, kernel, &options.driver, accel, &mut message)?;
    let shares = share::choose(&options.shares, options.root == RootKind::Erofs, &mut |_| ())?;
    let mut record = Record {
        accel: software.accel.into(),
        kernel: software.kernel.image.clone(),
        root: roots::of(launcher, options, &software, &mut message),
        ..up::new_record(launcher, options, &pools, shares)
    };
    let images = options.machines.iter().map(|machine| &machine.image);
    let initramfs = Initramfs::write(&options.cluster, &software, images, record.root.is_some())?;
    let start = StartOptions {
        software: &software,
        initramfs: &initramfs,
        ports: options.ports,
        templates: &Templates::new(true),
        doorbell_sockets: &[],
    };
    // The user that a template of root's runs as.
    let user = (uid() == 0).then(|| user::unused(&BTreeSet::new())).transpose()?;
    let mut made = BTreeSet::new();
    for index in 0..record.machines.len() {
        record.machines[index].user = user;
        private_directory(&record.machine_directory(&record.machines[index])?)?;
        made.insert(launcher.make_template(&record, index, &start, report)?);
    }
    Ok(made)
}
