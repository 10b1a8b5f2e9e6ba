//! Barriers, and reductions over their parties.

use crate::error::{checked, Error, Result};
use crate::pool::during_a_call;
use crate::sys;
use libc::{c_int, size_t, timespec};
use std::ptr::{null, NonNull};
use std::time::Duration;

/// How values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The sum; integers wrap around.
    Sum = sys::VSHM_SUM as isize,
    /// The least; a NaN loses against a number.
    Min = sys::VSHM_MIN as isize,
    /// The greatest; a NaN loses against a number.
    Max = sys::VSHM_MAX as isize,
}

type Reduce<T> =
    unsafe extern "C" fn(*mut sys::vshm_barrier, *mut T, size_t, c_int, *const timespec) -> c_int;

mod sealed {
    pub trait Sealed: Sized {
        const REDUCE: super::Reduce<Self>;
    }
}

impl sealed::Sealed for f64 {
    const REDUCE: Reduce<f64> = sys::vshm_reduce_double;
}

impl sealed::Sealed for i64 {
    const REDUCE: Reduce<i64> = sys::vshm_reduce_int64;
}

/// What can be reduced: `f64` and `i64`.
pub trait Value: sealed::Sealed {}

impl Value for f64 {}
impl Value for i64 {}

/// One party's place at a barrier for a fixed number of parties: processes or threads, on any of the
/// machines.
///
/// Each party opens the barrier itself. When this is dropped, its seat is given up; the barrier stays in the
/// pool until [`Barrier::remove`].
#[derive(Debug)]
pub struct Barrier {
    handle: NonNull<sys::vshm_barrier>,
}

// SAFETY: the library takes calls from any thread; `&mut self` keeps two from waiting at one place.
unsafe impl Send for Barrier {}
// SAFETY: what `&self` allows only reads what does not change.
unsafe impl Sync for Barrier {}

/// C's time span; one that is too long is as good as the longest.
fn span(timeout: Duration) -> timespec {
    timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

/// What C takes for an optional time span.
fn pointer(span: &Option<timespec>) -> *const timespec {
    span.as_ref().map_or(null(), |span| span)
}

impl Barrier {
    /// Finds or makes the barrier of that key in the current pool, and takes part as one of `parties` (1 to
    /// 480).
    pub fn open(key: i32, parties: u32) -> Result<Barrier> {
        let _call = during_a_call();
        // SAFETY: plain numbers.
        NonNull::new(unsafe { sys::vshm_barrier_open(key, parties) })
            .map(|handle| Barrier { handle })
            .ok_or_else(Error::last)
    }

    /// Removes the barrier of that key from the current pool: new parties find a new one, those at it go on.
    pub fn remove(key: i32) -> Result<()> {
        let _call = during_a_call();
        // SAFETY: a plain number.
        checked(unsafe { sys::vshm_barrier_remove(key) }).map(|_| ())
    }

    /// The caller's number among the parties, from 0 on; unlike any other party's.
    pub fn seat(&self) -> u32 {
        // SAFETY: open.
        unsafe { sys::vshm_barrier_seat(self.handle.as_ptr()) as u32 }
    }

    /// Waits until all parties do; true for one of them. What a party wrote to shared memory before is seen
    /// by all afterwards. After an error ([`TimedOut`], [`PartyDied`]) the caller has not arrived.
    ///
    /// [`TimedOut`]: crate::ErrorKind::TimedOut
    /// [`PartyDied`]: crate::ErrorKind::PartyDied
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let span = timeout.map(span);
        // SAFETY: open, and a time span that lives or null.
        checked(unsafe { sys::vshm_barrier_wait(self.handle.as_ptr(), pointer(&span)) }).map(|last| last == 1)
    }

    /// Replaces each value by the combination of all parties' values at its place. All parties pass as many
    /// values of the same type and the same operation, and get the same bits. The timeout is that of each
    /// 2048 values. After an error the values are any, and the parties may be out of step: drop the barrier,
    /// remove it, and open another.
    pub fn reduce<T: Value>(
        &mut self,
        values: &mut [T],
        operation: Operation,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let span = timeout.map(span);
        // SAFETY: open; an array of that length that nobody else uses, whose bits may be any; a time span or
        // null.
        checked(unsafe {
            T::REDUCE(
                self.handle.as_ptr(),
                values.as_mut_ptr(),
                values.len(),
                operation as c_int,
                pointer(&span),
            )
        })
        .map(|_| ())
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        // SAFETY: open, and not used any more. It keeps its pool open until it is closed.
        unsafe { sys::vshm_barrier_close(self.handle.as_ptr()) };
    }
}
