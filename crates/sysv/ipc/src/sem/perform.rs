//! Performing operations, all or nothing.

use super::set::{value, with_value, Set};
use super::{undo, Sembuf, SEMVMX};
use crate::{Ctx, Errno, ProcId};
use vshmem_pool::log::Txn;

/// The process whose operations are performed.
#[derive(Clone, Copy)]
pub struct Actor {
    /// The process.
    pub who: ProcId,
    /// The process's pid word.
    pub pid: u64,
}

/// The outcome of operations.
pub enum Outcome {
    /// The operations can be performed; the transaction holds the changes.
    Possible,
    /// One operation (its index) is in the way.
    Blocked(usize),
    /// The operations never can be performed.
    Failed(Errno),
}

/// Performs operations in a transaction, all or nothing: unless the outcome is `Possible`, drop the
/// transaction.
pub fn perform(
    c: &Ctx,
    set: &Set,
    txn: &mut Txn,
    actor: Actor,
    n: usize,
    sop: impl Fn(usize) -> Sembuf,
) -> Result<Outcome, Errno> {
    for i in 0..n {
        let s = sop(i);
        let num = s.num as u32;
        if num >= set.nsems {
            return Ok(Outcome::Failed(Errno::EFBIG));
        }
        set.freeze(c, num)?;
        let at = set.lo(num);
        let lo = txn.get(at).ok_or(Errno::EINVAL)?;
        let (old, op) = (value(lo), s.op as i32);
        if (op == 0 && old != 0) || old + op < 0 {
            return Ok(if s.nowait() { Outcome::Failed(Errno::EAGAIN) } else { Outcome::Blocked(i) });
        }
        if old + op > SEMVMX {
            return Ok(Outcome::Failed(Errno::ERANGE));
        }
        if s.undo() && op != 0 {
            match undo::adjust(c, set, txn, actor.who, num, -op) {
                Err(Errno::ERANGE) => return Ok(Outcome::Failed(Errno::ERANGE)),
                result => result?,
            }
        }
        txn.set(at, with_value(lo, old + op, actor.pid))?;
    }
    Ok(Outcome::Possible)
}
