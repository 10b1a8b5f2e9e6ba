//! The command `vshmem ssh`: the system's ssh(1), whose connection is a machine's channel. The machine's host
//! keys are read from the machine by that, too, so nothing is trusted at first sight, and nothing is written
//! down.

use crate::args::ClusterArg;
use crate::complete::values;
use crate::output::print;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use vshmem_base::{error, Error, Explain, Result};
use vshmem_hypervisor::launcher::table::location;
use vshmem_hypervisor::state::machine::find;
use vshmem_hypervisor::state::record::{Machine, Record};
use vshmem_session::commands::job::Job;
use vshmem_session::commands::run::{run, RunOptions};

/// The default port of an ssh server.
const PORT: u16 = 22;
/// The user that a machine lets in with the keys of its seed.
const USER: &str = "root";

#[derive(Args)]
#[command(
    override_usage = "vshmem ssh [OPTIONS] [USER@]VM [COMMAND]...\n       vshmem ssh --config [VM]...",
    after_help = "\
Examples:
  vshmem ssh cloud
  vshmem ssh debian@cloud uptime
  vshmem ssh -o LocalForward='8080 localhost:80' cloud
  vshmem ssh --config > ssh_config && scp -F ssh_config file cloud:
  rsync -e 'ssh -F ssh_config' -a results cloud:

Runs ssh(1), which must be installed, with the user's own keys and configuration. The connection goes through the machine's
channel: no port has to be open, and the machine needs no network. The server's host keys are read by the channel, too, each
time, and no others are accepted. A machine that boots an image lets the public keys in ~/.ssh in that were there when it was
started first, as root and as the image's own user.

A machine without an ssh server, as those with this host's root, takes commands by vshmem exec and vshmem shell."
)]
pub struct Ssh {
    #[command(flatten)]
    cluster: ClusterArg,
    /// The user to log in as [default: root]
    #[arg(long, short = 'l')]
    user: Option<String>,
    /// Give the command a terminal
    #[arg(long, short)]
    tty: bool,
    /// An option of ssh, as its own -o takes it; may be repeated
    #[arg(short, value_name = "KEY=VALUE")]
    option: Vec<String>,
    /// Print what a configuration of ssh needs for these machines, or all, by which scp, rsync, editors and
    /// others reach them
    #[arg(long, conflicts_with_all = ["user", "tty", "option"])]
    config: bool,
    /// Pass standard input and output on to the machine's ssh server, or to another port of it, which
    /// follows: ssh's ProxyCommand
    #[arg(long, conflicts_with_all = ["user", "tty", "option", "config"])]
    proxy: bool,
    /// Print the machine's host keys, as a file of known hosts has them: ssh's KnownHostsCommand
    #[arg(long, conflicts_with_all = ["user", "tty", "option", "config", "proxy"])]
    host_keys: bool,
    /// The machine
    #[arg(value_name = "VM", required_unless_present = "config", add = values::machines())]
    machine: Option<String>,
    /// The command; without one, a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs ssh, or what it asks for.
pub fn ssh(ssh: &Ssh) -> Result<u8> {
    let cluster = &ssh.cluster.cluster;
    if ssh.config {
        return config(cluster, ssh);
    }
    let target = ssh.machine.as_deref().unwrap_or_default();
    let (named, name) = match target.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, target),
    };
    let (record, machine) = one(cluster, name)?;
    if ssh.proxy {
        return proxy(&record, &machine, port(&ssh.command)?);
    }
    if ssh.host_keys {
        return in_machine(Job::own(location(&record, &machine), &["host-keys", &alias(&record, &machine)])?);
    }
    let user = ssh.user.as_deref().or(named).unwrap_or(USER);
    let mut line = Command::new("ssh");
    // The first value of a key holds.
    for (key, value) in settings(&record, &machine)? {
        line.arg("-o").arg(format!("{key}={value}"));
    }
    line.args(["-l", user]);
    if ssh.tty {
        line.arg("-t");
    }
    ssh.option.iter().for_each(|option| {
        line.arg("-o").arg(option);
    });
    let why = line.arg("--").arg(&machine.name).args(&ssh.command).exec();
    Err(error!("ssh could not be started: {why}").hint(format!(
        "Install it, for instance: sudo apt-get install openssh-client. Or use vshmem exec {0}, or vshmem shell {0}.",
        machine.name
    )))
}

