//! Reserving a local pool: giving all of it memory, for good.
//!
//! A process that touches what has no memory on a full file system ends by SIGBUS. The library takes memory before it touches any, but in a
//! virtual machine it can't: there the hypervisor would end. So the pools of machines have theirs from the start.

use core::ffi::CStr;

use crate::descriptor::Owned;
use crate::error::CreateError;
use crate::handle::page_size_of;
use crate::pool_ref::PoolRef;
use crate::reserve::{self, KEPT};
use crate::sys;

/// Gives all of a local pool memory, and marks its file: nobody who honours the mark takes any of it away again. What the pool holds is
/// kept, and it may be in use. Only its owner can mark it.
///
/// # Errors
/// See [`CreateError`]: [`CreateError::NoRoom`] where the file system has no room for it, which is told before any is taken.
pub fn reserve_local(path: &CStr) -> Result<(), CreateError> {
    let pool = PoolRef::local(path.to_bytes()).map_err(|_| CreateError::BadName)?;
    let (file, stat) = super::open_file(&pool)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || size >= crate::LIVENESS_BASE {
        return Err(CreateError::BadName);
    }
    check_room(&file, size.saturating_sub(stat.st_blocks as u64 * 512))?;
    let mode = stat.st_mode & 0o7777;
    // Marked first: who punches a hole looks again afterwards.
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

/// Asked first, because what is taken until there is no more left would be taken from everybody on the file system.
fn check_room(file: &Owned, wanted: u64) -> Result<(), CreateError> {
    let stat = sys::fstatfs(file.fd())?;
    let free = stat.f_bavail.saturating_mul(stat.f_bsize as u64);
    // A tmpfs without a limit reports no blocks at all.
    match stat.f_blocks > 0 && wanted > free {
        true => Err(CreateError::NoRoom),
        false => Ok(()),
    }
}
