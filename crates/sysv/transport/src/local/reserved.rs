//! Reserving a local pool: backing all of it with memory, for good.
//!
//! A process that touches a page without memory on a full file system is ended by SIGBUS. The library backs
//! pages before it touches them. In a virtual machine it can't, and there the signal would end the
//! hypervisor. So the pools of machines can have their memory from the start.

use core::ffi::CStr;

use crate::descriptor::Owned;
use crate::error::CreateError;
use crate::mapping::page_size_of;
use crate::pool_ref::PoolRef;
use crate::reserve::{self, KEPT};
use crate::sys;

/// Backs all of a local pool with memory, and marks its file so that none of it is given back later. The pool
/// keeps its contents, and may be in use. Only its owner can mark it.
///
/// # Errors
/// See [`CreateError`]: [`CreateError::NoRoom`] if the file system has not enough memory free, in which case
/// none is taken.
pub fn reserve_local(path: &CStr) -> Result<(), CreateError> {
    let pool = PoolRef::local(path.to_bytes()).map_err(|_| CreateError::BadName)?;
    let (file, stat) = super::open_file(&pool)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || size >= crate::LIVENESS_BASE {
        return Err(CreateError::BadName);
    }
    check_room(&file, size.saturating_sub(stat.st_blocks as u64 * 512))?;
    let mode = stat.st_mode & 0o7777;
    // The mark comes first: a process that punches a hole checks it again afterwards.
    if mode & KEPT == 0 {
        sys::set_mode(file.fd(), mode | KEPT)?;
    }
    if reserve::in_file(file.fd(), 0, size, page_size_of(file.fd())) {
        return Ok(());
    }
    let why = match sys::allocate(file.fd(), 0, 0, size) {
        Err(error) => error.into(),
        Ok(()) => return Ok(()),
    };
    sys::set_mode(file.fd(), mode)?;
    Err(why)
}

/// Checked first, because an attempt that fails would take the memory of all others on the file system
/// meanwhile.
fn check_room(file: &Owned, wanted: u64) -> Result<(), CreateError> {
    let stat = sys::fstatfs(file.fd())?;
    let free = stat.f_bavail.saturating_mul(stat.f_bsize as u64);
    // A tmpfs without a limit reports no blocks at all.
    match stat.f_blocks > 0 && wanted > free {
        true => Err(CreateError::NoRoom),
        false => Ok(()),
    }
}
