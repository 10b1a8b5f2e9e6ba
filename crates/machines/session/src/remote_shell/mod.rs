//! The remote shell of an MPI launcher, and its relay, where the launcher runs.
//!
//! A launcher starts its daemons in other hosts by a remote shell, mostly ssh. Here that is a script of the
//! relay's, which runs [`call`]. It asks the relay, the relay asks the host by its standard output, and the
//! host starts the daemon where it is to run (`commands::launch`).
//!
//! ```text
//!              vshmem rsh               vshmem rsh
//!  launcher --> HOST WORDS... <-socket-> --relay    <-standard input and output-> host
//! ```
//!
//! The script is an anonymous file, and the socket's name is in the kernel's own name space. So nothing of
//! the relay outlives it, however it ends.

mod relay;
mod shell;

pub use relay::relay;
pub use shell::call;

use rustix::fs::{memfd_create, open, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::{env, io};
use vshmem_base::error::Result;
use vshmem_base::random;

/// The variable by which the script tells a shell of the relay: its socket's name and its token.
pub const VARIABLE: &str = "VSHMEM_RELAY";
/// Exit code of a remote shell that failed itself, as ssh's.
pub const FAILURE: u8 = 255;

/// A random name, which can't be guessed.
fn random_name() -> Result<String> {
    random::hex::<16>()
}

/// A file without a name that can be executed.
fn anonymous_program() -> io::Result<OwnedFd> {
    // Kernels before 6.3 don't know the flag, and need none.
    match memfd_create("vshmem-rsh", MemfdFlags::CLOEXEC | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(memfd_create("vshmem-rsh", MemfdFlags::CLOEXEC)?),
        // The system lets nobody execute files in memory (vm.memfd_noexec=2).
        Err(Errno::ACCESS) => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            Ok(open(env::temp_dir(), flags, Mode::RWXU)?)
        }
        made => Ok(made?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::process::{id, Command};

    #[test]
    fn a_program_without_a_name_is_executed() {
        let mut program = File::from(anonymous_program().unwrap());
        program.write_all(b"#!/bin/sh\nexit 7\n").unwrap();
        let open = File::open(format!("/proc/self/fd/{}", program.as_raw_fd())).unwrap();
        drop(program);
        let path = format!("/proc/{}/fd/{}", id(), open.as_raw_fd());
        assert_eq!(Command::new(path).status().unwrap().code(), Some(7));
    }

    #[test]
    fn a_program_is_executed_where_files_in_memory_are_not() {
        const SETTING: &str = "/proc/sys/vm/memfd_noexec";
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
            command
        };
        if !Path::new(SETTING).exists() || !unshare().arg("true").status().is_ok_and(|it| it.success()) {
            eprintln!("skipped: no such setting, or no name spaces");
            return;
        }
        // Each PID name space has its own.
        let script = format!("echo 2 >{SETTING} && exec \"$@\"");
        let test = std::env::current_exe().unwrap();
        let mut command = unshare();
        command.args(["sh", "-c", &script, "sh"]).arg(test);
        command.args(["--exact", "remote_shell::tests::a_program_without_a_name_is_executed"]);
        let run = command.output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
    }
}
