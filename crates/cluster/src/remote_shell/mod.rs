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

use crate::error::Result;
use crate::random;
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// The variable by which the script tells a shell of the relay: its socket's name and its token.
pub const VARIABLE: &str = "VSHMEM_RELAY";
/// Exit code of a remote shell that failed itself, as ssh's.
pub const FAILURE: u8 = 255;

/// A name that nobody guesses.
fn random_name() -> Result<String> {
    Ok(random::bytes()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file without a name that can be executed.
fn anonymous_program() -> io::Result<OwnedFd> {
    // Kernels before 6.3 don't know the flag, and need none.
    match memfd_create("vshmem-rsh", MemfdFlags::CLOEXEC | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(memfd_create("vshmem-rsh", MemfdFlags::CLOEXEC)?),
        made => Ok(made?),
    }
}
