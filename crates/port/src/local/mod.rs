//! The port `local`: pools are files that processes and containers on one kernel map.
//!
//! A pool named `foo` is the file `/dev/shm/vshmem.UID.foo` of the effective user `UID`. `/dev/shm` is everybody's, so
//! what lies under a name is only used if it is a regular file of that user. A path is taken as a sign of trust: it may
//! lead to another user's pool, into a container, or to a memory file (`/proc/PID/fd/N`).

mod create;
mod list;
mod reserved;

use core::ffi::CStr;

pub use create::create_local;
pub use list::{list_local, remove_local, LocalPool};
pub use reserved::reserve_local;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::error::{DiscoverError, OpenError};
use crate::handle::Handle;
use crate::pool_ref::{Origin, PoolRef};
use crate::{sys, Port};

/// Where named pools are.
pub(crate) const DIRECTORY: &CStr = c"/dev/shm";

/// The port `local`.
#[derive(Clone, Copy, Debug)]
pub struct Local;

impl Port for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        list_local(&mut |found| each(&found.pool))
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        let follow = match pool.origin() {
            Origin::Name => libc::O_NOFOLLOW,
            Origin::Path => 0,
            Origin::Device => return Err(OpenError::WrongPort),
        };
        let file = Owned::new(sys::open(pool.path(), OPEN_FLAGS | follow, 0)?);
        let stat = sys::fstat(file.fd())?;
        // A path may lead to a device file of vshmem.ko, for instance in a container of a machine.
        match (stat.st_mode & libc::S_IFMT, pool.origin()) {
            (libc::S_IFREG, _) | (libc::S_IFCHR, Origin::Path) => {}
            _ => return Err(OpenError::NotAFile),
        }
        if pool.origin() == Origin::Name && stat.st_uid != sys::effective_user() {
            return Err(OpenError::ForeignOwner);
        }
        Handle::set_up(&file, pool.path_text())
    }
}
