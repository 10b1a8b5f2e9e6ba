//! The table of settings.

use super::row::{Row, Situation};
use crate::implementation::Kind;

/// A value that does not depend on anything.
fn set(value: &str) -> Option<String> {
    Some(value.into())
}

/// Whether UCX takes it for no.
fn is_off(own: &str) -> bool {
    matches!(own, "n" | "no" | "off" | "0")
}

/// Whether Open MPI takes a component for one that this list names, or does not exclude.
fn admits(list: &str, component: &str) -> bool {
    let excluded = list.strip_prefix('^');
    excluded.unwrap_or(list).split(',').any(|name| name.trim() == component) != excluded.is_some()
}

/// No value of a user's own does harm.
fn harmless(_: &str, _: &Situation) -> Option<&'static str> {
    None
}

/// Everything that is set, for every MPI.
pub const TABLE: &[Row] = &[
    Row {
        name: "UCX_TLS",
        value: |it| Some(transports(it).join(",")),
        reason:
            "UCX's transport sysv is System V shared memory, which is the pool; without tcp in the list no \
                 message can go by it; cma, if it is there, copies long messages once, and only between ranks \
                 of one host; ud, if it is there, is verbs, and unlike rc never takes a part of what ranks that \
                 share a pool send each other",
        harm: harm_of_transports,
    },
    Row {
        name: "UCX_MEM_MMAP_HOOK_MODE",
        value: |_| set("none"),
        reason: "UCX's memory hooks replace shmat and shmdt by system calls of their own, past the library",
        harm: |own, _| {
            (own != "none").then_some("UCX attaches segments past the library, and its ranks fail")
        },
    },
    Row {
        name: "UCX_ADAPTIVE_PROGRESS",
        value: |_| set("n"),
        reason: "else a rank that has sent nothing yet sleeps until a Unix socket wakes it, which no other \
                 machine reaches",
        harm: |own, _| {
            (!is_off(own)).then_some("ranks that have sent nothing yet don't see what others send them")
        },
    },
    Row {
        name: "UCX_TCP_PUT_ENABLE",
        value: |it| it.mixed.then(|| "n".into()),
        reason:
            "else UCX takes TCP for long messages even between ranks that share a pool, since TCP can put \
                 and sysv can't",
        harm: |own, it| {
            (it.mixed && !is_off(own))
                .then_some("long messages go by TCP even between ranks that share a pool")
        },
    },
    Row {
        name: "UCX_LOG_FILE",
        value: |it| it.log.clone(),
        reason: "each rank writes there which transports UCX takes, for --verify-transport",
        harm: |_, it| it.log.is_some().then_some("--verify-transport can't read what UCX writes elsewhere"),
    },
    Row {
        name: "UCX_LOG_LEVEL",
        value: |it| it.log.is_some().then(|| "info".into()),
        reason: "from this level on UCX says which transports it takes, for --verify-transport",
        harm: |own, it| {
            let is_too_low = matches!(own.to_ascii_lowercase().as_str(), "fatal" | "error" | "warn" | "diag");
            (it.log.is_some() && is_too_low).then_some("UCX does not say which transports it takes")
        },
    },
    Row {
        name: "VSHMEM_UCX_YIELD",
        value: |it| match (it.crowded, it.oversubscribed) {
            (true, _) => set("sleep"),
            (false, true) => set("1"),
            _ => None,
        },
        reason:
            "there are more ranks than processors, in a host or below its machines, so a rank that waits has \
                 to leave its processor",
        harm: harmless,
    },
    Row {
        name: "VSHMEM_KEYS",
        value: |_| None,
        reason: "UCX makes its segments without a key (IPC_PRIVATE), so those have to be the library's",
        harm: |own, _| {
            let are_taken = own.split(',').any(|keys| matches!(keys.trim(), "all" | "private"));
            (!are_taken).then_some("UCX's segments are the kernel's, and ranks of other hosts don't find them")
        },
    },
    Row {
        name: "MPIR_CVAR_CH4_NETMOD",
        value: |_| set("ucx"),
        reason: "an MPICH that has both UCX and libfabric must take UCX",
        harm: |own, _| (own != "ucx").then_some("ranks don't talk by UCX, and so not through the pool"),
    },
    Row {
        name: "HWLOC_XMLFILE",
        value: |it| (it.kind == Kind::Mpich).then(String::new),
        reason: "where it is not set, MPICH's daemon from version 4.2 on writes a host's topology to a file in \
                 /tmp, which stays if the daemon is killed",
        harm: harmless,
    },
    Row {
        name: "HWLOC_LIBXML",
        value: |it| (it.kind == Kind::Mpich).then(|| "0".into()),
        reason: "hwloc says nothing of the empty name of that file if it reads XML by itself",
        harm: harmless,
    },
    Row {
        name: "OMPI_MCA_pml",
        value: |_| set("ucx"),
        reason: "messages go by UCX, whose transport sysv is the pool",
        harm: |own, _| (own != "ucx").then_some("ranks don't talk by UCX, and so not through the pool"),
    },
    Row {
        name: "OMPI_MCA_opal_common_ucx_tls",
        value: |_| set("any"),
        reason: "Open MPI takes UCX only for fast networks, which sysv is not in its list of",
        harm: |own, _| (own != "any").then_some("Open MPI may refuse UCX"),
    },
    Row {
        name: "OMPI_MCA_opal_common_ucx_devices",
        value: |_| set("any"),
        reason: "Open MPI takes UCX only where it finds a network card that it knows",
        harm: |own, _| (own != "any").then_some("Open MPI may refuse UCX"),
    },
    Row {
        name: "OMPI_MCA_memory",
        value: |_| set("^patcher"),
        reason:
            "Open MPI's memory hooks replace shmat and shmdt by system calls of their own, past the library",
        harm: |own, _| (own != "^patcher").then_some("Open MPI attaches segments past the library"),
    },
    Row {
        name: "OMPI_MCA_btl",
        value: |it| set(if it.prrte { "^sm,tcp,ofi,uct" } else { "^openib,vader,tcp,uct,ofi" }),
        reason: "Open MPI's own transports would take messages past UCX, by TCP",
        harm: harmless,
    },
    Row {
        name: "OMPI_MCA_osc",
        value: |it| set(if it.prrte { "^rdma" } else { "^ucx,rdma" }),
        reason: "osc/rdma finds no way to another host, one-sided operations by version 4's osc/ucx are not \
                 finished at the end of a fence, and Debian's configuration leaves out the good one of 5",
        harm: |own, _| {
            admits(own, "rdma").then_some("osc/rdma does one-sided operations past UCX, by TCP, or not at all")
        },
    },
    Row {
        name: "OMPI_MCA_mpi_add_procs_cutoff",
        value: |it| (!it.prrte).then(|| "1024".into()),
        reason:
            "version 4 does not tell ranks that MPI_Comm_spawn has started in several hosts of each other: \
                 they fail at once if they look for each other in MPI_Init, and else hang",
        harm: harmless,
    },
    Row {
        name: "PRTE_MCA_rmaps_default_mapping_policy",
        value: |it| it.prrte.then(|| "slot:oversubscribe".into()),
        reason: "hosts have slots for the ranks that they are given, and none for those of MPI_Comm_spawn",
        harm: harmless,
    },
    Row {
        name: "PRTE_MCA_prte_hetero_nodes",
        value: |it| (it.apportioned && it.prrte).then(|| "1".into()),
        reason: "else version 5 binds ranks of each host to the processors that the first has",
        harm: harmless,
    },
    Row {
        name: "OMPI_MCA_spml",
        value: |it| it.shmem.then(|| "ucx".into()),
        reason: "OpenSHMEM's puts and gets go by UCX, whose transport sysv is the pool",
        harm: |own, _| (own != "ucx").then_some("puts and gets don't go through the pool"),
    },
    Row {
        name: "OMPI_MCA_sshmem",
        value: |it| it.shmem.then(|| "ucx".into()),
        reason: "OpenSHMEM's symmetric heaps are segments of UCX's, in the pool",
        harm: |own, _| {
            (!matches!(own, "ucx" | "sysv"))
                .then_some("other ranks can't reach a heap that is not in the pool")
        },
    },
    Row {
        name: "SMA_SYMMETRIC_SIZE",
        value: |it| it.heap.map(|size| format!("{size}M")),
        reason: "all symmetric heaps must have room in the pool, of which they take half at most",
        harm: harmless,
    },
    Row {
        name: "OMPI_MCA_mpi_yield_when_idle",
        value: |it| it.oversubscribed.then(|| "1".into()),
        reason:
            "there are more ranks than processors, so a rank that waits has to leave its processor at once",
        harm: harmless,
    },
];

