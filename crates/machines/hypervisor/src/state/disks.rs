//! Files of machines that boot a system of their own: their disks, which may be large. The runtime directory
//! is memory on most systems, so they are in `/var/tmp`, in a directory of this user for this boot of the
//! host, and below it one for each cluster, which is called as the cluster's directory.

use percent_encoding::{percent_encode, AsciiSet, NON_ALPHANUMERIC};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::directories::{boot_id, cluster_directory, open_directory, runtime_directory};
use vshmem_base::error::{Explain, Result};
use vshmem_base::lock::OF_CLUSTER;
use vshmem_base::user::uid;

/// Characters of a cluster's directory that stay as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-');

/// The mode of directories: others can enter them.
const ENTERED: u32 = 0o711;

/// The files of a machine.
pub struct Disks {
    /// The overlay, which the machine writes to.
    pub overlay: PathBuf,
    /// The seed.
    pub seed: PathBuf,
}

fn all() -> PathBuf {
    PathBuf::from(format!("/var/tmp/vshmem-{}", uid()))
}

fn of_cluster(name: &str) -> Result<PathBuf> {
    let directory = cluster_directory(name)?;
    let called = percent_encode(directory.as_os_str().as_bytes(), PLAIN).to_string();
    Ok(all().join(boot_id()).join(called))
}

impl Disks {
    /// The files of this machine of a cluster.
    pub fn of(cluster: &str, machine: &str) -> Result<Disks> {
        let directory = of_cluster(cluster)?;
        let file = |ending| directory.join(format!("{machine}.{ending}"));
        Ok(Disks { overlay: file("qcow2"), seed: file("seed") })
    }

    /// Makes the directory of the files. Other users can enter it if they know its name: one of them may open
    /// the files by their paths.
    pub fn prepare(&self) -> Result<()> {
        let directories: Vec<&Path> = self.seed.ancestors().skip(1).take(3).collect();
        let make = || directories.iter().rev().try_for_each(|directory| open_directory(directory, ENTERED));
        // Another command may have removed one that was empty.
        make().or_else(|_| make())
    }

    /// Removes the files.
    pub fn remove(&self) {
        for file in [&self.overlay, &self.seed] {
            let _ = fs::remove_file(file);
        }
    }
}

/// Removes a directory and its contents, if it exists.
fn remove_tree(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).explain(|| format!("could not remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the files of a cluster, and leftovers of earlier boots of the host.
pub fn remove(cluster: &str) -> Result<()> {
    remove_tree(&of_cluster(cluster)?)?;
    let (all, now) = (all(), boot_id());
    for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
        let _ = match *entry.file_name() == *now {
            true => fs::remove_dir(entry.path()),
            false => fs::remove_dir_all(entry.path()),
        };
    }
    let _ = fs::remove_dir(&all);
    Ok(())
}

/// Removes a cluster's disks, its directory and its lock file, and the user's directory if that was the last
/// one.
pub fn remove_cluster_directory(name: &str) -> Result<()> {
    remove(name)?;
    let directory = cluster_directory(name)?;
    remove_tree(&directory)?;
    let runtime = runtime_directory()?;
    let _ = fs::remove_file(directory.with_extension(OF_CLUSTER));
    let _ = fs::remove_dir(&runtime);
    Ok(())
}
