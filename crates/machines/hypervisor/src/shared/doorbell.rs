//! The back end, which serves pools with doorbells. It is started if need be, and ends with the last pool.

use crate::state::record::Granted;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_agent::ivshmem::client::{ensure, remove_left, request, status};
use vshmem_agent::ivshmem::{Directory, PeerStatus, PoolStatus, Program, Request};
use vshmem_base::directories::runtime_directory;
use vshmem_base::error::{Error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::process::Process;

/// Interval at which the back end is asked for its state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// MSI vectors of a machine's doorbell device.
pub const VECTORS: usize = 2;

/// Notes that a machine does not use a pool any more. The pool is served no longer if no other machine uses
/// it.
pub fn release(pool: &Granted, machine: &str, process: Option<i32>) {
    if pool.doorbell {
        end_if_unused(&pool.path, machine, process);
    }
}

/// The back end's directory. No cluster's name begins with a dot.
pub fn directory() -> Result<PathBuf> {
    Ok(runtime_directory()?.join(".agent"))
}

/// Makes the back end serve a pool; returns the socket that machines connect to.
pub fn serve(pool: &Path) -> Result<PathBuf> {
    let program = Program {
        path: std::env::current_exe().explain(|| "this program's own file is not known".into())?,
        args: vec!["agent".into()],
        directory: Directory::named(&directory()?),
        transient: true,
    };
    ensure(&program)?;
    let serve = Request::Serve { pool: pool.to_string_lossy().into_owned(), vectors: VECTORS };
    let socket = request(&program.directory, &serve)?;
    socket.ok_or_else(|| Error::new("vshmem agent does not say where it serves the pool"))
}

/// Gives a machine's name to the back end.
pub fn name(pid: i32, name: &str) -> Result<()> {
    let call = Request::Name { pid: pid as u32, name: name.into() };
    request(&Directory::named(&directory()?), &call)?;
    Ok(())
}

/// Stops serving a pool. If it was the last one, waits until the back end has ended.
pub fn end(pool: &Path) {
    let Ok(directory) = directory().map(|path| Directory::named(&path)) else {
        return;
    };
    let Ok(Some(before)) = status(&directory) else {
        remove_left(&directory);
        return;
    };
    let processes = [before.pid, before.keeper].map(|pid| Process::find(pid as i32));
    let mut asked = false;
    interrupt::repeat(Duration::from_secs(2), POLL_INTERVAL, || {
        let now = status(&directory).ok().flatten();
        let (ours, others): (Vec<_>, Vec<_>) =
            now.iter().flat_map(|now| &now.pools).partition(|found| Path::new(&found.path) == pool);
        // In this loop, for a command that was killed may have asked for it to be served just now. One that
        // can't be dropped now is dropped when its file and its machines are gone.
        let kept = asked && !ours.is_empty();
        for found in ours.iter().filter(|_| !kept) {
            let _ = request(&directory, &Request::Drop { pool: found.name.clone() });
            asked = true;
        }
        let goes_on = !others.is_empty() || !before.transient;
        // Both have the pool's file open until their end, and so its memory.
        let has_ended =
            !directory.path().exists() && processes.iter().flatten().all(|process| process.has_left());
        (kept || ours.is_empty() && goes_on || has_ended).then_some(())
    });
}

/// Stops serving a pool if no machine is connected to it, and the back end was started for machines only. A
/// machine of this name or process has just disconnected, and may still be listed for a moment.
fn end_if_unused(pool: &Path, name: &str, process: Option<i32>) {
    let Ok(directory) = directory().map(|path| Directory::named(&path)) else {
        return;
    };
    let is_it = |peer: &PeerStatus| peer.name == name || process == Some(peer.pid as i32);
    let has_left = |found: &PoolStatus| found.peers.iter().any(is_it);
    let unused = interrupt::repeat(Duration::from_millis(500), POLL_INTERVAL, || {
        let Ok(Some(now)) = status(&directory) else {
            return Some(false);
        };
        let found = now.pools.iter().find(|found| Path::new(&found.path) == pool);
        match found.filter(|_| now.transient) {
            Some(found) if has_left(found) => None,
            found => Some(found.is_some_and(|found| found.peers.is_empty())),
        }
    });
    if unused == Some(true) {
        end(pool);
    }
}
