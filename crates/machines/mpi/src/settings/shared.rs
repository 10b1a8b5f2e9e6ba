//! The variables that are set for every MPI.

use super::row::{harmless, set, Row, Situation};

/// True for a value that UCX takes for no.
fn is_off(own: &str) -> bool {
    matches!(own, "n" | "no" | "off" | "0")
}

/// The variables that are set for every MPI, before those of its own.
pub const SHARED: &[Row] = &[
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
];

/// UCX's transports. `posix` is as fast as `sysv`; MPICH has a way of its own for ranks of one host, and a
/// symmetric heap of OpenSHMEM's is in the pool.
fn transports(it: &Situation) -> Vec<&'static str> {
    let within_hosts = !it.passes_within_hosts && !it.shmem;
    let all = [("sysv", true), ("cma", within_hosts), ("self", true), ("tcp", it.mixed), ("ud", it.verbs)];
    all.into_iter().filter_map(|(name, is_taken)| is_taken.then_some(name)).collect()
}

/// The harm that a user's own list of UCX's transports does.
fn harm_of_transports(own: &str, it: &Situation) -> Option<&'static str> {
    // Transports that take ranks of other machines for those of their own, and groups that have such.
    const BLIND: [&str; 8] = ["all", "sm", "shm", "mm", "knem", "xpmem", "cuda_ipc", "rocm_ipc"];
    // Transports that put and get, as sysv can't, and groups that have such.
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
