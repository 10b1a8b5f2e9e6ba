//! The implementations of MPI, a file for each, and the table of all.

mod mpich;
mod open_mpi;

use crate::implementation::Implementation;

/// All implementations; errors list them in this order.
pub const IMPLEMENTATIONS: &[&dyn Implementation] = &[&mpich::Mpich, &open_mpi::OpenMpi];

/// The implementation with this value of `--mpi`.
pub fn by_option(option: &str) -> Option<&'static dyn Implementation> {
    IMPLEMENTATIONS.iter().copied().find(|it| it.option() == option)
}

/// A list of all implementations: a text on each, with a word between them.
pub fn listed(say: impl Fn(&dyn Implementation) -> String, between: &str) -> String {
    IMPLEMENTATIONS.iter().map(|it| say(*it)).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SHARED;

    #[test]
    fn implementations_are_told_apart() {
        for (place, it) in IMPLEMENTATIONS.iter().enumerate() {
            for other in &IMPLEMENTATIONS[..place] {
                assert!(it.name() != other.name() && it.option() != other.option(), "{it:?}");
                assert!(it.library_mark() != other.library_mark(), "{it:?}");
                assert!(it.launcher_mark() != other.launcher_mark(), "{it:?}");
                assert!(it.daemons().iter().all(|daemon| !other.daemons().contains(daemon)), "{it:?}");
            }
            assert_eq!(by_option(it.option()), Some(*it));
            assert!(!it.launchers().is_empty() && !it.daemons().is_empty() && !it.library_files().is_empty());
        }
        assert_eq!(by_option("MPICH"), None);
    }

    #[test]
    fn variables_are_set_once_and_reasons_are_given() {
        for it in IMPLEMENTATIONS {
            let rows: Vec<_> = SHARED.iter().chain(it.settings()).collect();
            for (place, row) in rows.iter().enumerate() {
                assert!(row.reason.len() > 20, "{}", row.name);
                assert!(rows[..place].iter().all(|other| other.name != row.name), "{}", row.name);
            }
            for name in it.settings_past_ucx() {
                assert!(it.settings().iter().any(|row| row.name == *name), "{name}");
            }
        }
    }
}
