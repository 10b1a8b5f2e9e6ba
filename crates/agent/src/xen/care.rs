//! What `own` and `join` do in a pool as one of its processes: once a second they clean up after processes of their own domain that died,
//! and after domains that are dead. Other domains can't know who lives in this one.

use super::AT_LEAST;
use crate::attendant::Attendant;
use crate::caretaker::vacate;
use crate::error::{Error, Result};
use crate::kernel::Below;
use std::time::Instant;
use vshmem_ipc::census::Census;
use vshmem_pool::Pool;
use vshmem_port::Handle;

/// A pool that this process looks after.
pub struct Care {
    below: Below<Handle>,
    attendant: Attendant,
    /// When it is to be looked at again.
    due: Instant,
}

impl Care {
    /// Opens a pool that others have made, by its name.
    pub fn open(name: &str) -> Result<Care> {
        let reference = vshmem_port::resolve(name.as_bytes()).map_err(|e| failed(name, &e))?;
        let handle = vshmem_port::open(&reference).map_err(|e| failed(name, &e))?;
        Care::of(handle, name)
    }

    /// Looks after a pool that is open, as a process of this domain.
    pub fn of(handle: Handle, name: &str) -> Result<Care> {
        let joined = Pool::open(handle.mem())
            .map_err(|e| failed(name, &e))
            .and_then(|pool| Ok((pool, handle.join(&pool).map_err(|e| failed(name, &e))?)));
        match joined {
            Ok((pool, member)) => {
                let below = Below::for_a_loop(handle, pool, member);
                below.across().join();
                Ok(Care {
                    below,
                    attendant: Attendant::default(),
                    due: Instant::now(),
                })
            }
            Err(error) => {
                // SAFETY: nobody else knows of the mapping.
                unsafe { handle.close() };
                Err(error)
            }
        }
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.below.pool
    }

    /// Cleans up after the dead, if that was not done within this second. With a count, the entries of dead domains that nothing names
    /// any more become free for others: that is the owner's.
    pub fn tick(&mut self, count: Option<&mut Census>) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        // A little less than the loop's second, lest every other turn is too early.
        self.due = now + AT_LEAST * 9 / 10;
        if let Some(me) = self.attendant.take_part(&self.below) {
            let c = self.below.context(me);
            self.attendant.clean_up(&c);
            if let Some(census) = count {
                vacate(census, &c);
            }
        }
    }

    /// Gives the process slot back, and unmaps the pool: to be done before it is taken away.
    pub fn leave(mut self) {
        self.attendant.leave(&self.below.pool);
        // SAFETY: all that uses the pool's memory is in `self`, which is taken apart here.
        unsafe { self.below.handle.close() };
    }

    /// Unmaps a pool that was taken away, of which nothing can be read any more.
    pub fn forget(mut self) {
        self.attendant.forget();
        // SAFETY: as above.
        unsafe { self.below.handle.close() };
    }
}

/// An error of another room, with the pool's name.
fn failed(pool: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(format!("the pool {pool}: {why}"))
}
