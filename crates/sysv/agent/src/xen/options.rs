//! Options of a pool of this domain.

use vshmem_base::error::{error, Result};
use vshmem_pool::Limits;

/// Bytes of the longest message: 64 KiB, with a little to spare.
const LONGEST_MESSAGE: u32 = 65536 + 4096;

/// The default limits, as in the pools of other machines: Linux's, except that a queue holds a few messages
/// of 64 KiB.
pub fn default_limits() -> Limits {
    Limits { msgmax: LONGEST_MESSAGE, msgmnb: 4 * LONGEST_MESSAGE, ..Limits::default() }
}

/// Options of a pool that this domain owns, and its recipients.
#[derive(Debug, Clone)]
pub struct OwnOptions {
    /// The pool's name.
    pub pool: String,
    /// Its size in bytes.
    pub size: u64,
    /// The domains to give it to: ids, or in dom0 names. They need not exist yet.
    pub to: Vec<String>,
    /// Its System V limits, if it is created.
    pub limits: Limits,
}

/// Checks whether a pool with these limits allows what was requested; else says what it does not allow.
pub type CheckLimits<'a> = &'a dyn Fn(Limits) -> std::result::Result<(), String>;

/// Checks that a name can be part of a XenStore path. Pools of other transports may have dots in theirs.
pub(super) fn check_name(pool: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match pool.chars().all(fine) {
        true => Ok(()),
        false => Err(error!(
            "{pool:?} is no name for a pool that XenStore announces: use letters, digits, dashes and underscores"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_xenstore_paths() {
        assert!(check_name("cluster-default_2").is_ok());
        for bad in ["a.b", "a/b", "a b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
