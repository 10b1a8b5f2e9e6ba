//! Where a local pool's file is: a name in a directory that is held open, so that nobody puts another one in its place meanwhile.
//!
//! Named pools are in a directory of the user's own, `/dev/shm/vshmem.UID`. `/dev/shm` is everybody's, so whoever comes first can make
//! something of that name: it is only used if it is a directory of that user's that nobody else can write to.

use core::ffi::CStr;

use crate::descriptor::Owned;
use crate::pool_ref::{own_directory, Origin, Path, PoolRef};
use crate::sys::{self, Errno};

/// Of a directory that is only looked up in.
const FLAGS: i32 = libc::O_PATH | libc::O_DIRECTORY;

/// Why there is no such place.
#[derive(Debug)]
pub(crate) enum NoPlace {
    /// What has the name of the user's own directory is none that can be trusted.
    NotOwn,
    /// The kernel's error.
    System(Errno),
}

impl From<Errno> for NoPlace {
    fn from(errno: Errno) -> Self {
        NoPlace::System(errno)
    }
}

/// A directory, and the name of a pool's file in it.
pub(crate) struct Place {
    directory: Owned,
    name: Path,
}

impl Place {
    /// Where the file of a local pool is, or would be.
    pub fn of(pool: &PoolRef) -> Result<Place, NoPlace> {
        let (directory, name) = split(pool.path_text()).ok_or(Errno(libc::ENOENT))?;
        let directory = match pool.origin() {
            Origin::Name => own()?,
            _ => Owned::new(sys::open(directory.c_str(), FLAGS, 0)?),
        };
        Ok(Place { directory, name })
    }

    /// The same, for a file that shall be made: the directory of named pools is made, too.
    pub fn to_make(pool: &PoolRef) -> Result<Place, NoPlace> {
        if pool.origin() == Origin::Name {
            let path = own_directory().ok_or(Errno(libc::EINVAL))?;
            match sys::make_directory(path.c_str(), 0o700) {
                // Who made it is found out by who opens it.
                Err(Errno(libc::EEXIST)) => {}
                outcome => outcome?,
            }
        }
        Place::of(pool)
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

/// Whether there is something where the file of a local pool would be.
pub(crate) fn exists(pool: &PoolRef) -> bool {
    Place::of(pool).is_ok_and(|place| sys::lstat_at(place.directory(), place.name()).is_ok())
}

/// The directory of the effective user's named pools.
pub(crate) fn own() -> Result<Owned, NoPlace> {
    let path = own_directory().ok_or(Errno(libc::EINVAL))?;
    let directory = match sys::open(path.c_str(), FLAGS | libc::O_NOFOLLOW, 0) {
        Err(Errno(libc::ENOTDIR | libc::ELOOP)) => return Err(NoPlace::NotOwn),
        opened => Owned::new(opened?),
    };
    let stat = sys::fstat(directory.fd())?;
    const OTHERS_WRITE: u32 = 0o022;
    match stat.st_uid == sys::effective_user() && stat.st_mode & OTHERS_WRITE == 0 {
        true => Ok(directory),
        false => Err(NoPlace::NotOwn),
    }
}

/// The directory of an absolute path, and what follows.
pub(crate) fn split(path: &Path) -> Option<(Path, Path)> {
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
            let parts = split(&text).expect("an absolute path");
            assert_eq!((parts.0.c_str(), parts.1.c_str()), (directory, name));
        }
    }
}
