//! Listing and removing local pools.

use core::ffi::CStr;

use crate::directory::each_entry;
use crate::error::{DiscoverError, RemoveError};
use crate::local::DIRECTORY;
use crate::pool_ref::{push_prefix, Origin, PoolRef};
use crate::reserve::KEPT;
use crate::sys;
use crate::text::Text;

/// A local pool as its file shows it from outside.
#[derive(Clone, Debug)]
pub struct LocalPool {
    /// Which pool.
    pub pool: PoolRef,
    /// Length in bytes.
    pub size: u64,
    /// How many bytes are backed by memory.
    pub used: u64,
    /// Permission bits.
    pub mode: u32,
    /// It keeps all of its memory ([`crate::reserve_local`]).
    pub reserved: bool,
}

/// Calls `each` for every named pool of the effective user, in no particular order, until it returns `false`.
///
/// # Errors
/// See [`DiscoverError`]. A machine without `/dev/shm` has no named pools, which is no error.
pub fn list_local(each: &mut dyn FnMut(&LocalPool) -> bool) -> Result<(), DiscoverError> {
    let user = sys::effective_user();
    let mut prefix = Text::<32>::new();
    if push_prefix(&mut prefix, user).is_none() {
        return Ok(());
    }
    each_entry(DIRECTORY, &mut |directory, file_name| {
        let Some(name) = file_name.to_bytes().strip_prefix(prefix.bytes()) else {
            return true;
        };
        match describe(directory, file_name, name, user) {
            Some(pool) => each(&pool),
            None => true,
        }
    })
}

/// What there is to say of a directory entry, if it is a pool of this user.
fn describe(directory: i32, file_name: &CStr, name: &[u8], user: u32) -> Option<LocalPool> {
    let pool = PoolRef::named(name).ok()?;
    let stat = sys::lstat_at(directory, file_name).ok()?;
    let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    (regular && stat.st_uid == user).then(|| LocalPool {
        pool,
        size: stat.st_size as u64,
        used: stat.st_blocks as u64 * 512,
        mode: stat.st_mode & 0o777,
        reserved: stat.st_mode & KEPT != 0,
    })
}

/// Removes a local pool, given by name or, with a slash, by path. Who has it open keeps it; its memory is given back
/// when the last of them is gone. The file's contents are not looked at, so that a broken pool can be removed too.
///
/// # Errors
/// See [`RemoveError`].
pub fn remove_local(pool: &CStr) -> Result<(), RemoveError> {
    let pool = PoolRef::local(pool.to_bytes()).map_err(|_| RemoveError::BadName)?;
    let stat = sys::lstat_at(libc::AT_FDCWD, pool.path())?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(RemoveError::NotAFile);
    }
    if pool.origin() == Origin::Name && stat.st_uid != sys::effective_user() {
        return Err(RemoveError::ForeignOwner);
    }
    Ok(sys::unlink(pool.path())?)
}
