//! The table of transports, and the look-up and opening of pools by it.

use crate::dax::Dax;
use crate::error::{DiscoverError, OpenError, ResolveError};
use crate::handle::Handle;
use crate::ivshmem::Ivshmem;
use crate::local::{self, Local};
use crate::pool_ref::PoolRef;
use crate::xen::Xen;
use crate::{Found, Transport};

/// The transports, in the order in which a name is looked for.
pub fn transports() -> [&'static dyn Transport; 4] {
    [&Ivshmem, &Xen, &Dax, &Local]
}

/// The pool that a name or, with a slash, a path means on this kernel. In a machine that is given pools by
/// its hypervisor, names mean those first, then local pools of the user that exist; elsewhere they mean the
/// user's local pools, which need not exist yet.
///
/// # Errors
/// See [`ResolveError`].
pub fn resolve(value: &[u8]) -> Result<PoolRef, ResolveError> {
    if value.contains(&b'/') {
        let of_device = transports().iter().find_map(|its| its.at(value));
        return of_device.map_or_else(|| PoolRef::at(value), Ok);
    }
    let mut given_pools = false;
    for transport in transports() {
        match transport.find(value) {
            Ok(Found::Pool(pool)) => return Ok(pool),
            Ok(Found::Nothing) => given_pools = true,
            Ok(Found::NotHere) => {}
            Err(DiscoverError::Descriptors) => return Err(ResolveError::Descriptors),
            Err(_) => return Err(ResolveError::Devices),
        }
    }
    let local = PoolRef::named(value);
    match given_pools {
        false => local,
        true => local.ok().filter(local::exists).ok_or(ResolveError::NoSuchPool),
    }
}

/// The local pool of that name or path, for a caller that wants to make it.
///
/// # Errors
/// As those of [`resolve`]; [`ResolveError::Given`] if the name is that of a pool which this machine was
/// given.
pub fn resolve_new(value: &[u8]) -> Result<PoolRef, ResolveError> {
    match resolve(value) {
        Ok(pool) if !pool.is_local() => Err(ResolveError::Given),
        Err(ResolveError::NoSuchPool) => PoolRef::named(value),
        other => other,
    }
}

/// The transport that a pool is opened by.
pub fn transport_of(pool: &PoolRef) -> &'static dyn Transport {
    let is_giver = |transport: &&dyn Transport| pool.giver() == Some(transport.name());
    transports().into_iter().find(is_giver).unwrap_or(&Local)
}

/// Opens a pool by its transport.
///
/// # Errors
/// See [`OpenError`].
pub fn open(pool: &PoolRef) -> Result<Handle, OpenError> {
    transport_of(pool).open(pool)
}
