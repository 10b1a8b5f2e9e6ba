//! What `own` and `join` do in a pool as one of its processes: once a second they clean up after processes of their own domain that died,
//! and after domains that are dead. Other domains can't know who lives in this one.

use crate::error::{Error, Result};
use crate::kernel::Below;
use crate::mapped::{Mapped, Shared};
use crate::worker::{Duty, Worker};
use std::sync::Arc;
use vshmem_pool::Pool;
use vshmem_transport::Handle;

/// A pool that this process looks after.
pub struct Care {
    below: Shared,
    worker: Worker,
}

impl Care {
    /// Opens a pool that others have made, by its name.
    pub fn open(name: &str) -> Result<Care> {
        let reference = vshmem_transport::resolve(name.as_bytes()).map_err(|e| failed(name, &e))?;
        let handle = vshmem_transport::open(&reference).map_err(|e| failed(name, &e))?;
        Care::of(handle, name, ())
    }

    /// Looks after a pool that is open, as a process of this domain; with a [`Census`](vshmem_ipc::census::Census), which is the owner's,
    /// the entries of dead domains that nothing names any more become free for others.
    pub fn of(handle: Handle, name: &str, duty: impl Duty + 'static) -> Result<Care> {
        // SAFETY: the pool's memory is used through `below`, which has this, alone.
        let handle = unsafe { Mapped::new(handle) };
        let pool = Pool::open(handle.mem()).map_err(|e| failed(name, &e))?;
        let member = handle.join(&pool).map_err(|e| failed(name, &e))?;
        let below = Arc::new(Below::for_a_loop(handle, pool, member));
        below.across().join();
        let worker = Worker::start(below.clone(), name, duty).map_err(|e| failed(name, &e))?;
        Ok(Care { below, worker })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.below.pool
    }

    /// Gives the process slot back, and unmaps the pool: to be done before it is taken away.
    pub fn leave(self) {
        self.worker.leave();
    }

    /// Unmaps a pool that was taken away, of which nothing can be read any more.
    pub fn forget(self) {
        self.worker.forget();
    }
}

/// An error of another room, with the pool's name.
fn failed(pool: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(format!("the pool {pool}: {why}"))
}
