//! The processes of an image: the one that walks and keeps the tree, and the one that serves it to machines,
//! confined. One may do both.

use crate::serve::{Contents, Limits, Log, Server};
use crate::tree::Tree;
use crate::view::Part;
use crate::walk::{is_of, walk};
use crate::{confine, Image};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vshmem_base::error::{Explain, Result};
use vshmem_base::user::{become_user, uid};

/// Descriptors that the process may have, if it may.
const DESCRIPTORS: u64 = 4096;
/// Of these, what is not for files of the host: connections, and a few of its own.
const OTHERS: u64 = 640;

/// Where machines connect.
pub enum Socket {
    /// A path at which nothing is, or a socket that nobody serves any more.
    Path(PathBuf),
    /// A socket that listens already.
    Open(OwnedFd),
}

/// What is to be walked, by whom.
pub struct Walk {
    /// What machines see.
    pub parts: Vec<Part>,
    /// A file that keeps the tree. If it has one of these parts, that is served as it is, without a walk:
    /// machines that have the image go on. Else it gets the tree.
    pub kept: Option<PathBuf>,
    /// A file that has the tree of an earlier walk, and gets the new one.
    pub earlier: Option<PathBuf>,
    /// The user to become before anything is walked. Root's machines see what a user without rights sees.
    pub user: Option<u32>,
}

/// The tree that is to be served.
pub enum Source {
    /// One that is walked now, or was walked before.
    Walk(Walk),
    /// The one in this file, which is open.
    Walked(OwnedFd),
}

/// What is to be served.
pub struct Options {
    /// Where.
    pub socket: Socket,
    /// The tree.
    pub source: Source,
    /// End when there was no machine for so long.
    pub linger: Option<Duration>,
    /// Takes lines: what machines don't see, files that have changed.
    pub log: Log,
}

/// What a process says once it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The image's id, which is its export's name.
    pub id: String,
    /// Its bytes.
    pub length: u64,
    /// Files, directories and others.
    pub inodes: usize,
    /// How many were known from an earlier walk.
    pub known: usize,
}

/// Serves until there was no machine for long enough, or for ever.
pub fn run(options: Options, ready: &mut dyn FnMut(&Ready) -> Result<()>) -> Result<()> {
    let Options { socket, source, linger, log } = options;
    let listener = listen(socket)?;
    let (tree, known) = match source {
        Source::Walk(walk) => tree_of(walk, &log)?,
        Source::Walked(file) => (Store(file.into()).read()?, 0),
    };
    let metadata = memfd_create("vshmem-root", MemfdFlags::CLOEXEC)
        .explain(|| "could not make a file in memory".into())?;
    let image = Image::make(&tree, metadata.into())?;
    let inodes = tree.len();
    let sources: Vec<PathBuf> = tree.sources.clone();
    let contents = Contents::new(tree, image, most_open(), log);
    confine::to_reading(&sources, &|line| contents.log(line));
    let said = Ready { id: contents.image().id(), length: contents.image().length(), inodes, known };
    let server = Server::new(Arc::new(contents), Limits::default());
    ready(&said)?;
    server.run(&listener, linger).explain(|| "could not take connections of machines".into())
}

/// Walks, keeps the tree, and says what its image will be.
pub fn walk_only(walk: Walk, log: &Log) -> Result<Ready> {
    let (tree, known) = tree_of(walk, log)?;
    let metadata = memfd_create("vshmem-root", MemfdFlags::CLOEXEC)
        .explain(|| "could not make a file in memory".into())?;
    let inodes = tree.len();
    let image = Image::make(&tree, metadata.into())?;
    Ok(Ready { id: image.id(), length: image.length(), inodes, known })
}

/// A tree that is kept or walked, and how many of its inodes an earlier walk had known.
fn tree_of(of: Walk, log: &Log) -> Result<(Tree, usize)> {
    let Walk { parts, kept, earlier, user } = of;
    // They are opened before rights are given up.
    let mut kept = kept.map(|path| Store::open(&path)).transpose()?;
    let mut earlier = earlier.map(|path| Store::open(&path)).transpose()?;
    if let Some(user) = user {
        become_user(user, user, &[]).explain(|| "could not give up rights".into())?;
    }
    let old = kept.as_mut().and_then(|it| it.load(log)).filter(|tree| is_of(tree, &parts));
    if let Some(tree) = old {
        return Ok((tree, 0));
    }
    let before = earlier.as_mut().and_then(|it| it.load(log));
    let walked = walk(&parts, before.as_ref())?;
    walked.left_out.to_string().lines().for_each(log);
    for store in kept.iter_mut().chain(earlier.iter_mut()) {
        store.save(&walked.tree)?;
    }
    Ok((walked.tree, walked.known))
}

fn listen(socket: Socket) -> Result<UnixListener> {
    match socket {
        Socket::Open(socket) => Ok(socket.into()),
        Socket::Path(path) => {
            let failed = || format!("could not listen at {}", path.display());
            // Who is there still answers.
            if std::os::unix::net::UnixStream::connect(&path).is_err() {
                let _ = std::fs::remove_file(&path);
            }
            UnixListener::bind(&path).explain(failed)
        }
    }
}

/// How many files of the host may be open.
fn most_open() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    let wanted = limit.current.unwrap_or(DESCRIPTORS).max(maximum);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    let current = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS);
    current.min(DESCRIPTORS).saturating_sub(OTHERS).max(16) as usize
}

/// A file that keeps a tree.
struct Store(File);

impl Store {
    /// Opens or makes it. It is written in place: what is cut off is told by its hash, and then counts as
    /// nothing.
    fn open(path: &Path) -> Result<Store> {
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(path);
        Ok(Store(file.explain(|| format!("could not open {}", path.display()))?))
    }

    /// The tree in it, if it has one that nobody else can have written.
    fn load(&mut self, log: &Log) -> Option<Tree> {
        let meta = self.0.metadata().ok()?;
        let is_own = meta.is_file() && (meta.uid() == uid() || meta.uid() == 0) && meta.mode() & 0o022 == 0;
        if meta.len() == 0 {
            return None;
        }
        if !is_own {
            log("a kept file tree is not used: others can write to it");
            return None;
        }
        self.read().map_err(|error| log(&error.to_string())).ok()
    }

    fn read(&mut self) -> Result<Tree> {
        self.0.seek(SeekFrom::Start(0)).explain(|| "could not read a kept file tree".into())?;
        Tree::load(&mut self.0)
    }

    fn save(&mut self, tree: &Tree) -> Result<()> {
        let failed = || "could not keep a machine's file tree".to_string();
        self.0.set_len(0).explain(failed)?;
        self.0.seek(SeekFrom::Start(0)).explain(failed)?;
        tree.save(&mut self.0)?;
        self.0.flush().explain(failed)
    }
}
