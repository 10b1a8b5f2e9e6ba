//! Open MPI, whose launcher is ORTE until version 4 and PRRTE since 5.

mod request;

use crate::implementation::{Implementation, Request};
use crate::launcher::{Launcher, Line};
use crate::settings::{harmless, set, Row};
use crate::versions::{Tested, Version};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use vshmem_base::error::Result;

/// Open MPI.
#[derive(Debug)]
pub struct OpenMpi;

/// The name of PRRTE's daemon.
const PRRTE: &str = "prted";

/// True for the daemon of PRRTE, which has other parameters and options than ORTE.
fn is_prrte(daemon: &Path) -> bool {
    daemon.file_name() == Some(PRRTE.as_ref())
}

impl Implementation for OpenMpi {
    fn name(&self) -> &'static str {
        "Open MPI"
    }

    fn option(&self) -> &'static str {
        "openmpi"
    }

    fn package(&self) -> &'static str {
        "openmpi-bin"
    }

    /// With its OpenSHMEM.
    fn tested(&self) -> Tested {
        Tested { first: Version(4, 1, 4), last: (5, 0) }
    }

    fn library_mark(&self) -> &'static str {
        "ompi_version_string"
    }

    fn library_names(&self) -> &'static [&'static str] {
        &["libmpi.so"]
    }

    fn library_files(&self) -> &'static [&'static str] {
        &["libmpi.so.40"]
    }

    fn openshmem_library(&self) -> Option<&'static str> {
        Some("liboshmem.so")
    }

    fn ucx_components(&self, library: &Path) -> Vec<PathBuf> {
        let beside = library.parent().unwrap_or(Path::new("/"));
        let directories = ["openmpi", "openmpi3", "openmpi/lib/openmpi3", "openmpi/lib/openmpi"];
        directories.iter().map(|directory| beside.join(directory).join("mca_pml_ucx.so")).collect()
    }

    fn launchers(&self) -> &'static [&'static str] {
        &["mpiexec.openmpi", "orterun", "mpiexec"]
    }

    fn launcher_beginnings(&self) -> &'static [&'static str] {
        &["mpiexec", "mpirun", "orterun", "oshrun"]
    }

    /// The one up to version 4, and PRRTE's since 5.
    fn daemons(&self) -> &'static [&'static str] {
        &["orted", PRRTE]
    }

    fn misleading_variables(&self) -> &'static [&'static str] {
        &[
            "OMPI_COMM_WORLD",
            "OMPI_MCA_plm",
            "OMPI_MCA_ras",
            "OMPI_UNIVERSE",
            "PMIX_NAMESPACE",
            "PMIX_RANK",
            "PMIX_SERVER",
            "PRTE_MCA_plm",
            "PRTE_MCA_ras",
        ]
    }

    fn rank_variable(&self) -> &'static str {
        "OMPI_COMM_WORLD_RANK"
    }

    fn settings(&self) -> &'static [Row] {
        SETTINGS
    }

    fn settings_past_ucx(&self) -> &'static [&'static str] {
        &["OMPI_MCA_osc", "OMPI_MCA_pml", "OMPI_MCA_spml"]
    }

    /// `--mca pml ob1` is stronger than the variable `OMPI_MCA_pml`.
    fn parameter(&self, arguments: &[OsString], name: &str) -> Option<OsString> {
        let (options, name): (&[&str], _) =
            match (name.strip_prefix("OMPI_MCA_"), name.strip_prefix("PRTE_MCA_")) {
                (Some(name), _) => (&["mca", "gmca", "omca"], name),
                (_, Some(name)) => (&["prtemca"], name),
                _ => return None,
            };
        let is_option = |word: &OsString| {
            let word = word.to_string_lossy();
            word.starts_with('-') && options.contains(&word.trim_start_matches('-'))
        };
        let found = arguments.windows(3).rev().find(|words| is_option(&words[0]) && words[1] == name)?;
        Some(found[2].clone())
    }

    fn command(&self, launcher: &Launcher, line: &Line, rsh: &Path) -> Vec<OsString> {
        let prrte = is_prrte(&launcher.daemon);
        let mut out: Vec<OsString> = vec![launcher.file.clone().into()];
        if prrte {
            out.extend(["--prtemca", "plm_ssh_agent"].map(OsString::from));
            out.push(rsh.into());
            out.extend(["--prtemca", "plm_ssh_no_tree_spawn", "1"].map(OsString::from));
        } else {
            // With a prefix it would set PATH and LD_LIBRARY_PATH in front of its daemon, which the hosts'
            // own environment has. Hosts have slots for the ranks that they are given here, and none for
            // those of MPI_Comm_spawn. PRRTE is told so by a variable, which is in the table of settings.
            out.extend(["--noprefix", "--mca", "plm_rsh_agent"].map(OsString::from));
            out.push(rsh.into());
            out.extend(["--mca", "plm_rsh_no_tree_spawn", "1", "--oversubscribe"].map(OsString::from));
        }
        out.extend(["--host".into(), line.host_list().into()]);
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(&line.preload);
        out.extend(["-x".into(), preload]);
        let mut add = |words: &[&str]| out.extend(words.iter().map(OsString::from));
        if line.root {
            add(&["--allow-run-as-root"]);
        }
        if line.label {
            add(if prrte { &["--output", "tag"] } else { &["--tag-output"] });
        }
        match line.bind_to.as_deref() {
            Some(to) => add(&["--bind-to", to]),
            None if line.unbound => add(&["--bind-to", "none"]),
            None => (),
        }
        out.extend(line.extra.iter().cloned());
        out.extend(["-n".into(), line.ranks().to_string().into()]);
        out.extend(line.program.iter().cloned());
        out
    }

    fn preloads_daemons(&self, launcher: &Launcher) -> bool {
        is_prrte(&launcher.daemon)
    }

    fn read_request(&self, words: &[OsString]) -> Result<Request> {
        request::read(words)
    }
}

