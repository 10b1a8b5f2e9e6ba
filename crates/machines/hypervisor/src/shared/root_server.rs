//! The server of the root that machines have as a disk (docs/design/root.md): what it shows, and its start.
//!
//! The host's files are walked first, by a process that sees them as they are. The server itself is started
//! in a sandbox, with the socket and what was walked as descriptors. In a user's name space files of others
//! would have no owner.

use super::file_tree::FileTree;
use super::log::tail;
use super::sandbox::{self, path_of, Descriptor, Descriptors, KillGuard, SandboxSpec};
use rustix::fs::{chmod, Mode};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use vshmem_base::directories::{cache_directory, cluster_directory, open_directory, private_directory};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::process::Process;
use vshmem_session::share::{Share, SYSTEM};

/// The server's directory in that of a cluster. No machine's name begins with a dot.
const DIRECTORY: &str = ".root";
/// The name of the socket, in a directory of its own.
const SOCKET: &str = "root";
/// The file with the tree that the walk has found. It stays as long as the image's machines.
const KEPT: &str = "kept";
/// What the walk says of files that machines don't see.
const WALK_LOG: &str = "walk.log";
/// What the server says: files that have changed.
const LOG: &str = "server.log";
/// The tree of a user's last walk, of which the next one takes what has not changed.
const EARLIER: &str = "root.tree";
/// Of the system's files, those of which machines see what everybody can read.
const PUBLIC: &str = "/etc";
/// Seconds after which a server without machines ends by itself.
const LINGER: u32 = 60;

/// The root that machines of a cluster have as a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The user that the server runs as, if not its starter.
    pub user: Option<u32>,
    /// The image's id, which is its export's name.
    pub id: String,
    /// The process that keeps the server running.
    pub process: Option<Process>,
}

impl Root {
    /// Whether it is served.
    pub fn is_served(&self) -> bool {
        self.process.is_some_and(|process| process.alive())
    }

    /// Ends its server.
    pub fn end(&self) {
        if let Some(process) = self.process {
            process.end(Duration::from_secs(2));
        }
    }
}

/// The directory of the socket of a cluster's server.
pub fn sockets(cluster: &str) -> Result<PathBuf> {
    Ok(cluster_directory(cluster)?.join(DIRECTORY).join("sockets"))
}

/// The path of the socket in a sandbox.
pub fn socket() -> PathBuf {
    Path::new(sandbox::SOCKETS).join(SOCKET)
}

/// What machines see as it is now, not as it was walked: what they share, and parts of the system in that.
pub fn live(shares: &[Share]) -> Vec<Share> {
    let is_in = |part: &Path| {
        let within = shares.iter().any(|share| part.starts_with(&share.path));
        within && !shares.iter().any(|share| share.path == part)
    };
    let system = SYSTEM.iter().map(PathBuf::from);
    let system = system.filter(|part| is_in(part) && part.is_dir() && !part.is_symlink());
    shares.iter().cloned().chain(system.map(|path| Share { path, writable: false })).collect()
}

/// What the server shows, as its options: the system's files without what is shared.
fn parts(shares: &[Share]) -> Vec<PathBuf> {
    let mut words = Vec::new();
    let system: Vec<&Path> = SYSTEM.iter().map(Path::new).collect();
    for part in system.iter().filter(|part| part.symlink_metadata().is_ok()) {
        if shares.iter().any(|share| part.starts_with(&share.path)) {
            continue;
        }
        let view = if *part == Path::new(PUBLIC) { "--public" } else { "--tree" };
        words.extend([view.into(), part.to_path_buf(), part.to_path_buf()]);
    }
    let is_inside =
        |share: &&Share| system.iter().any(|part| share.path.starts_with(part) && share.path != *part);
    words.extend(shares.iter().filter(is_inside).flat_map(|share| ["--hide".into(), share.path.clone()]));
    words
}

