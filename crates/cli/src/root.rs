//! The command `vshmem root`: the process that gives machines the host's files as a disk. It is not for
//! users: whatever starts machines starts it.

use crate::output;
use clap::{Args, Subcommand};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;
use vshmem_base::error::{error, Result};
use vshmem_root::process::{run, Options, Socket};
use vshmem_root::{Part, View};

#[derive(Subcommand)]
pub enum Root {
    /// Serve the host's files to machines by NBD, read-only, as an EROFS file system
    Serve(Serve),
}

#[derive(Args)]
pub struct Serve {
    /// Listen at this path
    #[arg(long, value_name = "PATH", required_unless_present = "listener")]
    socket: Option<PathBuf>,
    /// Take connections of this socket, which listens already
    #[arg(long, value_name = "DESCRIPTOR", conflicts_with = "socket")]
    listener: Option<RawFd>,
    /// Show what this user can read of a file or directory, at a path of the tree
    #[arg(long, num_args = 2, value_names = ["PATH", "AT"])]
    tree: Vec<PathBuf>,
    /// Show what everybody can read of a directory
    #[arg(long, num_args = 2, value_names = ["PATH", "AT"])]
    public: Vec<PathBuf>,
    /// Show nothing of what is at this path in the tree
    #[arg(long, value_name = "AT")]
    hide: Vec<PathBuf>,
    /// Serve the tree in this file if it is of the same directories, else keep the one that is walked there
    #[arg(long, value_name = "FILE")]
    kept: Option<PathBuf>,
    /// A file with the tree of an earlier walk, which gets the new one
    #[arg(long, value_name = "FILE")]
    earlier: Option<PathBuf>,
    /// Become this user before anything is read
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// End when no machine was connected for so many seconds
    #[arg(long, value_name = "SECONDS")]
    linger: Option<u64>,
}

/// Serves a tree. It says on its output once it does: the export's name, its bytes, how many inodes it has,
/// and how many of them were known.
pub fn root(root: Root) -> Result<u8> {
    let Root::Serve(serve) = root;
    let socket = match (serve.socket, serve.listener) {
        (Some(path), _) => Socket::Path(path),
        (None, Some(number)) if number > 2 => {
            // SAFETY: whoever started this process has opened it for this, and nothing else here uses it.
            Socket::Open(unsafe { OwnedFd::from_raw_fd(number) })
        }
        _ => return Err(error!("--listener takes the number of an open descriptor above 2").code(2)),
    };
    let trees = parts(&serve.tree, View::Readable);
    let public = parts(&serve.public, View::Public);
    let parts = trees.chain(public).chain(serve.hide.into_iter().map(Part::Hidden)).collect();
    let options = Options {
        socket,
        parts,
        kept: serve.kept,
        earlier: serve.earlier,
        user: serve.user,
        linger: serve.linger.map(Duration::from_secs),
        log: Box::new(|line| eprintln!("vshmem: {line}")),
    };
    run(options, &mut |ready| {
        output::print(&format!("{} {} {} {}\n", ready.id, ready.length, ready.inodes, ready.known))
    })?;
    Ok(0)
}

fn parts(pairs: &[PathBuf], view: View) -> impl Iterator<Item = Part> + '_ {
    pairs.chunks_exact(2).map(move |pair| Part::Host { source: pair[0].clone(), at: pair[1].clone(), view })
}
