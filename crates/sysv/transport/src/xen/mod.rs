//! The transport `xen`: pools are pages that one Xen domain grants to others.
//!
//! The driver vshmem_xen.ko (`kmod/xen`) shows each pool that a domain has, its own or another's, as the file
//! `/dev/vshmem-xen/NAME`, with the calls of the driver for PCI devices. The broker (`vshmem xen own` in the
//! owner, `vshmem xen join` in the others) announces and attaches pools by XenStore, so the mapping has only
//! to find the files.
//!
//! Where the driver is loaded, names mean these pools first, then local pools that exist. `default` means the
//! first by name, unless a pool has that name.

use core::ffi::CStr;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::directory::each_entry;
use crate::error::{DiscoverError, OpenError};
use crate::handle::Handle;
use crate::pool_ref::{is_name, Path, PoolRef};
use crate::{sys, Transport};

/// The directory of the driver's device files.
const DIRECTORY: &CStr = c"/dev/vshmem-xen";
/// The driver's class, which is there while the driver is loaded.
const CLASS: &CStr = c"/sys/class/vshmem-xen";

/// The transport `xen`.
#[derive(Clone, Copy, Debug)]
pub struct Xen;

impl Transport for Xen {
    fn name(&self) -> &'static str {
        "xen"
    }

    fn is_here(&self) -> bool {
        sys::lstat_at(libc::AT_FDCWD, CLASS).is_ok()
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        each_entry(DIRECTORY, &mut |_, name| pool_of(name.to_bytes()).is_none_or(|pool| each(&pool)))
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        if pool.giver() != Some(self.name()) {
            return Err(OpenError::WrongTransport);
        }
        let file = Owned::new(sys::open(pool.path(), OPEN_FLAGS | libc::O_NOFOLLOW, 0)?);
        if sys::fstat(file.fd())?.st_mode & libc::S_IFMT != libc::S_IFCHR {
            return Err(OpenError::NotAFile);
        }
        Handle::set_up(&file, pool.path_text())
    }
}

/// The pool of this name; `None` for what can't be a name, such as `.` and `..`.
fn pool_of(name: &[u8]) -> Option<PoolRef> {
    if !is_name(name) || matches!(name, b"." | b"..") {
        return None;
    }
    let mut path = Path::new();
    path.push(DIRECTORY.to_bytes())?;
    path.push(b"/")?;
    path.push(name)?;
    PoolRef::device(Xen.name(), None, name, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Found, Origin};

    #[test]
    fn pools_are_files_of_the_driver() {
        let pool = pool_of(b"work").expect("a pool");
        assert_eq!(pool.path(), c"/dev/vshmem-xen/work");
        assert_eq!((pool.name(), pool.origin()), (&b"work"[..], Origin::Device));
        assert_eq!(pool.giver(), Some("xen"));
        assert!(!pool.is_local());
        for bad in [&b"."[..], b"..", b"", b"a/b"] {
            assert!(pool_of(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn pools_of_other_transports_are_refused() {
        let local = PoolRef::at(b"/dev/vshmem-xen/work").expect("a path");
        assert_eq!(Xen.open(&local).err(), Some(OpenError::WrongTransport));
    }

    /// On a machine without the driver, names are those of local pools.
    #[test]
    fn without_the_driver_there_is_nothing() {
        if std::path::Path::new("/sys/class/vshmem-xen").exists() {
            return;
        }
        assert!(matches!(Xen.find(b"default"), Ok(Found::NotHere)));
        assert_eq!(Xen.discover(&mut |_| true), Ok(()));
    }
}
