//! A file tree made of mounts of this host's, by bind mounts in a mount namespace.
//!
//! File systems that are mounted below a part are not visible in the tree, and neither are later mounts: a
//! namespace's mounts are private.
//!
//! /etc is a copy of the files that everybody can read there. Files that only the user or a group of the
//! user's may read are not in it, even if files are replaced or made on the host later.

use super::public_copy;
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{mount_bind, mount_bind_recursive, mount_remount, MountFlags};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use vshmem_base::directories::runtime_directory;
use vshmem_base::error::{Explain, Result};
use vshmem_session::share::{Share, SYSTEM};

/// The parts of a file tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileTree {
    /// The bind mounts, in order.
    mounts: Vec<Share>,
    /// Symbolic links and their targets.
    links: Vec<(PathBuf, PathBuf)>,
    /// Paths below the mounts that are masked.
    masked: Vec<PathBuf>,
    /// Directories that are copied instead of mounted.
    copied: Vec<PathBuf>,
}

/// The part of the system's files that is a copy.
const COPIED: &str = "/etc";

impl FileTree {
    /// The system's files, and these.
    pub fn of(shares: &[Share]) -> Result<FileTree> {
        FileTree::with(shares, &SYSTEM)
    }

    /// These files, and none of the system's.
    pub fn only(shares: &[Share]) -> Result<FileTree> {
        FileTree::with(shares, &[])
    }

    /// The system's files as they are, all of /etc among them: what is mounted on files there, too.
    pub fn whole() -> Result<FileTree> {
        let copied = PathBuf::from(COPIED);
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").explain(|| "reading /proc/self/mountinfo".into())?;
        let files = mounts_below(&mounts, &copied).into_iter().filter(|path| path.is_file());
        let all = std::iter::once(copied.clone()).chain(files);
        FileTree::of(&all.map(|path| Share { path, writable: false }).collect::<Vec<_>>())
    }

    fn with(shares: &[Share], system: &[&str]) -> Result<FileTree> {
        let mut mounts = shares.to_vec();
        let mut links = Vec::new();
        for path in system.iter().map(PathBuf::from) {
            match fs::read_link(&path) {
                Ok(target) => links.push((path, target)),
                Err(_) if path.is_dir() && !mounts.iter().any(|part| part.path == path) => {
                    mounts.push(Share { path, writable: false })
                }
                Err(_) => (),
            }
        }
        // Each directory before those in it.
        mounts.sort_by(|one, other| one.path.cmp(&other.path));
        let mut masked = vec![runtime_directory()?];
        if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
            masked.push(runtime.into());
        }
        masked.retain(|path| !mounts.iter().any(|part| part.path.starts_with(path)));
        let copied = Path::new(COPIED);
        // A user that shares it means all of it.
        let named = shares.iter().any(|share| share.path == copied);
        let copied = if named { vec![] } else { vec![copied.into()] };
        Ok(FileTree { mounts, links, masked, copied })
    }

    /// Builds the tree in a directory. The caller has a mount namespace of its own.
    pub fn build(&self, root: &Path, stand_ins: &StandIns) -> Result<()> {
        let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        for (path, target) in &self.links {
            symlink(target, inside(path)).explain(|| format!("linking {}", path.display()))?;
        }
        for part in &self.mounts {
            let target = inside(&part.path);
            let source = match self.copied.contains(&part.path) {
                true => stand_ins.copy_of(&part.path),
                false => Ok(part.path.clone()),
            };
            source
                .and_then(|source| {
                    make_mount_point(&source, &target)?;
                    bind(&source, &target, part.writable, stand_ins)
                })
                .explain(|| format!("sharing {}", part.path.display()))?;
        }
        for path in &self.masked {
            stand_ins.mask(&inside(path)).explain(|| format!("hiding {}", path.display()))?;
        }
        Ok(())
    }
}

/// The files that are mounted in place of the host's: an empty directory and an empty file over masked paths,
/// and copies.
pub struct StandIns {
    directory: PathBuf,
    file: PathBuf,
    copies: PathBuf,
}

impl StandIns {
    /// Makes the stand-ins in this directory.
    pub fn make(directory: &Path) -> io::Result<StandIns> {
        let [empty, file, copies] = ["directory", "file", "copies"].map(|name| directory.join(name));
        fs::create_dir_all(&empty)?;
        fs::create_dir_all(&copies)?;
        File::create(&file)?;
        Ok(StandIns { directory: empty, file, copies })
    }

