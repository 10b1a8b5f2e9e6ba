//! What is set for a job's ranks and launcher, and why: the whole table is in this file.

mod row;
mod table;

pub use row::{symmetric_heap, Row, Situation};
pub use table::TABLE;

use std::ffi::OsString;

/// A variable as a job has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: OsString,
    /// Why it is set.
    pub reason: &'static str,
    /// The value is the user's own.
    pub own: bool,
    /// What goes wrong with it.
    pub harm: Option<&'static str>,
}

/// All that a job needs. What the user has set stays as it is: `own` is asked for it.
pub fn of(situation: &Situation, own: impl Fn(&str) -> Option<OsString>) -> Vec<Setting> {
    let setting = |row: &Row| {
        let (name, reason) = (row.name, row.reason);
        if let Some(value) = own(name) {
            let harm = (row.harm)(&value.to_string_lossy(), situation);
            return Some(Setting { name, value, reason, own: true, harm });
        }
        let value = (row.value)(situation)?.into();
        Some(Setting { name, value, reason, own: false, harm: None })
    };
    TABLE.iter().filter(|row| row.concerns(situation)).filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::implementation::Kind;

    const MPICH: Situation = Situation {
        kind: Kind::Mpich,
        prrte: false,
        shmem: false,
        mixed: false,
        verbs: false,
        oversubscribed: false,
        crowded: false,
        apportioned: false,
        heap: None,
        log: None,
    };
    const OPEN_MPI: Situation = Situation { kind: Kind::OpenMpi, ..MPICH };

    fn value(situation: &Situation, name: &str) -> Option<String> {
        let all = of(situation, |_| None);
        let found = all.into_iter().find(|setting| setting.name == name)?;
        found.value.into_string().ok()
    }

    fn harm(situation: &Situation, name: &str, own: &str) -> Option<&'static str> {
        let all = of(situation, |asked| (asked == name).then(|| own.into()));
        let found = all.into_iter().find(|setting| setting.name == name).expect("it is in the table");
        assert!(found.own && found.value == own);
        found.harm
    }

    #[test]
    fn names_are_unique_and_reasons_are_given() {
        for (index, row) in TABLE.iter().enumerate() {
            assert!(row.reason.len() > 20, "{}", row.name);
            assert!(TABLE[..index].iter().all(|other| other.name != row.name), "{}", row.name);
        }
    }

    #[test]
    fn tcp_is_used_only_where_ranks_share_no_pool() {
        assert_eq!(value(&MPICH, "UCX_TLS").as_deref(), Some("sysv,self"));
        assert_eq!(value(&OPEN_MPI, "UCX_TLS").as_deref(), Some("sysv,cma,self"));
        let shmem = Situation { shmem: true, ..OPEN_MPI };
        assert_eq!(value(&shmem, "UCX_TLS").as_deref(), Some("sysv,self"));
        let mixed = Situation { mixed: true, ..OPEN_MPI };
        assert_eq!(value(&mixed, "UCX_TLS").as_deref(), Some("sysv,cma,self,tcp"));
        let mixed = Situation { mixed: true, ..MPICH };
        assert_eq!(value(&mixed, "UCX_TLS").as_deref(), Some("sysv,self,tcp"));
        let verbs = Situation { verbs: true, ..mixed.clone() };
        assert_eq!(value(&verbs, "UCX_TLS").as_deref(), Some("sysv,self,tcp,ud"));
        assert!(harm(&mixed, "UCX_TLS", "sysv,self,rc").is_some());
        assert!(harm(&mixed, "UCX_TLS", "sysv,self,tcp,ud").is_none());
        assert_eq!(value(&mixed, "UCX_TCP_PUT_ENABLE").as_deref(), Some("n"));
        assert_eq!(value(&MPICH, "UCX_TCP_PUT_ENABLE"), None);
        assert!(harm(&mixed, "UCX_TCP_PUT_ENABLE", "y").is_some());
        assert!(harm(&MPICH, "UCX_TCP_PUT_ENABLE", "y").is_none());
    }

    #[test]
    fn each_mpi_has_its_own() {
        assert_eq!(value(&MPICH, "OMPI_MCA_pml"), None);
        assert_eq!(value(&OPEN_MPI, "OMPI_MCA_pml").as_deref(), Some("ucx"));
        assert_eq!(value(&OPEN_MPI, "OMPI_MCA_mpi_yield_when_idle"), None);
        let shared = Situation { oversubscribed: true, ..OPEN_MPI };
        assert_eq!(value(&shared, "OMPI_MCA_mpi_yield_when_idle").as_deref(), Some("1"));
        assert_eq!(value(&shared, "VSHMEM_UCX_YIELD").as_deref(), Some("1"));
        let below = Situation { crowded: true, ..OPEN_MPI };
        assert_eq!(value(&below, "VSHMEM_UCX_YIELD").as_deref(), Some("sleep"));
        assert_eq!(value(&below, "OMPI_MCA_mpi_yield_when_idle"), None);
        assert_eq!(value(&OPEN_MPI, "VSHMEM_UCX_YIELD"), None);
        assert_eq!(value(&MPICH, "MPIR_CVAR_CH4_NETMOD").as_deref(), Some("ucx"));
        assert_eq!(value(&OPEN_MPI, "MPIR_CVAR_CH4_NETMOD"), None);
        assert_eq!(value(&OPEN_MPI, "OMPI_MCA_mpi_add_procs_cutoff").as_deref(), Some("1024"));
        assert_eq!(value(&MPICH, "HWLOC_XMLFILE").as_deref(), Some(""));
        assert_eq!(value(&OPEN_MPI, "HWLOC_XMLFILE"), None);
        assert_eq!(value(&OPEN_MPI, "OMPI_MCA_osc").as_deref(), Some("^ucx,rdma"));
        let spawns = "PRTE_MCA_rmaps_default_mapping_policy";
        let open_mpi_5 = Situation { prrte: true, ..OPEN_MPI };
        assert_eq!(value(&open_mpi_5, "OMPI_MCA_osc").as_deref(), Some("^rdma"));
        assert_eq!(value(&open_mpi_5, spawns).as_deref(), Some("slot:oversubscribe"));
        let apportioned = Situation { apportioned: true, ..open_mpi_5.clone() };
        assert_eq!(value(&apportioned, "PRTE_MCA_prte_hetero_nodes").as_deref(), Some("1"));
        assert_eq!(value(&open_mpi_5, "PRTE_MCA_prte_hetero_nodes"), None);
        assert!([MPICH, OPEN_MPI].iter().all(|it| value(it, spawns).is_none()));
    }

    #[test]
    fn openshmem_has_its_own() {
        assert_eq!(value(&OPEN_MPI, "OMPI_MCA_sshmem"), None);
        let shmem = Situation { shmem: true, heap: Some(124), ..OPEN_MPI };
        assert_eq!(value(&shmem, "OMPI_MCA_sshmem").as_deref(), Some("ucx"));
        assert_eq!(value(&shmem, "SMA_SYMMETRIC_SIZE").as_deref(), Some("124M"));
    }

    #[test]
    fn ucx_logs_where_somebody_reads() {
        assert_eq!(value(&MPICH, "UCX_LOG_LEVEL"), None);
        let read = Situation { log: Some("/tmp/x.%p".into()), ..MPICH };
        assert_eq!(value(&read, "UCX_LOG_FILE").as_deref(), Some("/tmp/x.%p"));
        assert_eq!(value(&read, "UCX_LOG_LEVEL").as_deref(), Some("info"));
        assert!(harm(&read, "UCX_LOG_LEVEL", "WARN").is_some());
        assert!(harm(&read, "UCX_LOG_LEVEL", "debug").is_none());
        assert!(harm(&read, "UCX_LOG_FILE", "/x").is_some());
        assert!(harm(&MPICH, "UCX_LOG_FILE", "/x").is_none());
    }

    #[test]
    fn own_values_win_and_harm_is_told() {
        assert_eq!(harm(&MPICH, "UCX_TLS", "sysv,self"), None);
        assert_eq!(harm(&MPICH, "UCX_TLS", "sysv,posix,cma,self"), None);
        let mixed = Situation { mixed: true, ..MPICH };
        assert_eq!(harm(&mixed, "UCX_TLS", "sysv,self,tcp"), None);
        for (own, word) in [
            ("all", "xpmem"),
            ("^tcp", "xpmem"),
            ("sm,self", "xpmem"),
            ("sysv,knem", "xpmem"),
            ("posix,cma,self", "sysv"),
            ("tcp,self", "sysv"),
            ("sysv,self,tcp", "TCP"),
        ] {
            let harm = harm(&MPICH, "UCX_TLS", own).unwrap_or_else(|| panic!("{own} does harm"));
            assert!(harm.contains(word), "{own}: {harm}");
        }
        assert!(harm(&MPICH, "UCX_MEM_MMAP_HOOK_MODE", "bistro").is_some());
        assert!(harm(&MPICH, "UCX_MEM_MMAP_HOOK_MODE", "none").is_none());
        assert!(harm(&OPEN_MPI, "OMPI_MCA_pml", "ob1").is_some());
        for (own, does_harm) in [("none", true), ("0x1-0x9", true), ("private", false), ("all", false)] {
            assert_eq!(harm(&MPICH, "VSHMEM_KEYS", own).is_some(), does_harm, "{own}");
        }
        assert_eq!(value(&MPICH, "VSHMEM_KEYS"), None);
        for (own, is_harm) in [("rdma", true), ("^ucx", true), ("^ucx,rdma", false), ("ucx", false)] {
            assert_eq!(harm(&OPEN_MPI, "OMPI_MCA_osc", own).is_some(), is_harm, "{own}");
        }
    }
}
