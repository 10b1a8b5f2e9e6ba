//! An image's bytes: metadata from its file, contents from the files of the host that have them.
//!
//! A file is opened below the source of its part, and compared with what the walk has found: before it is
//! read, and afterwards. So what is given was read from the file as it was walked, or not at all.

use crate::image::{Extent, Image};
use crate::tree::{Node, Stamp, Tree};
use crate::walk::host::{look, open_beneath, stamp};
use rustix::fs::{openat, openat2, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Takes lines about files that can't be given to machines any more.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// The most files that are told of.
const MAX_TOLD: usize = 1000;
/// For so long after a change another one may leave a file's times as they are: a tick of the kernel's clock,
/// where a file system keeps nanoseconds, ...
const TICK: Duration = Duration::from_millis(20);
/// ... and FAT's two seconds where it does not.
const COARSE: Duration = Duration::from_secs(2);

/// The bytes of an image.
pub struct Contents {
    tree: Tree,
    image: Image,
    /// The sources of the parts, those that are directories.
    sources: Vec<Option<OwnedFd>>,
    opened: Mutex<Opened>,
    told: Mutex<HashSet<u32>>,
    log: Log,
}

/// A file that was what the walk had found when it was opened.
struct Source {
    file: File,
    /// What it is like since it has no name any more.
    unlinked: Mutex<Option<Stamp>>,
}

/// Open files, the last used ones.
struct Opened {
    files: HashMap<u32, (Arc<Source>, u64)>,
    uses: u64,
    most: usize,
}

/// Why a file can't be read.
enum Fault {
    /// It is another one, or was changed.
    Changed,
    /// The host can't read it.
    Failed(io::Error),
}

impl From<Errno> for Fault {
    fn from(why: Errno) -> Fault {
        match why {
            // Something else is at its path, or nothing.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO => Fault::Changed,
            why => Fault::Failed(why.into()),
        }
    }
}

impl Contents {
    /// Those of a tree, and of its image. At most so many files are kept open.
    pub fn new(tree: Tree, image: Image, most_open: usize, log: Log) -> Contents {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = |path: &std::path::PathBuf| openat(CWD, path, flags, Mode::empty()).ok();
        let sources = tree.sources.iter().map(source).collect();
        let opened = Opened { files: HashMap::new(), uses: 0, most: most_open.max(1) };
        Contents { tree, image, sources, opened: opened.into(), told: HashSet::new().into(), log }
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Writes a line into the log.
    pub fn log(&self, line: &str) {
        (self.log)(line);
    }

    /// Reads a part of the image. Nothing of `into` is to be given to a machine if it fails.
    pub fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.image.length());
        end.ok_or(ErrorKind::InvalidInput)?;
        let (mut rest, mut at) = (into, at);
        let metadata = self.image.metadata_length();
        if at < metadata {
            let (now, after) = rest.split_at_mut(((metadata - at) as usize).min(rest.len()));
            self.image.metadata().read_exact_at(now, at)?;
            at += now.len() as u64;
            rest = after;
        }
        while !rest.is_empty() {
            let extent = self.image.extent_of((at / BLOCK) as u32).ok_or(ErrorKind::InvalidInput)?;
            let begin = at - u64::from(extent.block) * BLOCK;
            let length = u64::from(extent.blocks) * BLOCK - begin;
            let (now, after) = rest.split_at_mut((length as usize).min(rest.len()));
            self.read_file(extent, now, extent.offset * BLOCK + begin).map_err(|fault| {
                self.tell(extent.node, &fault);
                ErrorKind::Other
            })?;
            at += now.len() as u64;
            rest = after;
        }
        Ok(())
    }

    /// Reads a part of a file; behind its end are zeroes.
    fn read_file(&self, extent: &Extent, into: &mut [u8], at: u64) -> Result<(), Fault> {
        let node = self.tree.node(extent.node);
        let inside = (node.stamp.size.saturating_sub(at) as usize).min(into.len());
        let (inside, behind) = into.split_at_mut(inside);
        behind.fill(0);
        if inside.is_empty() {
            return Ok(());
        }
        let kept = self.opened().get(extent.node);
        let source = match kept {
            Some(source) => source,
            None => {
                let source = Arc::new(Source { file: self.open(extent.node)?.into(), unlinked: None.into() });
                source.is_as_walked(node)?;
                self.opened().put(extent.node, source.clone());
                source
            }
        };
        wait_until_sure(&node.stamp);
        let outcome = source.read(node, inside, at);
        if outcome.is_err() {
            self.opened().files.remove(&extent.node);
        }
        outcome
    }

    /// Opens a file at the path at which the walk has found it.
    fn open(&self, number: u32) -> Result<OwnedFd, Fault> {
        let (part, path) = self.tree.path_in_part(number);
        if let Some(source) = self.sources.get(part as usize).and_then(|it| it.as_ref()) {
            return Ok(open_beneath(source, &path, OFlags::RDONLY)?);
        }
        // A part that is a file.
        let source = self.tree.sources.get(part as usize).filter(|_| path.as_os_str().is_empty());
        Ok(open_file(source.ok_or(Errno::NOENT)?)?)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Says once of each file that it can't be given.
    fn tell(&self, number: u32, fault: &Fault) {
        let mut told = self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if told.len() > MAX_TOLD || !told.insert(number) {
            return;
        }
        let path = self.tree.path(number);
        let text = match fault {
            _ if told.len() > MAX_TOLD => "more files have changed; they are not named any more".to_string(),
            Fault::Changed => {
                format!("/{} has changed on the host since machines have it: they get errors", path.display())
            }
            Fault::Failed(why) => format!("the host can't read /{} for machines: {why}", path.display()),
        };
        (self.log)(&text);
    }
}

fn open_file(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => openat(CWD, path, flags, Mode::empty()),
        opened => opened,
    }
}

