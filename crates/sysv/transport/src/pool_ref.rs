//! References to pools: by names, paths and devices.

use core::ffi::CStr;
use core::fmt;

use crate::error::ResolveError;
use crate::given::address::Address;
use crate::sys;
use crate::text::Text;

/// The longest name of a pool, in bytes.
pub const NAME_MAX: usize = 64;
/// One more than the longest absolute path of a pool, in bytes.
pub const PATH_MAX: usize = 1024;

/// The directory that each user's directory of named pools is in.
pub const DIRECTORY: &CStr = c"/dev/shm";

/// An absolute path in a fixed buffer.
pub(crate) type Path = Text<PATH_MAX>;
/// A name in a fixed buffer.
pub(crate) type Name = Text<{ NAME_MAX + 1 }>;

/// The way in which a pool was named, which decides how far its file is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By a name: the file must belong to the user who asks and may be no symbolic link.
    Name,
    /// By a path, which is an explicit sign of trust.
    Path,
    /// By the device that gave it to this kernel.
    Device,
}

/// A reference to a pool, opened or not. Plain data, without heap memory.
#[derive(Clone, Debug)]
pub struct PoolRef {
    origin: Origin,
    giver: Option<&'static str>,
    address: Option<Address>,
    name: Name,
    path: Path,
}

impl PoolRef {
    /// The local pool of this name that belongs to the effective user: `/dev/shm/vshmem.UID/NAME`.
    ///
    /// # Errors
    /// [`ResolveError::BadName`] unless `name` has 1 to 64 letters, digits, dots, dashes and underscores.
    pub fn named(name: &[u8]) -> Result<PoolRef, ResolveError> {
        if !is_name(name) {
            return Err(ResolveError::BadName);
        }
        let mut path = own_directory().ok_or(ResolveError::BadName)?;
        let mut kept = Name::new();
        path.push(b"/")
            .and_then(|()| path.push(name))
            .and_then(|()| kept.push(name))
            .ok_or(ResolveError::BadName)?;
        Ok(PoolRef { origin: Origin::Name, giver: None, address: None, name: kept, path })
    }

    /// The local pool at a path; a relative one is taken from the current working directory, now.
    ///
    /// # Errors
    /// [`ResolveError::PathTooLong`], [`ResolveError::NoWorkingDirectory`], [`ResolveError::BadName`] for an
    /// empty one.
    pub fn at(path: &[u8]) -> Result<PoolRef, ResolveError> {
        let mut absolute = Path::new();
        match path.first() {
            None => return Err(ResolveError::BadName),
            Some(b'/') => {}
            Some(_) => push_working_directory(&mut absolute)?,
        }
        absolute.push(path).ok_or(ResolveError::PathTooLong)?;
        Ok(PoolRef { origin: Origin::Path, giver: None, address: None, name: Name::new(), path: absolute })
    }

    /// A pool that the transport of this name gives to this kernel: its device, under a name that is known to
    /// be short.
    pub(crate) fn device(
        giver: &'static str,
        address: Option<Address>,
        name: &[u8],
        path: Path,
    ) -> Option<PoolRef> {
        let mut kept = Name::new();
        kept.push(name)?;
        Some(PoolRef { origin: Origin::Device, giver: Some(giver), address, name: kept, path })
    }

    /// The local pool that `value` means, by name or, with a slash, by path.
    pub fn local(value: &[u8]) -> Result<PoolRef, ResolveError> {
        if value.contains(&b'/') {
            PoolRef::at(value)
        } else {
            PoolRef::named(value)
        }
    }

    /// The way in which the pool was named.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether this is a file of this kernel, which may be created where it is missing.
    pub fn is_local(&self) -> bool {
        self.origin != Origin::Device
    }

    /// The pool's name; empty for one that was given by path.
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }

    /// The PCI address of the device that shows the pool, if one does.
    pub fn address(&self) -> Option<Address> {
        self.address
    }

    /// The name of the transport that gives it to this kernel; none for a local pool.
    pub(crate) fn giver(&self) -> Option<&'static str> {
        self.giver
    }

    /// The absolute path of the file that is the pool.
    pub fn path(&self) -> &CStr {
        self.path.c_str()
    }

    /// The path, in its buffer.
    pub(crate) fn path_text(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for PoolRef {
    /// Writes the name and the path, or the path alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Path => self.path.fmt(f),
            Origin::Name | Origin::Device => write!(f, "{} ({})", self.name, self.path),
        }
    }
}

/// Whether `name` can name a pool.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && ![&b"."[..], b".."].contains(&name)
        && name.iter().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(c))
}

/// The directory of the effective user's named pools: `/dev/shm/vshmem.UID`.
pub(crate) fn own_directory() -> Option<Path> {
    let mut path = Path::new();
    path.push(DIRECTORY.to_bytes())?;
    path.push(b"/vshmem.")?;
    path.push_decimal(u64::from(sys::effective_user()))?;
    Some(path)
}

/// Appends the working directory and a slash.
fn push_working_directory(path: &mut Path) -> Result<(), ResolveError> {
    let mut buffer = [0u8; PATH_MAX];
    let len = sys::working_directory(&mut buffer).map_err(|error| match error.0 {
        libc::ERANGE | libc::ENAMETOOLONG => ResolveError::PathTooLong,
        _ => ResolveError::NoWorkingDirectory,
    })?;
    let directory = buffer.get(..len.saturating_sub(1)).unwrap_or(b"");
    // The kernel marks a directory that can't be reached from the root by "(unreachable)".
    if directory.first() != Some(&b'/') {
        return Err(ResolveError::NoWorkingDirectory);
    }
    path.push(directory).and_then(|()| path.push(b"/")).ok_or(ResolveError::PathTooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};
    use std::{format, vec};

    #[test]
    fn names_lead_to_files_of_the_user() {
        let pool = PoolRef::named(b"default").expect("a good name");
        let expected = format!("/dev/shm/vshmem.{}/default", sys::effective_user());
        assert_eq!(pool.path().to_str(), Ok(expected.as_str()));
        assert_eq!(pool.name(), b"default");
        assert_eq!(pool.origin(), Origin::Name);
        assert_eq!(pool.to_string(), format!("default ({expected})"));
    }

    #[test]
    fn bad_names_are_refused() {
        for bad in [&b""[..], b"a b", b"a:b", b"\xff", b"a\0", b".", b"..", &[b'a'; NAME_MAX + 1]] {
            assert_eq!(PoolRef::named(bad).err(), Some(ResolveError::BadName), "{bad:?}");
        }
        assert!(PoolRef::named(&[b'a'; NAME_MAX]).is_ok());
    }

    #[test]
    fn paths_become_absolute() {
        let pool = PoolRef::local(b"/run/pool").expect("a path");
        assert_eq!(pool.path(), c"/run/pool");
        assert_eq!((pool.origin(), pool.name()), (Origin::Path, &b""[..]));
        let relative = PoolRef::local(b"./pool").expect("a relative path");
        let here = std::env::current_dir().expect("a working directory");
        let expected: String = format!("{}/./pool", here.display());
        assert_eq!(relative.path().to_str(), Ok(expected.as_str()));
    }

    #[test]
    fn long_and_broken_paths_are_refused() {
        let mut long = vec![b'/'; PATH_MAX];
        assert_eq!(PoolRef::at(&long).err(), Some(ResolveError::PathTooLong));
        long.pop();
        assert!(PoolRef::at(&long).is_ok());
        assert_eq!(PoolRef::at(b"/a\0b").err(), Some(ResolveError::PathTooLong));
        assert_eq!(PoolRef::at(b"").err(), Some(ResolveError::BadName));
    }
}
