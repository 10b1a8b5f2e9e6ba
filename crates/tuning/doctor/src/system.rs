//! The files by which a kernel shows its state: this kernel's, or a copy of them that was made elsewhere.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A socket at which a machine's QEMU should listen, though another program may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Its path.
    pub path: PathBuf,
    /// QEMU's pid.
    pub process: u32,
    /// QEMU has it from the program that started it, which may have made it listen.
    pub is_passed: bool,
}

/// Asks the QEMU that listens at a socket, and nobody else: by a command with arguments. The error says why
/// there is no answer.
pub type Ask = fn(&Socket, &str, Value) -> Result<Value, String>;

/// The owners of machines that are believed. Anybody can give a process QEMU's name, and threads the names
/// and the cores of virtual processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Believed {
    /// Users.
    pub users: Vec<u32>,
    /// Processes, with their children.
    pub processes: Vec<u32>,
}

impl Believed {
    /// Root and the user who asks, also by sudo.
    fn own() -> Believed {
        let user = rustix::process::getuid().as_raw();
        let by_sudo = std::env::var("SUDO_UID").ok().filter(|_| user == 0).and_then(|it| it.parse().ok());
        Believed { users: [0, user].into_iter().chain(by_sudo).collect(), processes: Vec::new() }
    }
}

/// QEMU's answers, by the name under which each is recorded: nothing is asked twice.
type Answers = RefCell<BTreeMap<String, Result<Value, String>>>;

/// The root of a tree with `proc` and `sys` in it.
#[derive(Debug)]
pub struct System {
    root: PathBuf,
    /// The owners of machines that are believed; `None`: everybody, for nothing is changed in a recorded
    /// tree.
    pub(crate) believed: Option<Believed>,
    /// The function that asks QEMU; `None`: its answers were recorded, too.
    pub(crate) ask: Option<Ask>,
    /// QEMU's answers so far.
    pub(crate) answers: Answers,
}

/// Something that could not be read, with the reason.
#[derive(Debug)]
pub enum Unseen {
    /// A file.
    File {
        /// Its path below the root.
        path: String,
        /// The reason.
        why: io::Error,
    },
    /// The monitor of a machine.
    Monitor {
        /// Its QEMU.
        pid: u32,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = match self {
            Unseen::Monitor { pid, why } => return write!(f, "QEMU {pid} could not be asked: {why}"),
            Unseen::File { path, why } => (path, why),
        };
        match why.kind() {
            io::ErrorKind::NotFound => write!(f, "there is no /{path}"),
            io::ErrorKind::PermissionDenied => write!(f, "only root may read /{path}"),
            _ => write!(f, "/{path} could not be read: {why}"),
        }
    }
}

/// `None` where a file does not exist, which is no error.
fn or_absent<T>(result: Result<T, Unseen>) -> Result<Option<T>, Unseen> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(Unseen::File { why, .. }) if is_gone(&why) => Ok(None),
        Err(unseen) => Err(unseen),
    }
}

/// No file, or that of a process which has ended.
fn is_gone(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH)
}

impl System {
    /// A copy below this directory.
    ///
    /// # Errors
    /// A sentence: there is no such directory, or neither `proc` nor `sys` in it.
    pub fn copied(root: &Path) -> Result<System, String> {
        let shown = root.display();
        match fs::metadata(root) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                Err(format!("there is no directory {shown}"))
            }
            Err(why) => Err(format!("could not look at {shown}: {why}")),
            Ok(meta) if !meta.is_dir() => Err(format!("{shown} is no directory")),
            Ok(_) if ["proc", "sys"].iter().all(|it| !root.join(it).is_dir()) => {
                Err(format!("{shown} has neither proc nor sys: it is no copy of a system"))
            }
            Ok(_) => Ok(System::below(root)),
        }
    }

    /// This kernel.
    pub fn live() -> System {
        System { believed: Some(Believed::own()), ..System::below("/") }
    }

    /// This kernel, with a way to ask QEMU. Of machines of other users, those of these processes are
    /// believed.
    pub fn asking(ask: Ask, processes: Vec<u32>) -> System {
        let believed = Some(Believed { processes, ..Believed::own() });
        System { ask: Some(ask), believed, ..System::live() }
    }

    /// A tree that was recorded, perhaps on another system.
    pub fn below(root: impl Into<PathBuf>) -> System {
        System { root: root.into(), believed: None, ask: None, answers: Answers::default() }
    }

    /// True for this kernel.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The place of a file. Paths begin with `proc/` or `sys/`, or few others.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn unseen(path: &str) -> impl FnOnce(io::Error) -> Unseen + '_ {
        move |why| Unseen::File { path: path.into(), why }
    }

    /// A file's text, which must exist.
    pub fn need(&self, path: &str) -> Result<String, Unseen> {
        let bytes = fs::read(self.path(path)).map_err(System::unseen(path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file's text, if it exists.
    pub fn text(&self, path: &str) -> Result<Option<String>, Unseen> {
        or_absent(self.need(path))
    }

    /// The names in a directory, sorted, numbers by their value; none if it does not exist.
    pub fn names(&self, directory: &str) -> Result<Vec<String>, Unseen> {
        let entries = fs::read_dir(self.path(directory)).map_err(System::unseen(directory));
        let Some(entries) = or_absent(entries)? else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let number = |name: &str| name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok();
        names.sort_by(|a, b| number(a).cmp(&number(b)).then_with(|| a.cmp(b)));
        Ok(names)
    }

    /// The numbers among the names in a directory: processes, threads, interrupts.
    pub fn numbers(&self, directory: &str) -> Result<Vec<u32>, Unseen> {
        Ok(self.names(directory)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The target of a symbolic link, if it exists.
    pub fn target(&self, path: &str) -> Result<Option<String>, Unseen> {
        let target = or_absent(fs::read_link(self.path(path)).map_err(System::unseen(path)))?;
        Ok(target.and_then(|target| target.into_os_string().into_string().ok()))
    }

    /// The last part of a symbolic link's target, if it exists.
    pub fn link(&self, path: &str) -> Result<Option<String>, Unseen> {
        let target = self.target(path)?;
        Ok(target.and_then(|target| Some(Path::new(&target).file_name()?.to_str()?.to_owned())))
    }

    /// The memory, or room on a disk, that a file takes, in bytes; none if it does not exist.
    pub fn allocated(&self, path: &str) -> Result<u64, Unseen> {
        let meta = or_absent(fs::metadata(self.path(path)).map_err(System::unseen(path)))?;
        Ok(meta.map_or(0, |meta| meta.blocks() * 512))
    }

    /// Writes a value. An empty one is a line of its own, since a kernel takes no write of nothing.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        #[cfg(test)]
        crate::tests::killed::step();
        let written = fs::write(self.path(path), format!("{value}\n"));
        #[cfg(test)]
        crate::tests::killed::step();
        written
    }
}
