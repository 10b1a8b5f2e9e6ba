//! The transport `local`: pools are files that processes and containers on one kernel map.
//!
//! A pool named `foo` is the file `/dev/shm/vshmem.UID/foo` of the effective user `UID`. Any user can write
//! to `/dev/shm`, so a name is only followed to a regular file of that user in a directory of that user. A
//! path is trusted: it may lead to another user's pool, into a container, or to a memory file
//! (`/proc/PID/fd/N`). A file with hard links is refused in either case: where links aren't protected, a user
//! can link a file that it can't read or write, to have it taken for a pool.

mod create;
mod entry;
mod list;
mod reserved;

pub use crate::pool_ref::DIRECTORY;
pub use create::{create_local, create_resolved, create_with_head, page_size_for};
pub(crate) use entry::exists;
pub use list::{list_local, remove_local, LocalPool};
pub use reserved::reserve_local;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::error::{DiscoverError, OpenError};
use crate::handle::Handle;
use crate::local::entry::Entry;
use crate::pool_ref::{Origin, PoolRef};
use crate::{sys, Found, Transport};

/// The transport `local`.
#[derive(Clone, Copy, Debug)]
pub struct Local;

impl Transport for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    /// A name leads to a local pool where no other transport gives one: [`PoolRef::named`].
    fn find(&self, _name: &[u8]) -> Result<Found, DiscoverError> {
        Ok(Found::NotHere)
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        list_local(&mut |found| each(&found.pool))
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        let (file, _) = open_file(pool)?;
        Handle::set_up(&file, pool.path_text())
    }
}

/// Opens the file of a local pool as [`Transport::open`] does, for a caller that passes the descriptor on,
/// and closes it.
///
/// # Errors
/// See [`OpenError`].
pub fn open_local_file(pool: &PoolRef) -> Result<i32, OpenError> {
    let (file, _) = open_file(pool)?;
    Ok(file.into_fd())
}

/// Opens the file of a pool, if its type, owner and links are those that a pool may have.
fn open_file(pool: &PoolRef) -> Result<(Owned, libc::stat), OpenError> {
    let file = match pool.origin() {
        Origin::Name => {
            let entry = Entry::of(pool)?;
            let flags = OPEN_FLAGS | libc::O_NOFOLLOW;
            sys::open_at(entry.directory(), entry.name(), flags, 0)?
        }
        Origin::Path => sys::open(pool.path(), OPEN_FLAGS, 0)?,
        Origin::Device => return Err(OpenError::WrongTransport),
    };
    let file = Owned::new(file);
    let stat = sys::fstat(file.fd())?;
    match (stat.st_mode & libc::S_IFMT, pool.origin()) {
        // A memory file has no name at all, nor has a removed file that is still open.
        (libc::S_IFREG, _) if stat.st_nlink > 1 => return Err(OpenError::HardLinks),
        // A path may lead to a driver's device file, for instance in a container of a machine.
        (libc::S_IFREG, _) | (libc::S_IFCHR, Origin::Path) => {}
        _ => return Err(OpenError::NotAFile),
    }
    if pool.origin() == Origin::Name && stat.st_uid != sys::effective_user() {
        return Err(OpenError::ForeignOwner);
    }
    Ok((file, stat))
}
