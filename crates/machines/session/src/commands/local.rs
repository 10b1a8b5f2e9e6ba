//! Commands on this kernel. A single one is executed in place of this process. Several are run by an agent,
//! as in a machine: this program is executed again for that, as `vshmem-commands`.

use super::channel::Channel;
use super::channel_command::ChannelCommand;
use super::descendants;
use super::job::Job;
use crate::agent::command::{self, cannot_run, RunningCommand, Starter, CANNOT_RUN};
use crate::agent::scratch::{self, Scratches};
use crate::agent::serve::Agent;
use crate::wire::start::Start;
use rustix::fs::{accessat, Access, AtFlags, CWD};
use rustix::io::Errno;
use rustix::process::{set_parent_process_death_signal, Rlimit, Signal};
use rustix::stdio::{stdin, stdout};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vshmem_base::error::{Error, Explain, Result};
use vshmem_base::user::{self, uid, Identity};
use vshmem_base::{descriptors, signal_mask};

/// The name by which this program is executed to run commands.
pub const NAME: &str = "vshmem-commands";

/// Time that the agent may take to begin, even on a busy host.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Executes the command in place of this process. Returns only if that fails.
pub fn become_command(job: &Job) -> Error {
    match prepare(&job.request) {
        Ok(mut command) => {
            let error = command.exec();
            explain_user(cannot_run(command.get_program(), &error), &job.request)
        }
        Err(error) => error,
    }
}

/// A command on this kernel, with its directory and its user.
fn prepare(request: &Start) -> Result<Command> {
    let mut command = command::command(request)?;
    // The current directory may have no path by which it can be entered.
    if !request.cwd_optional {
        let cwd = Path::new(&request.cwd);
        check_directory(cwd)?;
        command.current_dir(cwd);
    }
    if !request.inherits && is_other_user(request) {
        user::switch(&mut command, request.uid, request.gid, request.groups.clone());
    }
    Ok(command)
}

/// Whether a command does not run as the caller.
fn is_other_user(request: &Start) -> bool {
    let caller = Identity::current();
    (request.uid, request.gid) != (caller.uid, caller.gid)
}

fn explain_user(error: Error, request: &Start) -> Error {
    match is_other_user(request) && uid() != 0 {
        true => error.hint("Only root can run programs as others."),
        false => error,
    }
}

/// A channel to a new agent on this kernel, which ends with the channel.
pub fn channel() -> Result<Channel> {
    let (stream, agent) = start_agent()?;
    let greeted = Channel::greet(stream, TIMEOUT)?;
    greeted.map(|channel| channel.beside(agent)).ok_or_else(|| Error::new(not_started()))
}

fn not_started() -> String {
    "could not start a process that runs commands".into()
}

/// The host's end of a socket that is a new agent's channel, and the agent.
fn start_agent() -> Result<(UnixStream, ChannelCommand)> {
    let (ours, theirs) = UnixStream::pair().explain(not_started)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is none of its business.
    command.process_group(0);
    signal_mask::unblock(&mut command);
    let agent = ChannelCommand::new(command.spawn().explain(not_started)?);
    Ok((ours, agent))
}

/// Runs as the process that [`channel`] executes: an agent whose channel is standard input.
pub fn main() -> ! {
    std::process::exit(serve().is_err().into())
}

/// Runs an agent whose channel is standard input and standard output. No process that it has started stays
/// if either process is killed: this one kills the agent's descendants, and an agent without it its own.
pub fn serve_stdio() -> Result<()> {
    scratch::sweep();
    descendants::adopt().explain(not_started)?;
    let (agent, process) = start_agent()?;
    let file = |fd: BorrowedFd| fd.try_clone_to_owned().map(File::from).explain(not_started);
    let (input, output) = (file(stdin())?, file(stdout())?);
    let (reads, writes) = (file(agent.as_fd())?, file(agent.as_fd())?);
    std::thread::spawn(move || {
        let _ = pass_on(input, writes);
        let _ = agent.shutdown(Shutdown::Write);
    });
    // It ends with the agent, or the host.
    let _ = pass_on(reads, output);
    descendants::end();
    drop(process);
    scratch::sweep();
    Ok(())
}

/// Copies bytes as they come, which `std::io::copy` does not: it splices pipes.
fn pass_on(mut from: File, mut to: File) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&bytes[..len])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
}

