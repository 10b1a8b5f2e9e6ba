//! The parts of the agent, as they run once they were started.

use crate::ivshmem::fd_store::Connection;
use crate::ivshmem::program::{Part, Program};
use crate::ivshmem::{keeper, server};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use vshmem_base::error::{Explain, Result};

/// Runs a part that was started with `--part PART --link FD`.
///
/// # Errors
/// Why the part can't go on.
pub fn run_part(program: &Program, part: Part, link: RawFd) -> Result<()> {
    // SAFETY: the process that started this one has left the descriptor open for it, and nothing else here
    // uses it.
    let connection = Connection(unsafe { OwnedFd::from_raw_fd(link) });
    rustix::io::fcntl_setfd(&connection.0, rustix::io::FdFlags::CLOEXEC)
        .explain(|| "the descriptor given with --link can't be used".into())?;
    match part {
        Part::BackEnd => server::serve(program, connection),
        Part::Keeper => {
            keeper::run(program, connection).explain(|| "what restarts the agent can't go on".into())
        }
    }
}
