//! The outcome of calls on a pool that was taken away, or is damaged.

use crate::pools::caller::{caller, Caller};
use crate::pools::revoked::{is_revoked, refusal};
use crate::pools::{current, open, table};
use crate::process::config::config;
use crate::process::gate;
use crate::thread::errno;
use crate::thread::last_error::explain;
use vshmem_ipc::Errno;

impl Caller {
    /// The error of a call on the caller's pool, or that the pool is gone.
    #[inline(always)]
    pub fn excuse(&self, error: Errno) -> Errno {
        // The driver refuses to map what is going a moment before its memory is gone.
        if self.may_go() && (error == Errno(libc::ENODEV) || is_revoked(self.pool_index())) {
            refusal()
        } else if self.ctx.budget.is_spent() {
            beyond_the_budget()
        } else {
            error
        }
    }

    /// The result of a call on the caller's pool, unless that is revoked by now: then the call may have read
    /// zeros.
    #[inline(always)]
    pub fn unless_revoked<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        if self.may_go() && is_revoked(self.pool_index()) {
            Err(refusal())
        } else {
            result.map_err(|error| self.excuse(error))
        }
    }
}

/// The error of a call that has looked at more of the pool than any honest one leads to.
#[cold]
fn beyond_the_budget() -> Errno {
    explain(format_args!("the pool is damaged: a list in it has no end; vshmem check says where"));
    Errno::EIDRM
}

/// Makes one of the `*get` calls on the current pool: on a new one of the same name, if the one that was open
/// is gone.
pub fn get(call: impl Fn(&Caller) -> Result<i32, Errno>) -> Result<i32, Errno> {
    let seen = current::place();
    let attempt = || caller().and_then(|caller| caller.unless_revoked(call(&caller)));
    match attempt() {
        Err(Errno::EIDRM) if is_revoked(seen) && reopen(seen) => attempt(),
        result => result,
    }
}

/// Opens the pool that the environment names anew, which was open at a place and is gone, if the machine has
/// one of this name again.
#[cold]
#[inline(never)]
fn reopen(gone: usize) -> bool {
    let _errno = errno::ErrnoGuard::now();
    let Ok(gate) = gate::enter() else {
        return false;
    };
    if gone != current::home() {
        // Another thread has done it; or the program has opened this pool itself.
        return current::place() == current::home();
    }
    let Some(index) = table::free_place(&gate) else {
        return false;
    };
    if open::device_at(&gate, index, &config().pool).is_err() {
        refusal();
        return false;
    }
    current::move_home(&gate, index);
    true
}
