//! Extended attributes of files, as an image can hold them.

use crate::tree::Attribute;
use rustix::fs::{fgetxattr, flistxattr, lgetxattr, llistxattr};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The most attributes that a file has in an image: all of them can be shared with other files.
const MOST: usize = 255;
/// Beginnings of names that have a number in EROFS.
const PREFIXES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];
/// Names that are a number and nothing else.
const WHOLE: [(&[u8], u8); 2] = [(b"system.posix_acl_access", 2), (b"system.posix_acl_default", 3)];
/// By these an overlay of the host's says what it hides. That of a machine, for which this tree is the lower
/// layer, would take them for its own.
const OVERLAY: &[u8] = b"trusted.overlay.";

/// The file whose attributes are read.
pub enum Of<'a> {
    /// One that is open.
    Open(BorrowedFd<'a>),
    /// One that may not be opened: a name in an open directory.
    Named(BorrowedFd<'a>, &'a [u8]),
}

/// A set of attributes, as a tree keeps it, and whether it lacks some.
pub fn read(of: &Of) -> (Vec<u8>, bool) {
    let mut names = vec![0; 1024];
    let length = loop {
        match of.list(&mut names) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < 64 << 10 => names.resize(64 << 10, 0),
            // The file system has none, or the walking user may not know.
            Err(_) => return (Vec::new(), false),
        }
    };
    if length == 0 {
        return (Vec::new(), false);
    }
    let mut found: Vec<(u8, &[u8], Vec<u8>)> = Vec::new();
    let mut lacks = false;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let Some((prefix, rest)) = split(name) else { continue };
        let mut value = vec![0; 64 << 10];
        // One that has gone meanwhile, or that this user can't read.
        let Ok(length) = of.get(name, &mut value) else { continue };
        value.truncate(length);
        value.shrink_to_fit();
        match length <= u16::MAX.into() {
            true => found.push((prefix, rest, value)),
            false => lacks = true,
        }
    }
    found.sort();
    lacks |= found.len() > MOST;
    found.truncate(MOST);
    let mut set = Vec::new();
    for (prefix, name, value) in &found {
        Attribute { prefix: *prefix, name, value }.encode(&mut set);
    }
    (set, lacks)
}

/// An attribute's name as EROFS has it.
fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    if name.starts_with(OVERLAY) {
        return None;
    }
    if let Some((_, number)) = WHOLE.iter().find(|(whole, _)| *whole == name) {
        return Some((*number, b""));
    }
    let with = |(prefix, number): &(&[u8], u8)| Some((*number, name.strip_prefix(*prefix)?));
    let split = PREFIXES.iter().find_map(with)?;
    (split.1.len() <= 255).then_some(split)
}

impl Of<'_> {
    fn list(&self, names: &mut [u8]) -> Result<usize> {
        match self {
            Of::Open(file) => flistxattr(file, names),
            Of::Named(..) => llistxattr(self.path(), names),
        }
    }

    fn get(&self, name: &[u8], value: &mut [u8]) -> Result<usize> {
        match self {
            Of::Open(file) => fgetxattr(file, name, value),
            Of::Named(..) => lgetxattr(self.path(), name, value),
        }
    }

    /// A path that leads through the open directory, whatever became of the path by which it was opened.
    fn path(&self) -> PathBuf {
        match self {
            Of::Open(file) => format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into(),
            Of::Named(directory, name) => {
                let directory = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
                directory.join(std::ffi::OsStr::from_bytes(name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_as_erofs_has_them() {
        assert_eq!(split(b"user.a.b"), Some((1, &b"a.b"[..])));
        assert_eq!(split(b"security.capability"), Some((6, &b"capability"[..])));
        assert_eq!(split(b"system.posix_acl_access"), Some((2, &b""[..])));
        for other in [&b"system.nfs4_acl"[..], b"trusted.overlay.opaque", b"userx"] {
            assert_eq!(split(other), None);
        }
    }
}
