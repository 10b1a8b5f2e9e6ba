//! The transport `local`: pools are files that processes and containers on one kernel map.
//!
//! A pool named `foo` is the file `/dev/shm/vshmem.UID/foo` of the effective user `UID`. `/dev/shm` is everybody's, so
//! what lies under a name is only used if it is a regular file of that user in a directory of that user. A path is taken as a sign of
//! trust: it may lead to another user's pool, into a container, or to a memory file (`/proc/PID/fd/N`). A file that has a second name is
//! neither: who can't read or write a file can still give it another name, where links aren't protected, and have it taken for a pool.

mod create;
mod list;
pub(crate) mod place;
mod reserved;

use core::ffi::CStr;

pub use create::{create_local, create_referred, create_with_head};
pub use list::{list_local, remove_local, LocalPool};
pub(crate) use place::exists;
pub use reserved::reserve_local;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::error::{DiscoverError, OpenError};
use crate::handle::Handle;
use crate::local::place::Place;
use crate::pool_ref::{Origin, PoolRef};
use crate::{sys, Transport};

/// Where the directories of named pools are.
pub const DIRECTORY: &CStr = c"/dev/shm";

/// The transport `local`.
#[derive(Clone, Copy, Debug)]
pub struct Local;

impl Transport for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        list_local(&mut |found| each(&found.pool))
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        let (file, _) = open_file(pool)?;
        Handle::set_up(&file, pool.path_text())
    }
}

/// Opens the file of a local pool as [`Transport::open`] does, for who hands it on. The caller closes the descriptor.
///
/// # Errors
/// See [`OpenError`].
pub fn open_local_file(pool: &PoolRef) -> Result<i32, OpenError> {
    let (file, _) = open_file(pool)?;
    Ok(file.into_fd())
}

/// Opens the file of a pool, if it may be one, as far as that is seen from outside.
fn open_file(pool: &PoolRef) -> Result<(Owned, libc::stat), OpenError> {
    let file = match pool.origin() {
        Origin::Name => {
            let place = Place::of(pool)?;
            let flags = OPEN_FLAGS | libc::O_NOFOLLOW;
            sys::open_at(place.directory(), place.name(), flags, 0)?
        }
        Origin::Path => sys::open(pool.path(), OPEN_FLAGS, 0)?,
        Origin::Device => return Err(OpenError::WrongTransport),
    };
    let file = Owned::new(file);
    let stat = sys::fstat(file.fd())?;
    match (stat.st_mode & libc::S_IFMT, pool.origin()) {
        // A memory file, or one that was removed and is still open somewhere, has no name at all.
        (libc::S_IFREG, _) if stat.st_nlink > 1 => return Err(OpenError::HardLinks),
        // A path may lead to a device file of vshmem.ko, for instance in a container of a machine.
        (libc::S_IFREG, _) | (libc::S_IFCHR, Origin::Path) => {}
        _ => return Err(OpenError::NotAFile),
    }
    if pool.origin() == Origin::Name && stat.st_uid != sys::effective_user() {
        return Err(OpenError::ForeignOwner);
    }
    Ok((file, stat))
}
