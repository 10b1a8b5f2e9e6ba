//! The command line of a job's launcher, and the commands that the launcher may start in other hosts.

use crate::implementation::Request;
use crate::installation::Mpi;
use crate::launcher::Line;
use std::ffi::OsString;
use std::path::Path;
use vshmem_base::error::{error, Result};

impl Mpi {
    /// The words of the launcher, which starts its daemons by the remote shell `rsh`.
    pub fn command(&self, line: &Line, rsh: &Path) -> Vec<OsString> {
        self.implementation.command(&self.launcher, line, rsh)
    }

    /// True if the launcher's daemons need the ranks' preloaded libraries, too.
    pub fn preloads_daemons(&self) -> bool {
        self.implementation.preloads_daemons(&self.launcher)
    }

    /// Value of a variable that arguments of the launcher set, more strongly than the variable would.
    pub fn parameter(&self, arguments: &[OsString], name: &str) -> Option<OsString> {
        self.implementation.parameter(arguments, name)
    }

    /// The command that is to be started where a launcher has asked for these words in another host: its
    /// daemon, and nothing else. The words were split as a shell splits them.
    ///
    /// # Errors
    /// They ask for something else.
    pub fn admit(&self, words: &[OsString]) -> Result<Vec<OsString>> {
        let Request { variables, mut arguments } = self.implementation.read_request(words)?;
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
    use crate::implementations::by_option;
    use crate::installation::Library;
    use crate::launcher::samples::{text, words};
    use crate::launcher::Launcher;

    fn mpi(option: &str, file: &str, daemon: &str) -> Mpi {
        let launcher = Launcher { file: file.into(), daemon: daemon.into() };
        let library = Library { file: "/l".into(), version: None };
        let implementation = by_option(option).unwrap();
        Mpi { implementation, library: library.clone(), ucx: library, launcher, shmem: false }
    }

    #[test]
    fn daemons_are_admitted_and_nothing_else() {
        let mpi = mpi("mpich", "/usr/bin/mpiexec.mpich", "/usr/bin/hydra_pmi_proxy");
        let asked = ["/usr/bin/hydra_pmi_proxy", "--control-port", "vm0:41669", "--proxy-id", "1"];
        let got = mpi.admit(&words(&asked)).unwrap();
        assert_eq!(text(&got), "/usr/bin/hydra_pmi_proxy --control-port vm0:41669 --proxy-id 1");
        for wrong in [&["/bin/sh", "-c", "id"][..], &["hydra_pmi_proxy;id"], &[], &["/tmp/hydra_pmi_proxy"]] {
            assert!(mpi.admit(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn open_mpi_s_daemons_are_admitted() {
        let four = mpi("openmpi", "/usr/bin/mpiexec.openmpi", "/usr/bin/orted");
        let uri = "3906.0;tcp://10.77.0.1:43653;tcp6://[fd00::2]:48515";
        let got =
            four.admit(&words(&["orted", "--daemonize", "-mca", "ess", "env", "-mca", "orte_hnp_uri", uri]));
        assert_eq!(text(&got.unwrap()), format!("/usr/bin/orted -mca ess env -mca orte_hnp_uri {uri}"));
        let five = mpi("openmpi", "/v/bin/mpiexec", "/v/bin/prted");
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
