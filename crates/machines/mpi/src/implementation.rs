//! An implementation of MPI: everything in which MPICH, Open MPI and others differ.

use crate::launcher::{Launcher, Line};
use crate::settings::Row;
use crate::versions::Tested;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use vshmem_base::error::Result;

/// An implementation of MPI. Each has a file in `implementations`, and its row in the table there.
pub trait Implementation: fmt::Debug + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Its name as the value of `--mpi`.
    fn option(&self) -> &'static str;

    /// Debian's package of its launcher.
    fn package(&self) -> &'static str;

    /// Its versions that were tested.
    fn tested(&self) -> Tested;

    /// Text in its library's file, and in that of no other implementation.
    fn library_mark(&self) -> &'static str;

    /// Names of the libraries by which programs load it, without the version behind them.
    fn library_names(&self) -> &'static [&'static str];

    /// Names of its library's file beside an installed launcher, from the likeliest.
    fn library_files(&self) -> &'static [&'static str];

    /// Name of its library of OpenSHMEM, without the version behind it.
    fn openshmem_library(&self) -> Option<&'static str> {
        None
    }

    /// Files that load UCX if its library does not, beside which it is.
    fn ucx_components(&self, _library: &Path) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Names of its launcher, from the surest.
    fn launchers(&self) -> &'static [&'static str];

    /// Beginnings of all names that its launcher may have.
    fn launcher_beginnings(&self) -> &'static [&'static str] {
        &["mpiexec", "mpirun"]
    }

    /// Text in its launcher's file, and in that of no other implementation. `None`: it is told by having no
    /// other's.
    fn launcher_mark(&self) -> Option<&'static str> {
        None
    }

    /// Names of the daemon that its launcher starts in other hosts.
    fn daemons(&self) -> &'static [&'static str];

    /// Beginnings of the variables by which its launcher would look for hosts elsewhere than where it is
    /// told.
    fn misleading_variables(&self) -> &'static [&'static str];

    /// Variable in which a rank has its number.
    fn rank_variable(&self) -> &'static str;

    /// Variables that it needs besides [`crate::settings::SHARED`].
    fn settings(&self) -> &'static [Row];

    /// Names of those by which it may leave UCX.
    fn settings_past_ucx(&self) -> &'static [&'static str];

    /// True if it passes messages between ranks of one host by itself, past UCX.
    fn passes_within_hosts(&self) -> bool {
        false
    }

    /// Value of a variable of its own that arguments of its launcher set, and that is stronger than the
    /// variable.
    fn parameter(&self, _arguments: &[OsString], _name: &str) -> Option<OsString> {
        None
    }

    /// The launcher's command line, which starts daemons by the remote shell `rsh`. All variables but the
    /// preloaded libraries are in its environment and in that of its daemons.
    fn command(&self, launcher: &Launcher, line: &Line, rsh: &Path) -> Vec<OsString>;

    /// True if the launcher's daemons need the ranks' preloaded libraries, since ranks that `MPI_Comm_spawn`
    /// adds have them from there alone.
    fn preloads_daemons(&self, _launcher: &Launcher) -> bool {
        false
    }

    /// Reads the words that its launcher gives to the remote shell, split as a shell splits them.
    ///
    /// # Errors
    /// They do more than to start a daemon.
    fn read_request(&self, words: &[OsString]) -> Result<Request> {
        Ok(Request { variables: Vec::new(), arguments: words.to_vec() })
    }
}

/// A launcher's request for a command in another host.
pub struct Request {
    /// Variables that are set for it, as `NAME=VALUE`.
    pub variables: Vec<OsString>,
    /// The daemon and its arguments.
    pub arguments: Vec<OsString>,
}

impl fmt::Display for dyn Implementation + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn Implementation + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Implementation + '_ {}
