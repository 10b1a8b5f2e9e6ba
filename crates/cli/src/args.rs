//! Arguments that several commands have, as clap parses and explains them.

use crate::complete::values;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use vshmem_inspect::limits::Limit;

pub const EXIT_CODES: &str = "\
Exit codes:
  0        success
  1        what was asked for does not exist, or could not be removed
  2        a mistake in the command line
  125      Vshmem itself failed: no machine, no hypervisor, no library, ...
  126,127  the command could not be run; there is no such command
  128+N    the command was ended by signal N
  others   exec, run and mpirun pass on the command's own";

/// The cluster that a command is about.
#[derive(Args, Clone)]
pub struct ClusterArg {
    /// The cluster, if there are several
    #[arg(
        long,
        short,
        default_value = "default",
        env = "VSHMEM_CLUSTER",
        value_name = "NAME",
        add = values::clusters()
    )]
    pub cluster: String,
}

/// A command line.
#[derive(Args, Clone)]
pub struct CommandLine {
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        add = values::command()
    )]
    pub command: Vec<OsString>,
}

/// Options of a command: its environment, directory and user.
#[derive(Args, Clone)]
pub struct CommandOptions {
    /// Set an environment variable of the command
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Start in this directory
    #[arg(long, short = 'C', value_name = "DIRECTORY", add = values::directories())]
    pub cwd: Option<PathBuf>,
    /// Run as this user: a name from this host's /etc/passwd, UID or UID:GID; on this kernel, with --local,
    /// only root can
    #[arg(long, short)]
    pub user: Option<String>,
}

/// `NAME=VALUE`.
pub fn limit(text: &str) -> Result<Limit, String> {
    let (name, value) = text.split_once('=').ok_or("a limit is written NAME=VALUE, like semmni=100000")?;
    Limit::new(name, crate::size::parse(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        assert_eq!(limit("msgmnb=1M"), Limit::new("msgmnb", 1 << 20));
        assert!(limit("semmni").unwrap_err().contains("NAME=VALUE"));
        assert!(limit("semmni=many").is_err() && limit("=5").is_err());
    }
}
