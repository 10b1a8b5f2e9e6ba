//! The command line of a job's launcher, and what the launcher may have started in other hosts.

use crate::implementation::{Kind, Mpi};
use crate::line::Line;
use crate::{hydra, openmpi};
use std::ffi::OsString;
use std::path::Path;
use vshmem_base::error::{error, Result};

impl Mpi {
    /// The words of the launcher, which starts its daemons by the remote shell `rsh`.
    pub fn command(&self, line: &Line, rsh: &Path) -> Vec<OsString> {
        match self.kind {
            Kind::Mpich => hydra::command(&self.launcher, line, rsh),
            Kind::OpenMpi => openmpi::command(self, line, rsh),
        }
    }

    /// Whether the launcher's daemons need the ranks' preloaded libraries, since ranks that `MPI_Comm_spawn`
    /// adds have them from there alone.
    pub fn preloads_daemons(&self) -> bool {
        self.has_prrte()
    }

    /// What is to be started where a launcher has asked for these words in another host: its daemon, and
    /// nothing else. The words were split as a shell splits them.
    pub fn admit(&self, words: &[OsString]) -> Result<Vec<OsString>> {
        let (variables, mut arguments) = match self.kind {
            Kind::Mpich => (vec![], words.to_vec()),
            Kind::OpenMpi => openmpi::requested(words)?,
        };
        let daemon = &self.launcher.daemon;
        // Open MPI may name it without a directory.
        let is_daemon =
            |word: &OsString| word == daemon.as_os_str() || Some(word.as_os_str()) == daemon.file_name();
        match arguments.first_mut() {
            Some(first) if is_daemon(first) => *first = daemon.into(),
            _ => return Err(error!("it is not {}", daemon.display())),
        }
        if variables.is_empty() {
            return Ok(arguments);
        }
        let with_variables = std::iter::once("/usr/bin/env".into()).chain(variables);
        Ok(with_variables.chain(arguments).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::implementation::{Launcher, Library};
    use crate::versions::Version;

    fn mpi(kind: Kind, version: Version, bin: &str, launcher: &str, daemon: &str) -> Mpi {
        let bin = Path::new(bin);
        let launcher = Launcher { kind, file: bin.join(launcher), daemon: bin.join(daemon) };
        let library = Library { file: "/l".into(), version: Some(version) };
        Mpi { kind, library: library.clone(), ucx: library, launcher, shmem: false }
    }

    fn mpich() -> Mpi {
        mpi(Kind::Mpich, Version(4, 0, 2), "/usr/bin", "mpiexec.mpich", "hydra_pmi_proxy")
    }

    fn line() -> Line {
        Line {
            hosts: vec![("vm0".into(), 1), ("vm1".into(), 2)],
            preload: "/a.so:/b.so".into(),
            label: false,
            bind_to: None,
            unbound: false,
            own_environments: false,
            root: false,
            extra: vec![],
            program: vec!["./a.out".into(), "-x".into()],
        }
    }

    fn text(words: &[OsString]) -> String {
        words.join(" ".as_ref()).into_string().unwrap()
    }

    fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(Into::into).collect()
    }

    #[test]
    fn hydra_s_command_line() {
        let got = text(&mpich().command(&line(), Path::new("/r/rsh")));
        let want = "/usr/bin/mpiexec.mpich -launcher ssh -launcher-exec /r/rsh -hosts vm0:1,vm1:2 \
                    -genv LD_PRELOAD /a.so:/b.so -n 3 ./a.out -x";
        assert_eq!(got, want);
        let more = Line {
            label: true,
            bind_to: Some("core".into()),
            extra: words(&["-print-all-exitcodes"]),
            ..line()
        };
        let got = text(&mpich().command(&more, Path::new("/r/rsh")));
        assert!(got.contains(" -prepend-pattern [%r] ") && got.contains(" -bind-to core "), "{got}");
        assert!(got.contains(" -print-all-exitcodes -n 3 ./a.out"), "{got}");
        let got = text(&mpich().command(&Line { own_environments: true, ..line() }, Path::new("/r/rsh")));
        assert!(got.contains(" -genvnone -genv LD_PRELOAD "), "{got}");
    }

    #[test]
    fn open_mpi_s_command_lines() {
        let four = mpi(Kind::OpenMpi, Version(4, 1, 4), "/usr/bin", "mpiexec.openmpi", "orted");
        let got = text(&four.command(&line(), Path::new("/r/rsh")));
        let want =
            "/usr/bin/mpiexec.openmpi --noprefix --mca plm_rsh_agent /r/rsh --mca plm_rsh_no_tree_spawn 1 --oversubscribe \
                    --host vm0:1,vm1:2 -x LD_PRELOAD=/a.so:/b.so -n 3 ./a.out -x";
        assert_eq!(got, want);
        let crowded = Line { unbound: true, root: true, label: true, ..line() };
        let got = text(&four.command(&crowded, Path::new("/r/rsh")));
        let want = " --allow-run-as-root --tag-output --bind-to none ";
        assert!(got.contains(want), "{got}");
        let five = mpi(Kind::OpenMpi, Version(5, 0, 11), "/v/bin", "mpiexec", "prted");
        let got = text(&five.command(&Line { label: true, ..line() }, Path::new("/r/rsh")));
        let want = "/v/bin/mpiexec --prtemca plm_ssh_agent /r/rsh --prtemca plm_ssh_no_tree_spawn 1 \
                    --host vm0:1,vm1:2 -x LD_PRELOAD=/a.so:/b.so --output tag -n 3 ./a.out -x";
        assert_eq!(got, want);
    }

    #[test]
    fn daemons_are_admitted_and_nothing_else() {
        let mpi = mpich();
        let asked = ["/usr/bin/hydra_pmi_proxy", "--control-port", "vm0:41669", "--proxy-id", "1"];
        let got = mpi.admit(&words(&asked)).unwrap();
        assert_eq!(text(&got), "/usr/bin/hydra_pmi_proxy --control-port vm0:41669 --proxy-id 1");
        for wrong in [&["/bin/sh", "-c", "id"][..], &["hydra_pmi_proxy;id"], &[], &["/tmp/hydra_pmi_proxy"]] {
            assert!(mpi.admit(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn open_mpi_s_daemons_are_admitted() {
        let four = mpi(Kind::OpenMpi, Version(4, 1, 4), "/usr/bin", "mpiexec.openmpi", "orted");
        let uri = "3906.0;tcp://10.77.0.1:43653;tcp6://[fd00::2]:48515";
        let got =
            four.admit(&words(&["orted", "--daemonize", "-mca", "ess", "env", "-mca", "orte_hnp_uri", uri]));
        assert_eq!(text(&got.unwrap()), format!("/usr/bin/orted -mca ess env -mca orte_hnp_uri {uri}"));
        let five = mpi(Kind::OpenMpi, Version(5, 0, 11), "/v/bin", "mpiexec", "prted");
        let asked = [
            "PRTE_PREFIX=/v;export",
            "PRTE_PREFIX;LD_LIBRARY_PATH=/v/lib:/v/lib:$LD_LIBRARY_PATH;export",
            "LD_LIBRARY_PATH;/v/bin/prted",
            "--daemonize",
            "--prtemca",
            "ess",
            "env",
        ];
        let got = five.admit(&words(&asked)).unwrap();
        assert_eq!(text(&got), "/usr/bin/env PRTE_PREFIX=/v /v/bin/prted --prtemca ess env");
        for wrong in [
            "LD_PRELOAD=/x.so;export LD_PRELOAD;/v/bin/prted",
            "PRTE_PREFIX=/v;/bin/sh;/v/bin/prted",
            "PRTE_PREFIX=$(id);export PRTE_PREFIX;/v/bin/prted",
            "/v/bin/prted;id",
            "/bin/sh",
            "PRTE_PREFIX=/v",
            "",
        ] {
            let split: Vec<&str> = wrong.split(' ').collect();
            assert!(five.admit(&words(&split)).is_err(), "{wrong}");
        }
    }
}