    /// A copy of the files in this directory that everybody can read; it is made once.
    fn copy_of(&self, directory: &Path) -> io::Result<PathBuf> {
        let copy = self.copies.join(directory.file_name().unwrap_or_default());
        if !copy.exists() {
            public_copy::copy(directory, &copy)?;
        }
        Ok(copy)
    }

    /// Masks this path if it exists.
    fn mask(&self, target: &Path) -> io::Result<()> {
        let Ok(meta) = fs::symlink_metadata(target) else {
            return Ok(());
        };
        let source = match meta.is_dir() {
            true => &self.directory,
            false => &self.file,
        };
        mount_bind(source, target)?;
        protect(target, false)
    }
}

/// Shows a directory at this place, read-only.
pub fn show(directory: &Path, at: &Path) -> io::Result<()> {
    fs::create_dir_all(at)?;
    mount_bind(directory, at)?;
    protect(at, false)
}

/// Makes a mount point unless it exists.
fn make_mount_point(source: &Path, target: &Path) -> io::Result<()> {
    if target.exists() {
        return Ok(());
    }
    if source.is_dir() {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(target).map(drop)
}

/// Bind-mounts a directory or file, without the mounts below it.
fn bind(source: &Path, target: &Path, writable: bool, stand_ins: &StandIns) -> io::Result<()> {
    match mount_bind(source, target) {
        // In a user namespace, the kernel only binds a directory with all mounts below it, because they might
        // hide something.
        Err(rustix::io::Errno::INVAL) => {
            mount_bind_recursive(source, target)?;
            protect(target, writable)?;
            let mounts = fs::read_to_string("/proc/self/mountinfo")?;
            for below in mounts_below(&mounts, target) {
                stand_ins.mask(&below)?;
            }
            Ok(())
        }
        bound => {
            bound?;
            protect(target, writable)
        }
    }
}

/// Removes rights from a mount that machines don't need.
fn protect(target: &Path, writable: bool) -> io::Result<()> {
    let has = rustix::fs::statvfs(target)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    // In a user namespace, the kernel does not permit to clear these flags.
    let kept = [
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
    ];
    for (_, flag) in kept.iter().filter(|(it, _)| has.contains(*it)) {
        flags |= *flag;
    }
    if !writable {
        flags |= MountFlags::RDONLY;
    }
    Ok(mount_remount(target, flags, "")?)
}

/// The mounts below a directory, without those below another one of them.
fn mounts_below(mounts: &str, directory: &Path) -> Vec<PathBuf> {
    let all = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mut below: Vec<PathBuf> =
        all.map(unescaped).filter(|path| path != directory && path.starts_with(directory)).collect();
    below.sort();
    let mut out: Vec<PathBuf> = Vec::new();
    for path in below {
        if !out.iter().any(|other| path.starts_with(other)) {
            out.push(path);
        }
    }
    out
}

/// A path of /proc/PID/mountinfo, where some characters are `\` and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| byte == b'\\') {
            Some(code) => {
                out.push(code);
                rest = &after[3..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_are_found() {
        let mounts = "\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 8:1 /x /r/usr ro - ext4 /dev/sda rw
3 2 0:5 / /r/usr/a\\040b rw - tmpfs x rw
4 3 0:6 / /r/usr/a\\040b/c rw - tmpfs x rw
5 2 0:7 / /r/usr2 rw - tmpfs x rw
";
        assert_eq!(mounts_below(mounts, Path::new("/r/usr")), [Path::new("/r/usr/a b")]);
    }

    #[test]
    fn a_directory_is_mounted_before_those_in_it() {
        let share = |path: &str| Share { path: path.into(), writable: true };
        let tree = FileTree::of(&[share("/usr/share"), share("/a/b"), share("/a"), share("/usr")]).unwrap();
        let position = |path: &str| tree.mounts.iter().position(|part| part.path == Path::new(path)).unwrap();
        assert!(position("/a") < position("/a/b") && position("/usr") < position("/usr/share"));
        assert!(tree.mounts[position("/usr")].writable && !tree.mounts[position("/etc")].writable);
        assert_eq!(tree.copied, [Path::new("/etc")]);
        let named = FileTree::of(&[share("/etc")]).unwrap();
        assert!(named.copied.is_empty(), "who shares it means all of it");
    }
}