/// Walks the host's files, unless the cluster has kept what was walked, and `anew` is not asked for. Returns
/// the image's id, and what there is to say of the walk.
fn walk(cluster: &str, shares: &[Share], user: Option<u32>, anew: bool) -> Result<(String, String)> {
    let failed = || "could not look at the host's files for the machines' root".to_string();
    let directory = cluster_directory(cluster)?.join(DIRECTORY);
    private_directory(&directory)?;
    let kept = directory.join(KEPT);
    if anew {
        let _ = fs::remove_file(&kept);
    }
    let log = File::create(directory.join(WALK_LOG)).explain(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("vshmem").args(["root", "walk"]).args(parts(shares)).arg("--kept").arg(&kept);
    if let Ok(cache) = cache_directory() {
        command.arg("--earlier").arg(cache.join(EARLIER));
    }
    if let Some(user) = user {
        command.arg("--user").arg(user.to_string());
    }
    let out = command.stdin(Stdio::null()).stderr(log).output().explain(failed)?;
    let said = String::from_utf8_lossy(&out.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    match (out.status.success(), &words[..]) {
        (true, [id, _, inodes, known]) => {
            Ok((id.to_string(), format!("{inodes} files and directories, {known} of them known")))
        }
        _ => Err(error!("{}{}", failed(), tail(&directory.join(WALK_LOG)))),
    }
}

/// Starts the server of a cluster's root: of what was walked before, or `anew`. It ends with this process
/// unless it is kept.
pub fn start(
    cluster: &str,
    shares: &[Share],
    user: Option<u32>,
    anew: bool,
) -> Result<(Root, KillGuard, String)> {
    let (id, said) = walk(cluster, shares, user, anew)?;
    let directory = cluster_directory(cluster)?.join(DIRECTORY);
    let sockets = sockets(cluster)?;
    open_directory(&sockets, 0o711)?;
    let listener = listen(&sockets.join(SOCKET))?;
    let mut descriptors = Descriptors::default();
    let program = std::env::current_exe().explain(|| "this program's own file is not known".into())?;
    let program = path_of(descriptors.add(Descriptor::Read(program)));
    let listens = descriptors.add(Descriptor::Inherited(listener.as_raw_fd()));
    let walked = descriptors.add(Descriptor::Read(directory.join(KEPT)));
    let numbers = [("--listener", listens.to_string()), ("--walked", walked.to_string())];
    let options = numbers.into_iter().chain([("--linger", LINGER.to_string())]);
    let arguments = ["root", "serve"].map(String::from).into_iter();
    let spec = SandboxSpec {
        name: format!("vshmem-{cluster}-root"),
        program: program.into(),
        called: "vshmem".into(),
        arguments: arguments.chain(options.flat_map(|(name, value)| [name.into(), value])).collect(),
        descriptors: descriptors.0,
        devices: vec![],
        memlock: None,
        own: FileTree::whole()?,
        shared: FileTree::only(&[])?,
        sockets: None,
        user,
        log: directory.join(LOG),
        directory,
        small_pages: false,
        again: true,
    };
    let (process, guard) =
        sandbox::start(&spec).map_err(|error| error.about("the server of machines' root"))?;
    Ok((Root { user, id, process: Some(process) }, guard, said))
}

/// A socket that listens at this path, where nobody does any more. Users that can name it may connect: those
/// in whose tree its directory is.
fn listen(path: &Path) -> Result<UnixListener> {
    let failed = || format!("could not listen at {}", path.display());
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).explain(failed)?;
    chmod(path, Mode::from_raw_mode(0o666)).explain(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(path: &str) -> Share {
        Share { path: path.into(), writable: false }
    }

    #[test]
    fn what_is_shared_is_not_in_the_image() {
        let words = |shares: &[Share]| {
            let words: Vec<String> = parts(shares).iter().map(|word| word.display().to_string()).collect();
            words.join(" ")
        };
        let usual = words(&[share("/data")]);
        assert!(usual.contains("--tree /usr /usr") && usual.contains("--public /etc /etc"), "{usual}");
        assert!(!usual.contains("/data") && !usual.contains("--hide"), "{usual}");
        let inside = words(&[share("/usr/src/work")]);
        assert!(inside.contains("--tree /usr /usr") && inside.ends_with("--hide /usr/src/work"), "{inside}");
        let named = words(&[share("/etc"), share("/usr")]);
        assert!(!named.contains("/etc") && !named.contains("/usr"), "{named}");
    }

    #[test]
    fn parts_of_the_system_in_a_share_are_live_with_it() {
        let paths = |shares: &[Share]| live(shares).into_iter().map(|it| it.path).collect::<Vec<_>>();
        assert_eq!(paths(&[share("/data")]), [Path::new("/data")]);
        let usr = paths(&[share("/usr")]);
        assert_eq!(usr.len(), 1 + usize::from(Path::new("/usr/local").is_dir()), "{usr:?}");
    }
}
