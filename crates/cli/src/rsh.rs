//! The command `vshmem rsh`: the remote shell of an MPI's launcher under `vshmem mpirun`, its relay, and the
//! agent that runs commands where a command prefix reaches. None of them is for users.

use clap::Args;
use std::ffi::OsString;
use vshmem_base::Result;
use vshmem_session::commands::local;
use vshmem_session::remote_shell::{self, relay};

#[derive(Args)]
pub struct Rsh {
    /// Pass requests between remote shells and the host
    #[arg(long, exclusive = true)]
    pub relay: bool,
    /// Run commands for the host
    #[arg(long, exclusive = true)]
    pub agent: bool,
    #[command(flatten)]
    pub ssh: SshOptions,
    /// The host to run the command in
    #[arg(required_unless_present_any = ["relay", "agent"])]
    pub host: Option<String>,
    /// The command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Options of ssh that launchers and their users pass; they make no difference here.
#[derive(Args)]
pub struct SshOptions {
    #[arg(short = 'x', hide = true)]
    no_x11: bool,
    #[arg(short = 'n', hide = true)]
    no_input: bool,
    #[arg(short = 'q', hide = true)]
    quiet: bool,
    #[arg(short = 'T', hide = true)]
    no_terminal: bool,
    #[arg(short = 'p', hide = true)]
    port: Option<String>,
    #[arg(short = 'o', hide = true)]
    option: Vec<String>,
}

/// Runs the remote shell, its relay, or the agent.
pub fn rsh(rsh: &Rsh) -> Result<u8> {
    match &rsh.host {
        _ if rsh.relay => relay(),
        _ if rsh.agent => local::serve_stdio().map(|()| 0),
        Some(host) => remote_shell::call(host, &rsh.words),
        None => unreachable!("clap requires a host"),
    }
}
