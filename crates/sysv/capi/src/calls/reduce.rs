//! Reductions over the parties of a barrier: each gives an array, and each gets the combined one.
//!
//! Values go through the segment in chunks. Each party combines all parties' values itself, in the order of
//! their seats: so all get the same bits, also of floating-point sums.

use crate::calls::barrier::{Barrier, CHUNK};
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use vshmem_ipc::Errno;

/// The operation by which values are combined, as `vshmem.h` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `VSHM_SUM`.
    Sum,
    /// `VSHM_MIN`.
    Min,
    /// `VSHM_MAX`.
    Max,
}

impl Operation {
    /// The operation of that number.
    pub fn of(number: i32) -> Result<Operation, Errno> {
        match number {
            0 => Ok(Operation::Sum),
            1 => Ok(Operation::Min),
            2 => Ok(Operation::Max),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// A value of eight bytes that can be combined.
pub trait Value: Copy {
    /// The value's bytes as an integer.
    fn to_bits(self) -> u64;
    /// The value of these bytes.
    fn of_bits(bits: u64) -> Self;
    /// Combines this value with another.
    fn combine(self, other: Self, operation: Operation) -> Self;
}

impl Value for i64 {
    fn to_bits(self) -> u64 {
        self as u64
    }
    fn of_bits(bits: u64) -> i64 {
        bits as i64
    }
    fn combine(self, other: i64, operation: Operation) -> i64 {
        match operation {
            Operation::Sum => self.wrapping_add(other),
            Operation::Min => self.min(other),
            Operation::Max => self.max(other),
        }
    }
}

impl Value for f64 {
    fn to_bits(self) -> u64 {
        f64::to_bits(self)
    }
    fn of_bits(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    /// As fmin(3) and fmax(3), a NaN loses against a number.
    fn combine(self, other: f64, operation: Operation) -> f64 {
        match operation {
            Operation::Sum => self + other,
            Operation::Min => self.min(other),
            Operation::Max => self.max(other),
        }
    }
}

/// Replaces each value by the combination of all parties' values at that index. All parties pass as many
/// values and the same operation. After an error the values are undefined.
///
/// # Safety
/// `values` points to `count` values that nobody else uses meanwhile.
pub unsafe fn all<T: Value>(
    barrier: &Barrier,
    values: *mut T,
    count: usize,
    operation: Operation,
    timeout: Option<Duration>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < count {
        let n = CHUNK.min(count - done);
        // SAFETY: inside the caller's array.
        unsafe { step(barrier, values.add(done), n, operation, timeout)? };
        done += n;
    }
    if count == 0 {
        barrier.wait(timeout)?;
    }
    Ok(())
}

/// # Safety
/// As [`all`]; `n` is at most a chunk.
unsafe fn step<T: Value>(
    barrier: &Barrier,
    values: *mut T,
    n: usize,
    operation: Operation,
    timeout: Option<Duration>,
) -> Result<(), Errno> {
    let phase = barrier.phase();
    for (i, cell) in barrier.slot(phase, barrier.seat(), n).iter().enumerate() {
        // SAFETY: inside the caller's array.
        cell.store(unsafe { values.add(i).read_unaligned() }.to_bits(), Relaxed);
    }
    barrier.wait(timeout)?;
    for i in 0..n {
        let of_seat = |seat| T::of_bits(barrier.slot(phase, seat, n)[i].load(Relaxed));
        let combined =
            (1..barrier.parties()).fold(of_seat(0), |sum, seat| sum.combine(of_seat(seat), operation));
        // SAFETY: inside the caller's array.
        unsafe { values.add(i).write_unaligned(combined) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_combine() {
        assert_eq!(3i64.combine(-5, Operation::Sum), -2);
        assert_eq!(3i64.combine(-5, Operation::Min), -5);
        assert_eq!(i64::MAX.combine(1, Operation::Sum), i64::MIN);
        assert_eq!(3.0f64.combine(f64::NAN, Operation::Max), 3.0);
        assert_eq!(f64::of_bits(Value::to_bits(-0.5f64)), -0.5);
        assert!(Operation::of(3).is_err());
    }
}