fn serve() -> Result<()> {
    let channel = stdin().try_clone_to_owned().explain(|| "could not copy a descriptor".into())?;
    let mut agent = Agent::new()?;
    agent.add(File::from(channel))?;
    let mut commands = Commands::new();
    let deadline = Instant::now() + TIMEOUT;
    // The starter may be killed before it sends anything.
    while !agent.has_host() && Instant::now() < deadline && !is_closed(stdin()) {
        agent.work(Some(deadline), &mut commands, &mut |_| ())?;
    }
    while agent.has_host() {
        agent.work(None, &mut commands, &mut |_| ())?;
    }
    if commands.adopts {
        descendants::end();
    }
    commands.clean();
    Ok(())
}

/// Whether the other end of a socket is closed, and all that came from there is read.
fn is_closed(socket: BorrowedFd) -> bool {
    use rustix::net::{recv, RecvFlags};
    matches!(
        recv(socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Ok((_, 0)) | Err(Errno::CONNRESET)
    )
}

/// The starter of commands on this kernel.
struct Commands {
    limit: Rlimit,
    /// This process adopts commands' background processes.
    adopts: bool,
    scratches: Scratches,
}

impl Commands {
    fn new() -> Commands {
        Commands { limit: descriptors::raise(), adopts: false, scratches: Scratches::default() }
    }
}

impl Starter for Commands {
    fn start(&mut self, request: &Start) -> Result<RunningCommand> {
        if request.ends_with_session && !self.adopts {
            descendants::adopt().explain(|| "could not become the parent of what commands leave".into())?;
            self.adopts = true;
        }
        let mut command = prepare(request)?;
        command.process_group(0);
        // After the change of user, which would clear it.
        let end_with_agent = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: the closure makes one system call; it takes no lock and allocates nothing.
        unsafe { command.pre_exec(end_with_agent) };
        descriptors::restore(&mut command, &self.limit);
        let scratch = self.scratches.create(request, &mut command);
        let started = command::spawn(command, request, None);
        Ok(started.map_err(|error| explain_user(error, request))?.with(scratch))
    }

    fn clean(&mut self) {
        self.scratches.clean();
    }
}

/// An error unless a program can start there; otherwise the program would be blamed.
fn check_directory(cwd: &Path) -> Result<()> {
    let inside = cwd.join(".");
    let why = match accessat(CWD, &inside, Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT) => format!("there is no directory {}", cwd.display()),
        Err(why) => format!("could not enter {}: {}", cwd.display(), io::Error::from(why)),
    };
    Err(Error::new(why).code(CANNOT_RUN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::location::Location;

    /// A shell command on this kernel.
    fn job(script: &str, cwd: Option<&Path>, identity: Identity) -> Job {
        let mut job = Job::new(Location::Local, "p0".into(), &[], cwd, identity);
        job.request.argv = ["sh", "-c", script].map(Into::into).to_vec();
        job
    }

    fn start(job: &Job) -> Result<i32> {
        let started = Commands::new().start(&job.request);
        started.map(|command| command.pid)
    }

    /// Its status, once it has ended.
    fn wait(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is a live int that waitpid may write.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        status
    }

    fn succeeds(job: &Job) -> bool {
        wait(start(job).expect("it starts")) == 0
    }

    #[test]
    fn a_local_program_runs_as_the_requested_user() {
        let other = Identity { uid: 65534, gid: 65533, groups: vec![65532] };
        let test = r#"[ "$(id -u):$(id -g):$(id -G)" = "65534:65533:65533 65532" ]"#;
        let other_job = job(test, None, other);
        if Identity::current().uid == 0 {
            assert!(succeeds(&other_job) && !succeeds(&job(test, None, Identity::current())));
            return;
        }
        let why = start(&other_job).unwrap_err();
        assert_eq!(why.exit_code(), CANNOT_RUN);
        assert!(why.to_string().contains("Only root"), "{why}");
    }

    #[test]
    fn a_local_program_ends_with_its_parent_whatever_its_user() {
        let mut identity = Identity::current();
        if identity.uid == 0 {
            (identity.uid, identity.gid) = (65534, 65534);
        }
        let other_job = job("sleep 60", None, identity);
        // The thread that starts it ends.
        let started = std::thread::spawn(move || start(&other_job).unwrap());
        let pid = started.join().unwrap();
        let begun = Instant::now();
        wait(pid);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_missing_directory_is_named() {
        for (cwd, why) in [
            ("/no/such", "there is no directory /no/such"),
            ("/dev/null", "could not enter /dev/null: Not a directory"),
        ] {
            let other_job = job("true", Some(Path::new(cwd)), Identity::current());
            let error = start(&other_job).unwrap_err();
            assert_eq!(error.exit_code(), CANNOT_RUN);
            assert!(error.to_string().starts_with(why), "{error}");
        }
    }
}