fn one(cluster: &str, name: &str) -> Result<(Record, Machine)> {
    let (record, mut machines) = find(cluster, &[name.to_owned()])?;
    Ok((record, machines.remove(0)))
}

fn port(words: &[OsString]) -> Result<u16> {
    match words {
        [] => Ok(PORT),
        [word] => {
            let port = word.to_str().and_then(|word| word.parse().ok());
            port.ok_or_else(|| error!("{} is no port", word.to_string_lossy()).code(2))
        }
        _ => Err(Error::new("a machine and a port are all that --proxy takes").code(2)),
    }
}

/// Connects standard input and output with a port of a machine.
fn proxy(record: &Record, machine: &Machine, port: u16) -> Result<u8> {
    let mut job = Job::own(location(record, machine), &["connect", &port.to_string()])?;
    job.request.stdin = true;
    in_machine(job)
}

fn in_machine(job: Job) -> Result<u8> {
    run(&[job], RunOptions { prefix: false, keep_going: false, insist: true, silent: false })
}

/// The name under which a machine's host keys are known: there is a vm0 in each cluster.
fn alias(record: &Record, machine: &Machine) -> String {
    format!("{}.{}", machine.name, record.name)
}

/// The settings of ssh for a machine (ssh_config(5)).
pub fn settings(record: &Record, machine: &Machine) -> Result<Vec<(&'static str, String)>> {
    let program = std::env::current_exe().explain(|| "finding this program's own file".into())?;
    let ask = |what: &str| asking(&program, &record.name, what, &machine.name);
    Ok(vec![
        ("HostKeyAlias", alias(record, machine)),
        ("ProxyCommand", format!("{} %p", ask("--proxy")?)),
        ("KnownHostsCommand", ask("--host-keys")?),
        ("UserKnownHostsFile", "none".into()),
        ("GlobalKnownHostsFile", "none".into()),
        ("StrictHostKeyChecking", "yes".into()),
        ("UpdateHostKeys", "no".into()),
    ])
}

/// A command line of this program, as ssh's configuration has it.
fn asking(program: &Path, cluster: &str, what: &str, machine: &str) -> Result<String> {
    let word = |word: &OsStr| -> Result<String> {
        let quoted = word.to_str().and_then(|word| shlex::try_quote(word).ok());
        // ssh replaces what follows a percent sign.
        let fine = quoted.map(|word| word.replace('%', "%%")).filter(|word| !word.contains('\n'));
        fine.ok_or_else(|| error!("{} can't be named in a configuration of ssh", word.to_string_lossy()))
    };
    Ok(format!("{} ssh -c {} {what} {machine}", word(program.as_os_str())?, word(cluster.as_ref())?))
}

/// Prints the part of a configuration for machines.
fn config(cluster: &str, ssh: &Ssh) -> Result<u8> {
    let names = ssh.machine.iter().cloned().map(OsString::from).chain(ssh.command.iter().cloned());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    let (record, machines) = find(cluster, &names)?;
    let mut out = format!("# Machines of the cluster {cluster}: vshmem ssh --config\n");
    for machine in &machines {
        let _ = writeln!(out, "Host {} {}", machine.name, alias(&record, machine));
        let user = ("User", USER.to_owned());
        for (key, value) in settings(&record, machine)?.into_iter().chain([user]) {
            let _ = writeln!(out, "    {key} {value}");
        }
    }
    print(&out).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_is_told_whom_to_ask() {
        let line = asking(Path::new("/opt/my tools/100%/vshmem"), "a", "--proxy", "vm0").unwrap();
        assert_eq!(line, "'/opt/my tools/100%%/vshmem' ssh -c a --proxy vm0");
        assert!(asking(Path::new("/a\nb"), "a", "--proxy", "vm0").is_err());
    }

    #[test]
    fn a_port_is_a_number() {
        assert_eq!(port(&[]).unwrap(), 22);
        assert_eq!(port(&["2222".into()]).unwrap(), 2222);
        assert_eq!(port(&["x".into()]).unwrap_err().exit_code(), 2);
        assert_eq!(port(&["1".into(), "2".into()]).unwrap_err().exit_code(), 2);
    }
}
