use super::*;
use crate::implementations::by_option;
use crate::installation::Library;
use crate::launcher::Launcher;

/// A job, whose settings are looked at.
struct Job(Mpi, Situation);

fn job(option: &str, daemon: &str) -> Job {
    let implementation = by_option(option).unwrap();
    let launcher = Launcher { file: "/m".into(), daemon: daemon.into() };
    let library = Library { file: "/l".into(), version: None };
    let mpi = Mpi { implementation, library: library.clone(), ucx: library, launcher, shmem: false };
    let situation = mpi.situation(false, false);
    Job(mpi, situation)
}

fn mpich() -> Job {
    job("mpich", "/bin/hydra_pmi_proxy")
}

fn open_mpi() -> Job {
    job("openmpi", "/bin/orted")
}

fn open_mpi_5() -> Job {
    job("openmpi", "/bin/prted")
}

impl Job {
    fn with(&self, change: impl FnOnce(&mut Situation)) -> Job {
        let mut situation = self.1.clone();
        change(&mut situation);
        Job(self.0.clone(), situation)
    }

    fn value(&self, name: &str) -> Option<String> {
        let all = self.0.settings(&self.1, |_| None);
        let found = all.into_iter().find(|setting| setting.name == name)?;
        found.value.into_string().ok()
    }

    fn harm(&self, name: &str, own: &str) -> Option<&'static str> {
        let all = self.0.settings(&self.1, |asked| (asked == name).then(|| own.into()));
        let found = all.into_iter().find(|setting| setting.name == name).expect("it is in a table");
        assert!(found.own && found.value == own);
        found.harm
    }
}

#[test]
fn tcp_is_used_only_where_ranks_share_no_pool() {
    assert_eq!(mpich().value("UCX_TLS").as_deref(), Some("sysv,self"));
    assert_eq!(open_mpi().value("UCX_TLS").as_deref(), Some("sysv,cma,self"));
    let shmem = open_mpi().with(|it| it.shmem = true);
    assert_eq!(shmem.value("UCX_TLS").as_deref(), Some("sysv,self"));
    let mixed = open_mpi().with(|it| it.mixed = true);
    assert_eq!(mixed.value("UCX_TLS").as_deref(), Some("sysv,cma,self,tcp"));
    let mixed = mpich().with(|it| it.mixed = true);
    assert_eq!(mixed.value("UCX_TLS").as_deref(), Some("sysv,self,tcp"));
    let verbs = mixed.with(|it| it.verbs = true);
    assert_eq!(verbs.value("UCX_TLS").as_deref(), Some("sysv,self,tcp,ud"));
    assert!(mixed.harm("UCX_TLS", "sysv,self,rc").is_some());
    assert!(mixed.harm("UCX_TLS", "sysv,self,tcp,ud").is_none());
    assert_eq!(mixed.value("UCX_TCP_PUT_ENABLE").as_deref(), Some("n"));
    assert_eq!(mpich().value("UCX_TCP_PUT_ENABLE"), None);
    assert!(mixed.harm("UCX_TCP_PUT_ENABLE", "y").is_some());
    assert!(mpich().harm("UCX_TCP_PUT_ENABLE", "y").is_none());
}

