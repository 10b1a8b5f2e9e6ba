//! The port `xen`: pools are pages that one Xen domain grants to others.
//!
//! The driver vshmem_xen.ko (`kmod/xen`) shows each pool that a domain has, its own or another's, as the file
//! `/dev/vshmem-xen/NAME`, which is used as the device file of an ivshmem device is. Which domain gets which pool is announced in
//! XenStore: `vshmem xen own` in the owner and `vshmem xen join` in the others see to that. So all that is left for this port is
//! to find the files.
//!
//! Where the driver is loaded, names mean these pools first, then local pools that exist. `default` means the first by name, unless a
//! pool has that name.

use core::ffi::CStr;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::directory::each_entry;
use crate::error::{DiscoverError, OpenError};
use crate::handle::Handle;
use crate::ivshmem::Meaning;
use crate::pool_ref::{is_name, Origin, Path, PoolRef};
use crate::{sys, Port};

/// Where the driver's device files are.
const DIRECTORY: &CStr = c"/dev/vshmem-xen";
/// Only there while the driver is loaded.
const CLASS: &CStr = c"/sys/class/vshmem-xen";

/// The port `xen`.
#[derive(Clone, Copy, Debug)]
pub struct Xen;

impl Port for Xen {
    fn name(&self) -> &'static str {
        "xen"
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        each_entry(DIRECTORY, &mut |_, name| {
            pool_of(name.to_bytes()).is_none_or(|pool| each(&pool))
        })
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        if !is_ours(pool) {
            return Err(OpenError::WrongPort);
        }
        let file = Owned::new(sys::open(pool.path(), OPEN_FLAGS | libc::O_NOFOLLOW, 0)?);
        if sys::fstat(file.fd())?.st_mode & libc::S_IFMT != libc::S_IFCHR {
            return Err(OpenError::NotAFile);
        }
        Handle::set_up(&file, pool.path_text())
    }
}

/// Whether a pool is one of this port.
pub(crate) fn is_ours(pool: &PoolRef) -> bool {
    let rest = pool.path_text().bytes().strip_prefix(DIRECTORY.to_bytes());
    pool.origin() == Origin::Device && rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Finds out what a name means in this domain.
pub(crate) fn find(name: &[u8]) -> Result<Meaning, DiscoverError> {
    if sys::lstat_at(libc::AT_FDCWD, CLASS).is_err() {
        return Ok(Meaning::Local);
    }
    let mut named = None;
    let mut first: Option<PoolRef> = None;
    Xen.discover(&mut |pool| {
        if pool.name() == name {
            named = Some(pool.clone());
        }
        if first
            .as_ref()
            .is_none_or(|first| pool.name() < first.name())
        {
            first = Some(pool.clone());
        }
        named.is_none()
    })?;
    let meant = named.or(first.filter(|_| name == b"default"));
    Ok(meant.map_or(Meaning::Nothing, Meaning::Pool))
}

/// The pool of this name. None for what can't be a name, as `.` and `..` can't.
fn pool_of(name: &[u8]) -> Option<PoolRef> {
    if !is_name(name) || matches!(name, b"." | b"..") {
        return None;
    }
    let mut path = Path::new();
    path.push(DIRECTORY.to_bytes())?;
    path.push(b"/")?;
    path.push(name)?;
    PoolRef::device(name, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_files_of_the_driver() {
        let pool = pool_of(b"work").expect("a pool");
        assert_eq!(pool.path(), c"/dev/vshmem-xen/work");
        assert_eq!((pool.name(), pool.origin()), (&b"work"[..], Origin::Device));
        assert!(is_ours(&pool) && !pool.is_local());
        for bad in [&b"."[..], b"..", b"", b"a/b"] {
            assert!(pool_of(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn other_ports_pools_are_refused() {
        let local = PoolRef::at(b"/dev/vshmem-xen/work").expect("a path");
        let mut path = Path::new();
        path.push(b"/dev/vshmem-xenon/work").expect("short");
        let other = PoolRef::device(b"work", path).expect("a pool");
        for pool in [local, other] {
            assert_eq!(Xen.open(&pool).err(), Some(OpenError::WrongPort));
        }
    }

    /// On a machine without the driver, names are those of local pools.
    #[test]
    fn without_the_driver_there_is_nothing() {
        if std::path::Path::new("/sys/class/vshmem-xen").exists() {
            return;
        }
        assert!(matches!(find(b"default"), Ok(Meaning::Local)));
        assert_eq!(Xen.discover(&mut |_| true), Ok(()));
    }
}
