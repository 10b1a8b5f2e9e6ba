//! Opening and looking at the host's files, without following links.

use crate::tree::{Stamp, Time, DIRECTORY, KIND, REGULAR};
use rustix::fs::{
    openat, openat2, statx, AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, StatxTimestamp,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a directory below another one, without following links or leaving its mount.
pub fn open_directory(source: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    open_beneath(source, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens what lies below a directory, without following links or leaving its mount. An empty path is the
/// directory itself.
pub fn open_beneath(source: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let how = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match openat2(source, path, flags, Mode::empty(), how) {
        // Linux before 5.6 does not have it, and containers may forbid it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(source, path, flags),
        // A rename somewhere kept the kernel from being sure.
        Err(Errno::AGAIN) => open_by_steps(source, path, flags),
        opened => opened,
    }
}

/// The same, one name after the other.
fn open_by_steps(source: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let device = stamp(&look(source, b"")?).device;
    let mut at = openat(source, ".", step, Mode::empty())?;
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        if name == ".." {
            return Err(Errno::XDEV);
        }
        let flags = if names.peek().is_some() { step } else { flags };
        at = openat(&at, name, flags, Mode::empty())?;
        if flags.contains(OFlags::DIRECTORY) && stamp(&look(&at, b"")?).device != device {
            return Err(Errno::XDEV);
        }
    }
    Ok(at)
}

/// Looks at a name in a directory; without a name at an open file.
pub fn look(directory: impl AsFd, name: &[u8]) -> rustix::io::Result<Statx> {
    // Of what is known by its name, links are not followed, and nothing is mounted for it.
    let flags = match name {
        b"" => AtFlags::EMPTY_PATH,
        _ => AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
    };
    statx(directory, OsStr::from_bytes(name), flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)
}

pub fn is_directory(stat: &Statx) -> bool {
    u32::from(stat.stx_mode) & KIND == DIRECTORY
}

/// The mount that it belongs to, where Linux tells it (5.8).
pub fn mount(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// The stamp of what was looked at.
pub fn stamp(stat: &Statx) -> Stamp {
    let time = |time: StatxTimestamp| Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let is_file = u32::from(stat.stx_mode) & KIND == REGULAR;
    Stamp {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size: if is_file { stat.stx_size } else { 0 },
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A way to open a file below a directory.
    type Way = fn(&OwnedFd, &Path, OFlags) -> rustix::io::Result<OwnedFd>;

    #[test]
    fn nothing_is_opened_through_links_or_outside() {
        let root = std::env::temp_dir().join(format!("vshmem-beneath-{}", std::process::id()));
        fs::create_dir_all(root.join("in/a/b")).unwrap();
        fs::write(root.join("in/a/b/file"), "text").unwrap();
        fs::write(root.join("secret"), "text").unwrap();
        symlink("a", root.join("in/link")).unwrap();
        symlink("b/file", root.join("in/a/to")).unwrap();
        symlink("/", root.join("in/a/out")).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = openat(rustix::fs::CWD, root.join("in"), OFlags::PATH, Mode::empty()).unwrap();
        for way in [open_beneath as Way, open_by_steps as Way] {
            assert!(way(&source, Path::new("a/b/file"), flags).is_ok());
            assert!(way(&source, Path::new("a/b"), flags | OFlags::DIRECTORY).is_ok());
            for refused in
                ["link/b/file", "a/to", "a/out/etc/passwd", "../secret", "a/../../secret", "a/b/file/x"]
            {
                assert!(way(&source, Path::new(refused), flags).is_err(), "{refused}");
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
