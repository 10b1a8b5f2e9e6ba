//! The pools that are made for a cluster: named pools of the user who starts the machines. Processes on the
//! host can use them by their names, `cluster.NAME` and `cluster.NAME.POOL`. Those in reserved pages are
//! files on a hugetlbfs, and used by their paths.

use rustix::fs::{access, Access};
use std::ffi::{CString, OsStr};
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Result};
use vshmem_base::size;
use vshmem_base::user::uid;
use vshmem_inspect::limits::Limit;
use vshmem_inspect::pools;
use vshmem_transport::{remove_local, PoolRef, RemoveError};

/// Bytes of the longest message: 64 KiB, and headers that programs put before them.
const MAX_MESSAGE: u64 = 65536 + 4096;
/// Bytes of a queue: a few messages of the greatest length.
const QUEUE_BYTES: u64 = 4 * MAX_MESSAGE;

/// The name of a cluster's own pool on this host.
pub fn own(cluster: &str) -> String {
    format!("cluster.{cluster}")
}

/// The name on this host of a further pool that is made for a cluster, and which its machines call `name`.
pub fn further(cluster: &str, name: &str) -> String {
    format!("cluster.{cluster}.{name}")
}

/// The file of a pool of this user.
pub fn path(name: &str) -> PathBuf {
    let pool = PoolRef::named(name.as_bytes()).expect("short, and of letters");
    OsStr::from_bytes(pool.path().to_bytes()).into()
}

/// Makes an empty pool.
pub fn create(name: &str, size: u64, form: pools::Form) -> Result<()> {
    let limits = [("msgmax", MAX_MESSAGE), ("msgmnb", QUEUE_BYTES)]
        .map(|(name, value)| Limit::new(name, value).expect("both are limits and fit"));
    pools::create(name, size, 0o600, &limits, form)
}

/// The reference to the pool of this file: its name, if that leads there, or else its path.
pub fn reference(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    match PoolRef::named(name.as_bytes()) {
        Ok(pool) if pool.path().to_bytes() == path.as_os_str().as_bytes() => name.to_string_lossy().into(),
        _ => path.to_string_lossy().into(),
    }
}

/// The file of a pool that a cluster has made.
pub fn file(reference: &str) -> PathBuf {
    if reference.contains('/') {
        reference.into()
    } else {
        path(reference)
    }
}

/// Removes a pool; it may be gone already.
pub fn remove(reference: &str) -> Result<()> {
    let failed = |why: &dyn Display| error!("could not remove the pool {reference}: {why}");
    if reference.contains('/') {
        // It may be broken, and has a directory of this user's.
        let file = Path::new(reference);
        match fs::remove_file(file) {
            Err(why) if why.kind() != ErrorKind::NotFound => return Err(failed(&why)),
            _ => (),
        }
        // The last one leaves nothing behind.
        let _ = file.parent().map(fs::remove_dir);
        return Ok(());
    }
    let file = CString::new(reference).expect("its name has no zero byte");
    match remove_local(&file) {
        Ok(()) | Err(RemoveError::NotFound) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

/// The directory of this user's pools in reserved pages of this size: on a hugetlbfs that is mounted, and in
/// which the user may make files. Otherwise, why there is none.
pub fn directory_for(page: u64) -> std::result::Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let all = mounted_for(page, &mounts);
    let may = |path: &&PathBuf| access(*path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    match (all.iter().find(may), all.first()) {
        (Some(path), _) => Ok(path.join(format!("vshmem.{}", uid()))),
        (None, Some(path)) => Err(format!("you may not make files in {}", path.display())),
        (None, None) => Err("no hugetlbfs with such pages is mounted, in which pools could be".into()),
    }
}

/// The mount points of file systems with reserved pages of this size.
fn mounted_for(page: u64, mounts: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
        let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
        // Spaces and the like stand there in other letters.
        let fits = kind == "hugetlbfs" && size::parse(size) == Ok(page) && !path.contains('\\');
        fits.then(|| PathBuf::from(path))
    };
    mounts.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_called_by_name_or_else_by_path() {
        assert_eq!(reference(&path("cluster.a")), "cluster.a");
        assert_eq!(reference(Path::new("/huge/cluster.a")), "/huge/cluster.a");
        assert_eq!(file("cluster.a"), path("cluster.a"));
        assert_eq!(file("/huge/cluster.a"), Path::new("/huge/cluster.a"));
    }

    #[test]
    fn file_systems_of_pages_are_found() {
        let mounts = "tmpfs /dev/shm tmpfs rw,size=1k 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n\
            none /huge\\040b hugetlbfs rw,pagesize=2M 0 0\nnone /huge hugetlbfs rw,relatime,pagesize=1024M 0 0\n";
        assert_eq!(mounted_for(2 << 20, mounts), [PathBuf::from("/dev/hugepages")]);
        assert_eq!(mounted_for(1 << 30, mounts), [PathBuf::from("/huge")]);
        assert!(mounted_for(4096, mounts).is_empty());
    }
}
