//! MPICH, whose launcher is Hydra.

use crate::implementation::Implementation;
use crate::launcher::{Launcher, Line};
use crate::settings::{harmless, set, Row};
use crate::versions::{Tested, Version};
use std::ffi::OsString;
use std::path::Path;

/// MPICH.
#[derive(Debug)]
pub struct Mpich;

const NETMOD: &str = "MPIR_CVAR_CH4_NETMOD";

impl Implementation for Mpich {
    fn name(&self) -> &'static str {
        "MPICH"
    }

    fn option(&self) -> &'static str {
        "mpich"
    }

    fn package(&self) -> &'static str {
        "mpich"
    }

    fn tested(&self) -> Tested {
        Tested { first: Version(4, 0, 2), last: (5, 0) }
    }

    fn library_mark(&self) -> &'static str {
        "MPICH Version:"
    }

    fn library_names(&self) -> &'static [&'static str] {
        &["libmpich.so", "libmpi.so", "libmpi_abi.so"]
    }

    fn library_files(&self) -> &'static [&'static str] {
        &["libmpich.so.12", "libmpi.so.12"]
    }

    fn launchers(&self) -> &'static [&'static str] {
        &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"]
    }

    fn launcher_mark(&self) -> Option<&'static str> {
        Some("HYDRA build")
    }

    fn daemons(&self) -> &'static [&'static str] {
        &["hydra_pmi_proxy"]
    }

    fn misleading_variables(&self) -> &'static [&'static str] {
        &["HYDRA_", "PMI_"]
    }

    fn rank_variable(&self) -> &'static str {
        "PMI_RANK"
    }

    fn settings(&self) -> &'static [Row] {
        SETTINGS
    }

    fn settings_past_ucx(&self) -> &'static [&'static str] {
        &[NETMOD]
    }

    fn passes_within_hosts(&self) -> bool {
        true
    }

    fn command(&self, launcher: &Launcher, line: &Line, rsh: &Path) -> Vec<OsString> {
        let mut out: Vec<OsString> = vec![launcher.file.clone().into()];
        out.extend(["-launcher", "ssh", "-launcher-exec"].map(OsString::from));
        out.push(rsh.into());
        out.extend(["-hosts".into(), line.host_list().into()]);
        // Else all ranks have the launcher's environment, and so its host's pool and processors. Not always,
        // since MPICH 5 then fails in MPI_Comm_spawn.
        out.extend(line.own_environments.then(|| "-genvnone".into()));
        out.extend(["-genv", "LD_PRELOAD"].map(OsString::from));
        out.push(line.preload.clone());
        if line.label {
            out.extend(["-prepend-pattern", "[%r] "].map(OsString::from));
        }
        // Hydra binds no rank unless it is asked to.
        if let Some(to) = line.bind_to.as_deref() {
            out.extend(["-bind-to", to].map(OsString::from));
        }
        out.extend(line.extra.iter().cloned());
        out.extend(["-n".into(), line.ranks().to_string().into()]);
        out.extend(line.program.iter().cloned());
        out
    }
}

const SETTINGS: &[Row] = &[
    Row {
        name: NETMOD,
        value: |_| set("ucx"),
        reason: "an MPICH that has both UCX and libfabric must take UCX",
        harm: |own, _| (own != "ucx").then_some("ranks don't talk by UCX, and so not through the pool"),
    },
    Row {
        name: "HWLOC_XMLFILE",
        value: |_| set(""),
        reason:
            "where it is not set, MPICH's daemon from version 4.2 on writes a host's topology to a file in \
                 /tmp, which stays if the daemon is killed",
        harm: harmless,
    },
    Row {
        name: "HWLOC_LIBXML",
        value: |_| set("0"),
        reason: "hwloc says nothing of the empty name of that file if it reads XML by itself",
        harm: harmless,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::samples::{line, text, words};

    #[test]
    fn the_command_line_is_hydra_s() {
        let launcher =
            Launcher { file: "/usr/bin/mpiexec.mpich".into(), daemon: "/usr/bin/hydra_pmi_proxy".into() };
        let got = text(&Mpich.command(&launcher, &line(), Path::new("/r/rsh")));
        let want = "/usr/bin/mpiexec.mpich -launcher ssh -launcher-exec /r/rsh -hosts vm0:1,vm1:2 \
                    -genv LD_PRELOAD /a.so:/b.so -n 3 ./a.out -x";
        assert_eq!(got, want);
        let more = Line {
            label: true,
            bind_to: Some("core".into()),
            extra: words(&["-print-all-exitcodes"]),
            ..line()
        };
        let got = text(&Mpich.command(&launcher, &more, Path::new("/r/rsh")));
        assert!(got.contains(" -prepend-pattern [%r] ") && got.contains(" -bind-to core "), "{got}");
        assert!(got.contains(" -print-all-exitcodes -n 3 ./a.out"), "{got}");
        let got =
            text(&Mpich.command(&launcher, &Line { own_environments: true, ..line() }, Path::new("/r/rsh")));
        assert!(got.contains(" -genvnone -genv LD_PRELOAD "), "{got}");
    }
}
