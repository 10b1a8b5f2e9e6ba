//! A mistake in a description, and where it is.

use vshmem_base::error::Error;

/// A mistake in a description.
#[derive(Debug)]
pub struct Fault {
    /// The keys that lead to it, and indices of lists: `machines`, `1`, `cpus`.
    pub at: Vec<String>,
    /// What is wrong.
    pub error: Error,
}

impl Fault {
    /// What these keys say is wrong.
    pub fn new(at: &[&str], what: impl Into<String>) -> Fault {
        Fault::because(at, Error::new(what).code(2))
    }

    /// The same, for this reason.
    pub fn because(at: &[&str], error: Error) -> Fault {
        Fault { at: at.iter().map(|key| (*key).into()).collect(), error }
    }
}