impl Source {
    fn read(&self, node: &Node, into: &mut [u8], at: u64) -> Result<(), Fault> {
        self.is_as_walked(node)?;
        match self.file.read_exact_at(into, at) {
            Ok(()) => (),
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Err(Fault::Changed),
            Err(why) => return Err(Fault::Failed(why)),
        }
        self.is_as_walked(node)
    }

    /// Compares the file with what the walk has found.
    fn is_as_walked(&self, node: &Node) -> Result<(), Fault> {
        let stat = look_at(&self.file)?;
        let (now, walked) = (stamp(&stat), node.stamp);
        if now == walked {
            return Ok(());
        }
        // Whoever removes a file, or puts another one in its place, changes its ctime and nothing that it
        // contains.
        let mut unlinked = self.unlinked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if stat.stx_nlink == 0 && (Stamp { ctime: walked.ctime, ..now }) == walked {
            return match *unlinked.get_or_insert(now) == now {
                true => Ok(()),
                false => Err(Fault::Changed),
            };
        }
        Err(Fault::Changed)
    }
}

fn look_at(file: &File) -> Result<rustix::fs::Statx, Fault> {
    Ok(look(file, b"")?)
}

/// Waits until another change of the file would change its times.
fn wait_until_sure(walked: &Stamp) {
    let margin = if walked.ctime.nanoseconds == 0 { COARSE } else { TICK };
    let changed =
        Duration::new(walked.ctime.seconds.max(0) as u64, walked.ctime.nanoseconds.min(999_999_999));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let Some(left) = (changed + margin).checked_sub(now) {
        // A clock that was set back is not waited for.
        sleep(left.min(margin));
    }
}

impl Opened {
    fn get(&mut self, node: u32) -> Option<Arc<Source>> {
        self.uses += 1;
        let (source, used) = self.files.get_mut(&node)?;
        *used = self.uses;
        Some(source.clone())
    }

    /// Keeps a file. If there are too many, the half that was not used for longer is closed.
    fn put(&mut self, node: u32, source: Arc<Source>) {
        if self.files.len() >= self.most {
            let mut uses: Vec<u64> = self.files.values().map(|(_, used)| *used).collect();
            let middle = uses.len() / 2;
            let (_, limit, _) = uses.select_nth_unstable(middle);
            let limit = *limit;
            self.files.retain(|_, (_, used)| *used > limit);
        }
        self.uses += 1;
        self.files.insert(node, (source, self.uses));
    }
}