/// UCX's transports. `posix` is as fast as `sysv`; MPICH has a way of its own for ranks of one host, and a
/// symmetric heap of OpenSHMEM's is in the pool.
fn transports(it: &Situation) -> Vec<&'static str> {
    let within_hosts = it.kind == Kind::OpenMpi && !it.shmem;
    let all = [("sysv", true), ("cma", within_hosts), ("self", true), ("tcp", it.mixed), ("ud", it.verbs)];
    all.into_iter().filter_map(|(name, is_taken)| is_taken.then_some(name)).collect()
}

/// What goes wrong with a user's own list of UCX's transports.
fn harm_of_transports(own: &str, it: &Situation) -> Option<&'static str> {
    // Some are groups that have such in them.
    const BLIND: [&str; 8] = ["all", "sm", "shm", "mm", "knem", "xpmem", "cuda_ipc", "rocm_ipc"];
    // They put and get, as sysv can't, or are groups that have such in them.
    const GREEDY: [&str; 7] = ["rc", "rc_v", "rc_x", "dc", "dc_x", "ib", "srd"];
    let words: Vec<&str> = own.split(',').map(str::trim).collect();
    let has = |name: &str| words.contains(&name);
    if own.starts_with('^') || BLIND.iter().any(|name| has(name)) {
        Some("knem, xpmem, cuda_ipc and rocm_ipc, if they are there, are taken between machines, where they fail")
    } else if !has("sysv") {
        Some("without sysv ranks don't talk through the pool")
    } else if GREEDY.iter().any(|name| has(name)) {
        Some("long messages go by the network card even between ranks that share a pool")
    } else if has("tcp") && !it.mixed {
        Some("with tcp in the list, long messages may go by TCP")
    } else {
        None
    }
}
