//! The redo log of a lock: how a slow path changes several words as if at once.
//!
//! A log is `{state, reserved, entries of (offset, value)}`. The owner of the lock writes entries, then their
//! number into `state`: that store commits. Then it applies them and sets `state` back to 0. If it dies
//! before the commit, nothing has happened; if it dies later, the next owner applies all of them again.
//! Applying is storing, so it does no harm twice, and nobody else changes these words meanwhile: they belong
//! to the lock, or carry a bit that keeps fast paths off.

use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::budget::{Budget, LOOK};
use crate::pool::Pool;

/// The log has no room for another entry, memory that it leads to is not in the pool, or the call's budget is
/// spent. The transaction is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The place of a log, and the number of entries that it has room for.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Offset of its state word.
    pub at: u64,
    /// Entries.
    pub entries: u32,
}

impl Log {
    /// Bytes that a log with so many entries takes.
    pub const fn size(entries: u64) -> u64 {
        16 + entries * 16
    }

    /// Finishes what a dead owner had committed, drops what it had not. The caller owns the lock. It is
    /// finished whatever is left of the budget: with half of it done, the lock could never be let go.
    pub(crate) fn recover(&self, pool: &Pool, budget: &Budget) {
        if self.at == 0 || self.entries == 0 {
            // The IPC object is removed.
            return;
        }
        let Some(state) = pool.mem.word(self.at) else {
            return;
        };
        let committed = state.load(Acquire);
        if committed != 0 {
            let entries = committed.min(self.entries.into());
            budget.spend(LOOK * entries);
            let words = self.first_entry().and_then(|at| pool.mem.words(at, entries * 2));
            apply(pool, words.unwrap_or(&[]));
            state.store(0, Release);
        }
    }

    /// Offset of the first entry. A hostile IPC object may say that its log is anywhere.
    fn first_entry(&self) -> Option<u64> {
        self.at.checked_add(16)
    }
}

/// Stores the values of entries.
fn apply(pool: &Pool, entries: &[AtomicU64]) {
    for entry in entries.chunks_exact(2) {
        if let Some(word) = pool.mem.word(entry[0].load(Relaxed)) {
            word.store(entry[1].load(Relaxed), Release);
        }
    }
}

/// Changes being collected. Dropping it without [`Txn::commit`] changes nothing.
pub struct Txn<'a> {
    pool: &'a Pool,
    budget: &'a Budget,
    /// The log's state word.
    state: u64,
    /// Its entries, two words each: none if they are not in the pool.
    entries: &'static [AtomicU64],
    n: u32,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(pool: &'a Pool, budget: &'a Budget, log: Log) -> Txn<'a> {
        let entries = log.first_entry().and_then(|at| pool.mem.words(at, u64::from(log.entries) * 2));
        Txn { pool, budget, state: log.at, entries: entries.unwrap_or(&[]), n: 0 }
    }

    /// The pool.
    pub fn pool(&self) -> &'a Pool {
        self.pool
    }

    /// Entries of the log that are taken.
    #[cfg(test)]
    pub fn entries(&self) -> u32 {
        self.n
    }

    /// Is anything to be changed yet?
    pub fn has_changes(&self) -> bool {
        self.n > 0
    }

    /// The word at `offset` as it will be; `None` outside of the pool, or if the budget is spent.
    pub fn get(&self, offset: u64) -> Option<u64> {
        self.pay().ok()?;
        let word = self.pool.mem.word(offset)?;
        match self.find(offset) {
            Some(i) => Some(self.entries.get(i * 2 + 1)?.load(Relaxed)),
            None => Some(word.load(Acquire)),
        }
    }

    /// Each call looks at a word, twice as a rule, and for it in the log: that is read in order, sixteen
    /// entries in the time of four lines.
    fn pay(&self) -> Result<(), Full> {
        let enough = self.budget.spend(LOOK / 2 + u64::from(self.n / 16));
        enough.then_some(()).ok_or(Full)
    }

    fn taken(&self) -> &'static [AtomicU64] {
        self.entries.get(..self.n as usize * 2).unwrap_or(&[])
    }

    fn find(&self, offset: u64) -> Option<usize> {
        self.taken().chunks_exact(2).rposition(|entry| entry[0].load(Relaxed) == offset)
    }

    /// Changes the word at `offset` to `value` at commit.
    pub fn set(&mut self, offset: u64, value: u64) -> Result<(), Full> {
        self.pay()?;
        self.pool.mem.word(offset).ok_or(Full)?;
        let i = self.find(offset).unwrap_or(self.n as usize);
        self.write(i, offset, value)
    }

    /// Like [`Txn::set`] for a word that this transaction has not changed yet: does not look for it.
    pub fn push(&mut self, offset: u64, value: u64) -> Result<(), Full> {
        self.budget.spend(LOOK).then_some(()).ok_or(Full)?;
        self.pool.mem.word(offset).ok_or(Full)?;
        self.write(self.n as usize, offset, value)
    }

    fn write(&mut self, i: usize, offset: u64, value: u64) -> Result<(), Full> {
        let entry = self.entries.get(i * 2..i * 2 + 2).ok_or(Full)?;
        entry[0].store(offset, Relaxed);
        entry[1].store(value, Relaxed);
        self.n = self.n.max(i as u32 + 1);
        Ok(())
    }

    /// Changes a word given by reference into the pool.
    pub fn put<T>(&mut self, word: &T, value: u64) -> Result<(), Full> {
        debug_assert_eq!(size_of::<T>(), 8);
        self.set(self.pool.offset_of(word), value)
    }

    /// Makes all changes: none if the budget is spent, for what led to them may not have been seen wholly.
    pub fn commit(self) -> Result<(), Full> {
        if self.budget.is_spent() {
            return Err(Full);
        }
        if self.n == 0 {
            return Ok(());
        }
        let state = self.pool.mem.word(self.state).ok_or(Full)?;
        state.store(self.n as u64, Release);
        apply(self.pool, self.taken());
        state.store(0, Release);
        Ok(())
    }
}
