//! The directory entry of a local pool's file: a descriptor of the directory, and a name for the `*at` system
//! calls. The directory stays the same one, whatever its path leads to meanwhile.
//!
//! Named pools lie in a directory of the user's own, `/dev/shm/vshmem.UID`. Any user can create something of
//! that name in `/dev/shm`, so it is only used if it is a directory of that user, and no other user can write
//! to it.

use core::ffi::CStr;

use crate::descriptor::Owned;
use crate::error::{CreateError, DiscoverError, OpenError, RemoveError};
use crate::pool_ref::{own_directory, Origin, Path, PoolRef};
use crate::sys::{self, Errno};

/// The flags that open a directory which serves for looking up names.
const FLAGS: i32 = libc::O_PATH | libc::O_DIRECTORY;

/// Reasons for which the directory can't be opened.
#[derive(Debug)]
pub(crate) enum EntryError {
    /// The name of the user's own directory leads to something that can't be trusted.
    NotOwn,
    /// The kernel's error.
    System(Errno),
}

impl From<Errno> for EntryError {
    fn from(errno: Errno) -> Self {
        EntryError::System(errno)
    }
}

/// Makes an error of the reason why an entry can't be had.
macro_rules! from_entry_error {
    ($($name:ident)*) => {
        $(impl From<EntryError> for $name {
            fn from(why: EntryError) -> Self {
                match why {
                    EntryError::NotOwn => $name::NotOwnDirectory,
                    EntryError::System(errno) => errno.into(),
                }
            }
        })*
    };
}

from_entry_error! { OpenError CreateError RemoveError DiscoverError }

/// A directory, and the name of a pool's file in it.
pub(crate) struct Entry {
    directory: Owned,
    name: Path,
}

impl Entry {
    /// The entry that a local pool's file has, or would have.
    pub fn of(pool: &PoolRef) -> Result<Entry, EntryError> {
        let (directory, name) = split_path(pool.path_text()).ok_or(Errno(libc::ENOENT))?;
        let directory = match pool.origin() {
            Origin::Name => open_own_directory()?,
            _ => Owned::new(sys::open(directory.c_str(), FLAGS, 0)?),
        };
        Ok(Entry { directory, name })
    }

    /// The entry of a file that is to be created; the directory of named pools is created, too.
    pub fn for_new(pool: &PoolRef) -> Result<Entry, EntryError> {
        if pool.origin() == Origin::Name {
            let path = own_directory().ok_or(Errno(libc::EINVAL))?;
            match sys::make_directory(path.c_str(), 0o700) {
                // Whether it is this user's is checked when it is opened.
                Err(Errno(libc::EEXIST)) => {}
                outcome => outcome?,
            }
        }
        Entry::of(pool)
    }

    /// The directory.
    pub fn directory(&self) -> i32 {
        self.directory.fd()
    }

    /// The name in it.
    pub fn name(&self) -> &CStr {
        self.name.c_str()
    }
}

/// Whether there is a file of any kind under a local pool's name.
pub(crate) fn exists(pool: &PoolRef) -> bool {
    Entry::of(pool).is_ok_and(|entry| sys::lstat_at(entry.directory(), entry.name()).is_ok())
}

/// Opens the directory of the effective user's named pools.
pub(crate) fn open_own_directory() -> Result<Owned, EntryError> {
    let path = own_directory().ok_or(Errno(libc::EINVAL))?;
    let directory = match sys::open(path.c_str(), FLAGS | libc::O_NOFOLLOW, 0) {
        Err(Errno(libc::ENOTDIR | libc::ELOOP)) => return Err(EntryError::NotOwn),
        opened => Owned::new(opened?),
    };
    let stat = sys::fstat(directory.fd())?;
    const OTHERS_WRITE: u32 = 0o022;
    match stat.st_uid == sys::effective_user() && stat.st_mode & OTHERS_WRITE == 0 {
        true => Ok(directory),
        false => Err(EntryError::NotOwn),
    }
}

/// The directory of an absolute path, and the name in it.
pub(crate) fn split_path(path: &Path) -> Option<(Path, Path)> {
    let bytes = path.bytes();
    let slash = bytes.iter().rposition(|&c| c == b'/')?;
    let (mut directory, mut name) = (Path::new(), Path::new());
    directory.push(&bytes[..slash.max(1)])?;
    name.push(&bytes[slash + 1..])?;
    Some((directory, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split() {
        for (path, directory, name) in [
            (&b"/a"[..], c"/", c"a"),
            (b"/a/b", c"/a", c"b"),
            (b"/a/b/c", c"/a/b", c"c"),
            (b"/a/", c"/a", c""),
        ] {
            let mut text = Path::new();
            assert_eq!(text.push(path), Some(()));
            let parts = split_path(&text).expect("an absolute path");
            assert_eq!((parts.0.c_str(), parts.1.c_str()), (directory, name));
        }
    }
}
