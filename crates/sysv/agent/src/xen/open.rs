//! A pool of this domain as it is opened: created, or taken over from a previous process. By the driver, no
//! two processes serve the same pool.

use super::device::{Claim, Device};
use super::options::{CheckLimits, OwnOptions};
use crate::maintained_pool::MaintainedPool;
use std::fmt::Display;
use vshmem_base::error::{error, Result};
use vshmem_ipc::census::Census;
use vshmem_pool::{Params, Pool};

/// Tries for a pool that vanishes while it is taken over.
const TAKE_OVER_TRIES: u32 = 10;

/// Creates a pool, or takes over the one that is there, and joins it. It is served as long as the device is
/// open.
pub fn create_or_take_over(
    options: &OwnOptions,
    check: CheckLimits,
    device: &Device,
    own_id: u16,
) -> Result<MaintainedPool> {
    let pool = &options.pool;
    for _ in 0..TAKE_OVER_TRIES {
        let is_new = device.create(pool, options.size)?;
        match device.claim(pool)? {
            Claim::Acquired => {}
            Claim::NoPool => continue,
            Claim::Busy => {
                return Err(error!(
                    "the pool {pool} is served by another process: choose another name, or end that one"
                ))
            }
        }
        let opened = open(options, check);
        if opened.is_err() && is_new {
            device.remove(pool, own_id)?;
        }
        return opened;
    }
    Err(error!("the pool {pool} comes and goes: something else makes and removes it"))
}

/// Opens and joins the pool. Formats the memory, unless a previous process has done so.
fn open(options: &OwnOptions, check: CheckLimits) -> Result<MaintainedPool> {
    let name = &options.pool;
    let reference = vshmem_transport::resolve(name.as_bytes()).explain_pool(name)?;
    let handle = vshmem_transport::open(&reference).explain_pool(name)?;
    let memory = handle.mem();
    let size = memory.len() as u64;
    if size != options.size {
        // SAFETY: nothing else uses the mapping.
        unsafe { handle.close() };
        return Err(error!(
            "there is a pool {name} of {size} bytes already, which a process has left that was killed: \
             give that size, or remove it by `vshmem xen withdraw {name}`"
        ));
    }
    if Pool::open(memory).is_err() {
        let limits = options.limits;
        let uuid = vshmem_transport::random_uuid();
        Pool::format(memory, &Params { limits, uuid, ..Params::default() }).explain_pool(name)?;
        let pool = Pool::open(memory).explain_pool(name)?;
        check(*pool.limits()).explain_pool(name)?;
    }
    // As the owner, this process also frees the entries of dead domains.
    MaintainedPool::join(handle, name, Census::default()).explain_pool(name)
}

/// Opens and joins a pool of another domain, by its name.
pub fn join_attached(name: &str) -> Result<MaintainedPool> {
    let reference = vshmem_transport::resolve(name.as_bytes()).explain_pool(name)?;
    let handle = vshmem_transport::open(&reference).explain_pool(name)?;
    MaintainedPool::join(handle, name, ()).explain_pool(name)
}

/// An extension that adds the pool's name to errors of other crates.
trait ExplainPool<T> {
    fn explain_pool(self, pool: &str) -> Result<T>;
}

impl<T, E: Display> ExplainPool<T> for std::result::Result<T, E> {
    fn explain_pool(self, pool: &str) -> Result<T> {
        self.map_err(|e| error!("the pool {pool}: {e}"))
    }
}