#[test]
fn each_mpi_has_its_own() {
    assert_eq!(mpich().value("OMPI_MCA_pml"), None);
    assert_eq!(open_mpi().value("OMPI_MCA_pml").as_deref(), Some("ucx"));
    assert_eq!(open_mpi().value("OMPI_MCA_mpi_yield_when_idle"), None);
    let shared = open_mpi().with(|it| it.oversubscribed = true);
    assert_eq!(shared.value("OMPI_MCA_mpi_yield_when_idle").as_deref(), Some("1"));
    assert_eq!(shared.value("VSHMEM_UCX_YIELD").as_deref(), Some("1"));
    let below = open_mpi().with(|it| it.crowded = true);
    assert_eq!(below.value("VSHMEM_UCX_YIELD").as_deref(), Some("sleep"));
    assert_eq!(below.value("OMPI_MCA_mpi_yield_when_idle"), None);
    assert_eq!(open_mpi().value("VSHMEM_UCX_YIELD"), None);
    assert_eq!(mpich().value("MPIR_CVAR_CH4_NETMOD").as_deref(), Some("ucx"));
    assert_eq!(open_mpi().value("MPIR_CVAR_CH4_NETMOD"), None);
    assert_eq!(open_mpi().value("OMPI_MCA_mpi_add_procs_cutoff").as_deref(), Some("1024"));
    assert_eq!(mpich().value("HWLOC_XMLFILE").as_deref(), Some(""));
    assert_eq!(open_mpi().value("HWLOC_XMLFILE"), None);
    assert_eq!(open_mpi().value("OMPI_MCA_osc").as_deref(), Some("^ucx,rdma"));
    let spawns = "PRTE_MCA_rmaps_default_mapping_policy";
    assert_eq!(open_mpi_5().value("OMPI_MCA_osc").as_deref(), Some("^rdma"));
    assert_eq!(open_mpi_5().value(spawns).as_deref(), Some("slot:oversubscribe"));
    let apportioned = open_mpi_5().with(|it| it.apportioned = true);
    assert_eq!(apportioned.value("PRTE_MCA_prte_hetero_nodes").as_deref(), Some("1"));
    assert_eq!(open_mpi_5().value("PRTE_MCA_prte_hetero_nodes"), None);
    assert!([mpich(), open_mpi()].iter().all(|it| it.value(spawns).is_none()));
}

#[test]
fn openshmem_has_its_own() {
    assert_eq!(open_mpi().value("OMPI_MCA_sshmem"), None);
    let shmem = open_mpi().with(|it| {
        it.shmem = true;
        it.heap = Some(124);
    });
    assert_eq!(shmem.value("OMPI_MCA_sshmem").as_deref(), Some("ucx"));
    assert_eq!(shmem.value("SMA_SYMMETRIC_SIZE").as_deref(), Some("124M"));
}

#[test]
fn ucx_logs_where_somebody_reads() {
    assert_eq!(mpich().value("UCX_LOG_LEVEL"), None);
    let read = mpich().with(|it| it.log = Some("/tmp/x.%p".into()));
    assert_eq!(read.value("UCX_LOG_FILE").as_deref(), Some("/tmp/x.%p"));
    assert_eq!(read.value("UCX_LOG_LEVEL").as_deref(), Some("info"));
    assert!(read.harm("UCX_LOG_LEVEL", "WARN").is_some());
    assert!(read.harm("UCX_LOG_LEVEL", "debug").is_none());
    assert!(read.harm("UCX_LOG_FILE", "/x").is_some());
    assert!(mpich().harm("UCX_LOG_FILE", "/x").is_none());
}

#[test]
fn own_values_win_and_harm_is_told() {
    assert_eq!(mpich().harm("UCX_TLS", "sysv,self"), None);
    assert_eq!(mpich().harm("UCX_TLS", "sysv,posix,cma,self"), None);
    let mixed = mpich().with(|it| it.mixed = true);
    assert_eq!(mixed.harm("UCX_TLS", "sysv,self,tcp"), None);
    for (own, word) in [
        ("all", "xpmem"),
        ("^tcp", "xpmem"),
        ("sm,self", "xpmem"),
        ("sysv,knem", "xpmem"),
        ("posix,cma,self", "sysv"),
        ("tcp,self", "sysv"),
        ("sysv,self,tcp", "TCP"),
    ] {
        let harm = mpich().harm("UCX_TLS", own).unwrap_or_else(|| panic!("{own} does harm"));
        assert!(harm.contains(word), "{own}: {harm}");
    }
    assert!(mpich().harm("UCX_MEM_MMAP_HOOK_MODE", "bistro").is_some());
    assert!(mpich().harm("UCX_MEM_MMAP_HOOK_MODE", "none").is_none());
    assert!(open_mpi().harm("OMPI_MCA_pml", "ob1").is_some());
    for (own, does_harm) in [("none", true), ("0x1-0x9", true), ("private", false), ("all", false)] {
        assert_eq!(mpich().harm("VSHMEM_KEYS", own).is_some(), does_harm, "{own}");
    }
    assert_eq!(mpich().value("VSHMEM_KEYS"), None);
    for (own, is_harm) in [("rdma", true), ("^ucx", true), ("^ucx,rdma", false), ("ucx", false)] {
        assert_eq!(open_mpi().harm("OMPI_MCA_osc", own).is_some(), is_harm, "{own}");
    }
}
