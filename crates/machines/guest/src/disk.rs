//! The disk with the host's files as they were, which is the machine's root.

use crate::slots;
use crate::sys;
use rustix::mount::MountFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_base::error::{Error, Explain, Result};
use vshmem_base::interrupt;

/// The disk's serial number, by which it is found.
pub const SERIAL: &str = "vshmem-root";

/// The directory in which the kernel lists disks.
const DISKS: &str = "/sys/block";
/// Time that the kernel may take to announce the disk.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Mounts the disk's file system.
pub fn mount(target: &Path) -> Result<()> {
    let disk = await_disk()?;
    sys::mount(&disk.to_string_lossy(), target, "erofs", MountFlags::RDONLY, "")
        .explain(|| "could not mount the host's files".into())
}

/// The disk's device, once it is there. A machine that has thawed has to look for it first.
fn await_disk() -> Result<PathBuf> {
    if let Some(disk) = find(Path::new(DISKS)) {
        return Ok(disk);
    }
    slots::find_devices().explain(|| "could not look for the disk of the host's files".into())?;
    let found = interrupt::wait_for(TIMEOUT, || Ok(find(Path::new(DISKS)).filter(|disk| disk.exists())))?;
    found.ok_or_else(|| Error::new("the machine has no disk with the host's files"))
}

fn find(disks: &Path) -> Option<PathBuf> {
    let all = fs::read_dir(disks).into_iter().flatten().flatten();
    let is_it = |disk: &fs::DirEntry| {
        fs::read_to_string(disk.path().join("serial")).is_ok_and(|serial| serial.trim() == SERIAL)
    };
    all.into_iter().find(is_it).map(|disk| Path::new("/dev").join(disk.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_found_by_its_serial_number() {
        let root = std::env::temp_dir().join(format!("vshmem-disk-{}", std::process::id()));
        for (name, serial) in [("vda", "other"), ("vdb", "vshmem-root\n"), ("loop0", "")] {
            fs::create_dir_all(root.join(name)).unwrap();
            if !serial.is_empty() {
                fs::write(root.join(name).join("serial"), serial).unwrap();
            }
        }
        assert_eq!(find(&root), Some("/dev/vdb".into()));
        fs::remove_dir_all(root.join("vdb")).unwrap();
        assert_eq!(find(&root), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
