//! A maintained pool: one that a front end or a broker has joined, with the worker that cleans up in it.

use crate::joined_pool::JoinedPool;
use crate::owned_handle::{OwnedHandle, SharedPool};
use crate::worker::{Task, Worker};
use std::fmt::Display;
use std::sync::Arc;
use vshmem_pool::Pool;
use vshmem_transport::Handle;

/// A pool that this process has joined and cleans up in.
pub struct MaintainedPool {
    joined: SharedPool,
    worker: Worker,
}

impl MaintainedPool {
    /// Joins an open pool, which messages call `name`.
    ///
    /// # Errors
    /// Why that can't be done, without the pool's name.
    pub fn join(handle: Handle, name: &str, task: impl Task + 'static) -> Result<MaintainedPool, String> {
        fn why(error: impl Display) -> String {
            error.to_string()
        }
        // SAFETY: the pool's memory is used through `joined` alone, which owns the handle.
        let handle = unsafe { OwnedHandle::new(handle) };
        let pool = Pool::open(handle.mem()).map_err(why)?;
        let member = handle.join(&pool).map_err(why)?;
        let joined = Arc::new(JoinedPool::for_agent(handle, pool, member));
        joined.across().join();
        let worker = Worker::start(joined.clone(), name, task)
            .map_err(|e| format!("nobody could clean up in it: {e}"))?;
        Ok(MaintainedPool { joined, worker })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.joined.pool
    }

    /// This kernel, in the pool's member table.
    pub fn member(&self) -> u16 {
        self.joined.member
    }

    /// Whether threads can sleep on words of the pool in a driver.
    pub fn has_driver(&self) -> bool {
        self.joined.handle.has_driver()
    }

    /// Leaves the pool and unmaps it, while it can still be used.
    pub fn leave(self) {
        self.worker.leave();
    }

    /// Unmaps a pool that was taken away, of which nothing can be read any more.
    pub fn abandon(self) {
        self.worker.abandon();
    }
}
