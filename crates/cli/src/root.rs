//! The command `vshmem root`: the processes that give machines the host's files as a disk. It is not for
//! users: whatever starts machines starts them.

use crate::output;
use clap::{Args, Subcommand};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;
use vshmem_base::error::{error, Result};
use vshmem_root::process::{run, walk_only, Options, Ready, Socket, Source, Walk};
use vshmem_root::{Part, View};

#[derive(Subcommand)]
pub enum Root {
    /// Look at the host's files, and keep what they are for a server
    Walk(Walked),
    /// Serve the host's files to machines by NBD, read-only, as an EROFS file system
    Serve(Serve),
}

/// The parts of the host's tree that are walked, and where the walk is kept.
#[derive(Args)]
pub struct Walked {
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
}

#[derive(Args)]
pub struct Serve {
    /// Listen at this path
    #[arg(long, value_name = "PATH", required_unless_present = "listener")]
    socket: Option<PathBuf>,
    /// Take connections of this socket, which listens already
    #[arg(long, value_name = "DESCRIPTOR", conflicts_with = "socket")]
    listener: Option<RawFd>,
    /// Serve the tree in this open file, and walk nothing
    #[arg(long, value_name = "DESCRIPTOR", conflicts_with_all = ["kept", "earlier", "user"])]
    walked: Option<RawFd>,
    /// End when no machine was connected for so many seconds
    #[arg(long, value_name = "SECONDS")]
    linger: Option<u64>,
    #[command(flatten)]
    walk: Walked,
}

/// Walks or serves a tree. It says on its output once that is done, or begins: the export's name, its bytes,
/// how many inodes it has, and how many of them were known.
pub fn root(root: Root) -> Result<u8> {
    let tell = |ready: &Ready| {
        output::print(&format!("{} {} {} {}\n", ready.id, ready.length, ready.inodes, ready.known))
    };
    let log = Box::new(|line: &str| eprintln!("vshmem: {line}"));
    let serve = match root {
        Root::Walk(walk) => return walk_only(walk.into(), &(log as _)).and_then(|it| tell(&it)).map(|()| 0),
        Root::Serve(serve) => serve,
    };
    let socket = match (serve.socket, serve.listener) {
        (Some(path), _) => Socket::Path(path),
        (None, listener) => Socket::Open(opened(listener, "--listener")?),
    };
    let source = match serve.walked {
        None => Source::Walk(serve.walk.into()),
        walked => Source::Walked(opened(walked, "--walked")?),
    };
    run(Options { socket, source, linger: serve.linger.map(Duration::from_secs), log }, &mut |it| tell(it))?;
    Ok(0)
}

/// A descriptor that whoever started this process has opened for it.
fn opened(number: Option<RawFd>, option: &str) -> Result<OwnedFd> {
    match number.filter(|number| *number > 2) {
        // SAFETY: it was opened for this, and nothing else here uses it.
        Some(number) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        None => Err(error!("{option} takes the number of an open descriptor above 2").code(2)),
    }
}

impl From<Walked> for Walk {
    fn from(walked: Walked) -> Walk {
        let trees = parts(&walked.tree, View::Readable);
        let public = parts(&walked.public, View::Public);
        let hidden = walked.hide.into_iter().map(Part::Hidden);
        let parts = trees.chain(public).chain(hidden).collect();
        Walk { parts, kept: walked.kept, earlier: walked.earlier, user: walked.user }
    }
}

fn parts(pairs: &[PathBuf], view: View) -> impl Iterator<Item = Part> + '_ {
    pairs.chunks_exact(2).map(move |pair| Part::Host { source: pair[0].clone(), at: pair[1].clone(), view })
}
