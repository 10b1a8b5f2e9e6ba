//! Listing and removing local pools.

use core::ffi::CStr;

use vshmem_pool::layout::MAGIC;

use crate::descriptor::Owned;
use crate::directory::each_entry_of;
use crate::error::{DiscoverError, RemoveError};
use crate::head;
use crate::local::entry::{self, Entry, EntryError};
use crate::pool_ref::{Origin, PoolRef};
use crate::reserve::KEPT;
use crate::sys::{self, Errno};

/// A local pool, as the file system describes it.
#[derive(Clone, Debug)]
pub struct LocalPool {
    /// The pool, by its name.
    pub pool: PoolRef,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that are backed by memory.
    pub used: u64,
    /// Permission bits.
    pub mode: u32,
    /// The pool keeps all of its memory ([`crate::reserve_local`]).
    pub reserved: bool,
}

/// Calls `each` for every named pool of the effective user, in no particular order, until it returns `false`.
///
/// # Errors
/// See [`DiscoverError`]. A user without a directory for them has no named pools, which is no error.
pub fn list_local(each: &mut dyn FnMut(&LocalPool) -> bool) -> Result<(), DiscoverError> {
    let user = sys::effective_user();
    let directory = match entry::open_own_directory() {
        Err(EntryError::System(Errno(libc::ENOENT))) => return Ok(()),
        own => own?,
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let directory = Owned::new(sys::open_at(directory.fd(), c".", flags, 0)?);
    each_entry_of(&directory, &mut |directory, file_name| match describe(directory, file_name, user) {
        Some(pool) => each(&pool),
        None => true,
    })
}

/// Describes a directory entry, if it is a pool of this user.
fn describe(directory: i32, file_name: &CStr, user: u32) -> Option<LocalPool> {
    let pool = PoolRef::named(file_name.to_bytes()).ok()?;
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

/// Removes a local pool, given by name or, with a slash, by path. Processes that have it open keep it, and
/// its memory is given back when the last of them is gone. A file that is given by path must begin as a pool
/// does; one in the directory of named pools may be broken, too.
///
/// # Errors
/// See [`RemoveError`].
pub fn remove_local(pool: &CStr) -> Result<(), RemoveError> {
    let pool = PoolRef::local(pool.to_bytes()).map_err(|_| RemoveError::BadName)?;
    let entry = Entry::of(&pool)?;
    let stat = sys::lstat_at(entry.directory(), entry.name())?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(RemoveError::NotAFile);
    }
    match pool.origin() {
        Origin::Name if stat.st_uid != sys::effective_user() => return Err(RemoveError::ForeignOwner),
        Origin::Path if !begins_as_a_pool(&entry)? => return Err(RemoveError::NotAPool),
        _ => {}
    }
    Ok(sys::unlink(entry.directory(), entry.name())?)
}

/// Pools get their names when they are complete, so a file that does not begin as one is something else.
fn begins_as_a_pool(entry: &Entry) -> Result<bool, Errno> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK;
    let file = Owned::new(sys::open_at(entry.directory(), entry.name(), flags, 0)?);
    let len = sys::fstat(file.fd())?.st_size as u64;
    let mut magic = [0; 8];
    let read = sys::read_at(file.fd(), &mut magic, head::length(file.fd(), len))?;
    Ok(read == magic.len() && u64::from_le_bytes(magic) == MAGIC)
}
