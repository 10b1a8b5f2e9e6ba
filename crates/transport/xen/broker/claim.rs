//! How a process comes to serve a pool of this domain's: one that it makes, or one that a process before it has left. Two never serve
//! the same pool, which the driver sees to.

use super::care::Care;
use super::device::{Claimed, Device};
use super::owner::{Fits, Own};
use crate::error::{Error, Result};
use vshmem_ipc::census::Census;
use vshmem_pool::{Params, Pool};

/// How often a pool is tried again that vanishes while it is taken over.
const TRIES: u32 = 10;

/// Makes a pool, or takes over the one that is there, and takes a process's part in it. It is served as long as the device is open.
pub fn take(how: &Own, fits: Fits, device: &Device, own_id: u16) -> Result<Care> {
    let pool = &how.pool;
    for _ in 0..TRIES {
        let new = device.create(pool, how.size)?;
        match device.claim(pool)? {
            Claimed::Ours => {}
            Claimed::NoPool => continue,
            Claimed::Served => {
                return Err(Error::new(format!(
                    "the pool {pool} is served by another process: choose another name, or end that one"
                )))
            }
        }
        let opened = open(how, fits);
        if opened.is_err() && new {
            device.remove(pool, own_id)?;
        }
        return opened;
    }
    Err(Error::new(format!(
        "the pool {pool} comes and goes: something else makes and removes it"
    )))
}

/// Opens the pool. Makes an empty one of the memory, unless it holds one: a process before this one has made it.
fn open(how: &Own, fits: Fits) -> Result<Care> {
    let name = &how.pool;
    let reference = vshmem_transport::resolve(name.as_bytes()).explain_pool(name)?;
    let handle = vshmem_transport::open(&reference).explain_pool(name)?;
    let memory = handle.mem();
    let there = memory.len() as u64;
    if there != how.size {
        // SAFETY: nobody else knows of the mapping.
        unsafe { handle.close() };
        return Err(Error::new(format!(
            "there is a pool {name} of {there} bytes already, which a process has left that was killed: \
             give that size, or remove it by `vshmem xen withdraw {name}`"
        )));
    }
    if Pool::open(memory).is_err() {
        let limits = how.limits;
        Pool::format(memory, &Params { limits }).explain_pool(name)?;
        let made = Pool::open(memory).explain_pool(name)?;
        fits(*made.limits()).explain_pool(name)?;
    }
    Care::of(handle, name, Census::default())
}

/// Errors of other rooms, with the pool's name.
trait ExplainPool<T> {
    fn explain_pool(self, pool: &str) -> Result<T>;
}

impl<T, E: std::fmt::Display> ExplainPool<T> for std::result::Result<T, E> {
    fn explain_pool(self, pool: &str) -> Result<T> {
        self.map_err(|e| Error::new(format!("the pool {pool}: {e}")))
    }
}
