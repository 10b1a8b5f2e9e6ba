//! The commands, as clap parses and explains them.

use crate::agent::Agent;
use crate::args::EXIT_CODES;
use crate::attach::{Attach, Detach};
use crate::changes::{Grow, Repair, Shrink};
use crate::check::Check;
use crate::cp::Cp;
use crate::devices::Devices;
use crate::doctor::Doctor;
use crate::explain::Explain;
use crate::grants::{Grant, Revoke};
use crate::inventory::Inventory;
use crate::ipcs::{Ipcrm, Ipcs};
use crate::logs::Logs;
use crate::machine::Machine;
use crate::machines::{Down, Ps, Restart};
use crate::mpirun::args::Mpirun;
use crate::pools::Pool;
use crate::root::Root;
use crate::rsh::Rsh;
use crate::run::{Exec, Run, Shell};
use crate::schema::Documents;
use crate::ssh::Ssh;
use crate::template::Template;
use crate::top::Top;
use crate::up::Up;
use crate::xen::Xen;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

const TOP_EXAMPLES: &str = "\
Examples:
  vshmem up                                  two machines that share a pool
  vshmem exec vm0 -- uname -a                a command in one of them
  vshmem shell vm0                           a shell
  vshmem run -- ./a.out                      one process per machine, on Vshmem
  vshmem run --local -n 4 -- ./a.out         four processes on this kernel
  vshmem mpirun -n 4 ./a.out                 an MPI program, four ranks
  vshmem ipcs                                the IPC objects in the pool
  vshmem down                                ends the machines

Any other word WORD runs vshmem-WORD from the PATH, as place and balance do.

";

/// System V IPC across processes, containers and virtual machines.
#[derive(Parser)]
#[command(name = "vshmem", version, after_help = format!("{TOP_EXAMPLES}{EXIT_CODES}"))]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start virtual machines that share one pool
    Up(Box<Up>),
    /// List machines
    Ps(Ps),
    /// Run a command in one machine
    Exec(Exec),
    /// Open a shell in one machine
    Shell(Shell),
    /// Copy files from and to machines
    Cp(Cp),
    /// Print what a machine's kernel has printed
    Logs(Logs),
    /// Run ssh into one machine without an open port, or print how
    Ssh(Box<Ssh>),
    /// Print a cluster as Ansible's inventory
    Inventory(Inventory),
    /// Do something in this machine for a command of the host
    #[command(hide = true, subcommand)]
    Machine(Machine),
    /// Run a program on Vshmem, one process per machine or several here
    Run(Run),
    /// Run an MPI or OpenSHMEM program in machines or containers
    Mpirun(Box<Mpirun>),
    /// Give machines files of the host as a disk
    #[command(hide = true, subcommand)]
    Root(Root),
    /// Run a command in another host of a job, as an MPI's launcher does
    #[command(hide = true)]
    Rsh(Rsh),
    /// Load a library of MPI or UCX, and print the version that it says
    #[command(hide = true)]
    LibraryVersion {
        /// The library
        file: PathBuf,
    },
    /// Show whether a program's System V calls reach a pool, or why not
    Explain(Explain),
    /// List devices that machines can be given, or why not
    Devices(Devices),
    /// Find what costs a machine or its host speed, and apply remedies
    Doctor(Box<Doctor>),
    /// End machines and remove everything that belongs to them
    Down(Down),
    /// Restart machines that died, or that run
    Restart(Restart),
    /// Add machines to a cluster that runs
    Grow(Grow),
    /// Remove machines from a cluster that runs
    Shrink(Shrink),
    /// Make, list and remove templates, from which machines start fast
    #[command(subcommand)]
    Template(Template),
    /// Start machines again that died, with the pools that they had
    Repair(Repair),
    /// Grant a pool to running machines
    Grant(Grant),
    /// Revoke a pool from running machines
    Revoke(Revoke),
    /// Attach a machine that Vshmem did not start
    Attach(Attach),
    /// Detach an attached machine
    Detach(Detach),
    /// Make, list and remove local pools
    #[command(subcommand)]
    Pool(Pool),
    /// List the IPC objects in pools
    Ipcs(Ipcs),
    /// Remove segments, semaphore sets and queues from a pool
    Ipcrm(Ipcrm),
    /// Check a pool, and repair what the dead have left in it
    Check(Check),
    /// Show the traffic of pools, and their waiting threads, live
    Top(Top),
    /// Have machines wake each other's waiters
    Agent(Agent),
    /// Share pools between Xen domains
    #[command(subcommand)]
    Xen(Xen),
    /// Print the JSON Schema of what a command prints with --json
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema {
        /// The command
        #[arg(value_name = "COMMAND")]
        document: Documents,
    },
    /// Write the man pages of these commands into a directory
    #[command(hide = true)]
    Manual {
        /// An existing directory
        directory: PathBuf,
    },
    /// Print a shell's completions
    #[command(alias = "completion", after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const SCHEMA_EXAMPLES: &str = "\
Examples:
  vshmem schema ps > ps.json
  vshmem ps --json | jsonschema -i /dev/stdin ps.json";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(vshmem completions bash)
  vshmem completions fish > ~/.config/fish/completions/vshmem.fish";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::MoreRun;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        MoreRun::command().debug_assert();
    }

    #[test]
    fn all_clusters_can_be_ended_though_one_is_named() {
        let words = ["vshmem", "down", "--cluster", "other", "--all"];
        let Command::Down(down) = Cli::parse_from(words).command else { panic!("down was asked for") };
        assert!(down.all);
    }

    #[test]
    fn a_remote_shell_takes_what_launchers_pass_to_ssh() {
        let parse = |words: &str| {
            let words = ["vshmem", "rsh"].into_iter().chain(words.split(' '));
            Cli::try_parse_from(words).map(|cli| cli.command)
        };
        for words in
            ["-x vm1 orted -mca -x 1 --daemonize", "-n -q -T -p 22 -o A=b vm1 orted -mca -x 1 --daemonize"]
        {
            let Ok(Command::Rsh(rsh)) = parse(words) else { panic!("{words}") };
            assert_eq!(rsh.host.as_deref(), Some("vm1"));
            assert_eq!(rsh.words, ["orted", "-mca", "-x", "1", "--daemonize"]);
        }
        assert!(parse("-x").is_err() && parse("-l root vm1 id").is_err());
        assert!(parse("--relay vm1").is_err() && parse("--relay").is_ok() && parse("--agent").is_ok());
    }

    #[test]
    fn a_command_keeps_its_options() {
        let words = ["vshmem", "exec", "-n", "vm0", "--", "ls", "-l", "--json"];
        let Command::Exec(exec) = Cli::parse_from(words).command else { panic!("exec was asked for") };
        assert!(exec.no_stdin);
        assert_eq!(exec.line.command, ["ls", "-l", "--json"]);
        let words = ["vshmem", "exec", "-t", "vm0", "--", "ls", "-t"];
        let Command::Exec(exec) = Cli::parse_from(words).command else { panic!("exec was asked for") };
        assert!(exec.tty && exec.line.command == ["ls", "-t"]);
        let words = ["vshmem", "exec", "-t", "-n", "vm0", "--", "ls"];
        assert!(Cli::try_parse_from(words).is_err(), "a terminal is input");
    }
}
