//! A mistake in a description, and where it is.

use vshmem_base::error::Error;

/// A mistake in a description.
#[derive(Debug)]
pub struct Fault {
    /// The keys that lead to it, and indices of lists: `machines`, `1`, `cpus`.
    pub at: Vec<String>,
    /// The reason.
    pub error: Error,
}

impl Fault {
    /// A mistake at these keys.
    pub fn new(at: &[&str], what: impl Into<String>) -> Fault {
        Fault::because(at, Error::new(what).code(2))
    }

    /// A mistake at these keys, for this reason.
    pub fn because(at: &[&str], error: Error) -> Fault {
        Fault { at: at.iter().map(|key| (*key).into()).collect(), error }
    }
}