const SETTINGS: &[Row] = &[
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
        value: |it| set(if is_prrte(&it.daemon) { "^sm,tcp,ofi,uct" } else { "^openib,vader,tcp,uct,ofi" }),
        reason: "Open MPI's own transports would take messages past UCX, by TCP",
        harm: harmless,
    },
    Row {
        name: "OMPI_MCA_osc",
        value: |it| set(if is_prrte(&it.daemon) { "^rdma" } else { "^ucx,rdma" }),
        reason: "osc/rdma finds no way to another host, one-sided operations by version 4's osc/ucx are not \
                 finished at the end of a fence, and Debian's configuration leaves out the good one of 5",
        harm: |own, _| {
            admits(own, "rdma")
                .then_some("osc/rdma does one-sided operations past UCX, by TCP, or not at all")
        },
    },
    Row {
        name: "OMPI_MCA_mpi_add_procs_cutoff",
        value: |it| (!is_prrte(&it.daemon)).then(|| "1024".into()),
        reason:
            "version 4 does not tell ranks that MPI_Comm_spawn has started in several hosts of each other: \
                 they fail at once if they look for each other in MPI_Init, and else hang",
        harm: harmless,
    },
    Row {
        name: "PRTE_MCA_rmaps_default_mapping_policy",
        value: |it| is_prrte(&it.daemon).then(|| "slot:oversubscribe".into()),
        reason: "hosts have slots for the ranks that they are given, and none for those of MPI_Comm_spawn",
        harm: harmless,
    },
    Row {
        name: "PRTE_MCA_prte_hetero_nodes",
        value: |it| (it.apportioned && is_prrte(&it.daemon)).then(|| "1".into()),
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

/// True if Open MPI takes a component by this list, which names it or does not exclude it.
fn admits(list: &str, component: &str) -> bool {
    let excluded = list.strip_prefix('^');
    excluded.unwrap_or(list).split(',').any(|name| name.trim() == component) != excluded.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::samples::{line, text};

    fn launcher(file: &str, daemon: &str) -> Launcher {
        Launcher { file: file.into(), daemon: daemon.into() }
    }

    #[test]
    fn command_lines_are_those_of_orte_and_prrte() {
        let four = launcher("/usr/bin/mpiexec.openmpi", "/usr/bin/orted");
        let got = text(&OpenMpi.command(&four, &line(), Path::new("/r/rsh")));
        let want =
            "/usr/bin/mpiexec.openmpi --noprefix --mca plm_rsh_agent /r/rsh --mca plm_rsh_no_tree_spawn 1 --oversubscribe \
                    --host vm0:1,vm1:2 -x LD_PRELOAD=/a.so:/b.so -n 3 ./a.out -x";
        assert_eq!(got, want);
        let crowded = Line { unbound: true, root: true, label: true, ..line() };
        let got = text(&OpenMpi.command(&four, &crowded, Path::new("/r/rsh")));
        let want = " --allow-run-as-root --tag-output --bind-to none ";
        assert!(got.contains(want), "{got}");
        let five = launcher("/v/bin/mpiexec", "/v/bin/prted");
        let got = text(&OpenMpi.command(&five, &Line { label: true, ..line() }, Path::new("/r/rsh")));
        let want = "/v/bin/mpiexec --prtemca plm_ssh_agent /r/rsh --prtemca plm_ssh_no_tree_spawn 1 \
                    --host vm0:1,vm1:2 -x LD_PRELOAD=/a.so:/b.so --output tag -n 3 ./a.out -x";
        assert_eq!(got, want);
    }

    #[test]
    fn parameters_of_the_launcher_are_known() {
        let words = ["--mca", "pml", "ob1", "-mca", "btl", "tcp,self", "--prtemca", "x", "1", "--mca", "pml"];
        let words = words.map(OsString::from);
        let of = |name| OpenMpi.parameter(&words, name).map(|value| value.into_string().unwrap());
        assert_eq!(of("OMPI_MCA_pml").as_deref(), Some("ob1"));
        assert_eq!(of("OMPI_MCA_btl").as_deref(), Some("tcp,self"));
        assert_eq!(of("PRTE_MCA_x").as_deref(), Some("1"));
        for name in ["OMPI_MCA_x", "OMPI_MCA_osc", "UCX_TLS", "pml"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
