//! A public copy of a directory: files that not everybody can read are empty there.

use rustix::fs::{chmod, fstat, openat, readlinkat, statat, AtFlags, FileType, Mode, OFlags, Stat};
use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Copies a directory to a path where nothing is. A directory on which something is mounted is left out. A
/// file counts by its mode once it is open, so it may be replaced meanwhile.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let directory = File::open(from)?;
    let stat = fstat(&directory)?;
    Copier { device: stat.st_dev, owner: rustix::process::geteuid().is_root() }.directory(
        directory.into(),
        &stat,
        to,
    )
}

struct Copier {
    /// The file system that is copied.
    device: u64,
    /// Copies have the owners of what they are made of.
    owner: bool,
}

impl Copier {
    fn directory(&self, from: OwnedFd, stat: &Stat, to: &Path) -> io::Result<()> {
        fs::create_dir(to)?;
        if stat.st_mode & 0o5 == 0o5 {
            for entry in rustix::fs::Dir::read_from(&from)? {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    self.entry(&from, name, &to.join(OsStr::from_bytes(name.to_bytes())))?;
                }
            }
        }
        self.finish(stat, to, 0o555)
    }

    fn entry(&self, directory: &OwnedFd, name: &CStr, to: &Path) -> io::Result<()> {
        // What has gone meanwhile is not there.
        let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        let kind = FileType::from_raw_mode(found.st_mode);
        // Files of an overlay have the numbers of the file systems below it; directories have its own.
        if kind == FileType::Directory && found.st_dev != self.device {
            return Ok(());
        }
        if kind == FileType::Symlink {
            let Ok(target) = readlinkat(directory, name, Vec::new()) else { return Ok(()) };
            return std::os::unix::fs::symlink(OsStr::from_bytes(target.to_bytes()), to);
        }
        if !matches!(kind, FileType::Directory | FileType::RegularFile) {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(directory, name, flags, Mode::empty());
        let opened = opened.ok().and_then(|file| fstat(&file).ok().map(|stat| (file, stat)));
        match (kind, opened) {
            (FileType::Directory, Some((file, stat))) if is(&stat, kind) => self.directory(file, &stat, to),
            (FileType::Directory, _) => {
                fs::create_dir(to)?;
                self.finish(&found, to, 0o555)
            }
            (_, Some((file, stat))) if is(&stat, kind) && stat.st_mode & 0o4 != 0 => {
                io::copy(&mut File::from(file), &mut File::create(to)?)?;
                self.finish(&stat, to, 0o444)
            }
            _ => {
                File::create(to)?;
                self.finish(&found, to, 0o444)
            }
        }
    }

    /// Gives a copy the mode and the owner of its original. Everybody can read it, for its contents are
    /// public.
    fn finish(&self, stat: &Stat, to: &Path, all: u32) -> io::Result<()> {
        if self.owner {
            std::os::unix::fs::lchown(to, Some(stat.st_uid), Some(stat.st_gid))?;
        }
        Ok(chmod(to, Mode::from_raw_mode(stat.st_mode & 0o777 | all))?)
    }
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};

    #[test]
    fn what_not_everybody_can_read_is_empty() {
        let root = std::env::temp_dir().join(format!("vshmem-public-{}", std::process::id()));
        let (from, to) = (root.join("from"), root.join("to"));
        for directory in ["open", "closed", "listed"] {
            fs::create_dir_all(from.join(directory)).unwrap();
            fs::write(from.join(directory).join("in"), "text").unwrap();
        }
        for (file, mode) in [("plain", 0o644), ("group", 0o640), ("own", 0o600), ("run", 0o4755)] {
            fs::write(from.join(file), "text").unwrap();
            fs::set_permissions(from.join(file), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (directory, mode) in [("open", 0o755), ("closed", 0o750), ("listed", 0o754)] {
            fs::set_permissions(from.join(directory), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("plain", from.join("link")).unwrap();
        copy(&from, &to).unwrap();
        let text = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        for name in ["plain", "run", "link", "open/in"] {
            assert_eq!(text(name), "text", "{name}");
        }
        for name in ["group", "own"] {
            assert_eq!(text(name), "", "{name}");
        }
        for name in ["closed", "listed"] {
            assert_eq!(fs::read_dir(to.join(name)).unwrap().count(), 0, "{name}");
        }
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("plain"));
        let mode = fs::metadata(to.join("run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
        fs::remove_dir_all(&root).unwrap();
    }
}
