//! What only one thread uses.

/// A static of a program that has one thread.
pub struct Single<T>(pub T);

// SAFETY: this program starts no thread.
unsafe impl<T> Sync for Single<T> {}

impl<T> Single<T> {
    /// What is in it.
    pub fn get(&self) -> &T {
        &self.0
    }
}
