//! A pool of this host that can be given to machines.

use crate::pools;
use crate::view::OpenPool;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Error, Result};
use vshmem_transport::dax::Dax;
use vshmem_transport::{resolve, PoolRef, Transport};

/// A pool of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPool {
    /// Its name in machines, unless they get another.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its size in bytes: a power of two, where it has no transport of its own.
    pub size: u64,
    /// The transport that its file was made for, if not the launcher's default.
    pub transport: Option<String>,
}

/// The hint if there is not enough memory for a whole pool.
pub const UNRESERVED: &str = "Free some, or make a smaller pool. Without --reserve its memory is taken where it is used, and a machine that finds none then is killed.";

/// The longest name of a pool.
const MAX_LENGTH: usize = 64;

impl HostPool {
    /// The pool of this name or path. It must exist and have a size that devices can have.
    pub fn find(pool: &str) -> Result<HostPool> {
        let none = |why: String| error!("there is no pool {pool}: {why}").code(1);
        let found = resolve(pool.as_bytes()).map_err(|e| none(e.to_string()))?;
        let path = file_of(&found);
        let meta = fs::metadata(&path).map_err(|e| {
            none(format!("{}: {e}", path.display()))
                .hint(format!("Make one with: vshmem pool create {pool} --size 256M"))
        })?;
        let size = OpenPool::open(&found)?.size();
        // Something stands before it for the kernels of machines.
        let transport = (size < meta.len()).then(|| Dax.name().to_owned());
        if transport.is_none() && !size.is_power_of_two() {
            let text = format!("the pool {pool} has {size} bytes, and a machine's device has a power of two");
            return Err(Error::new(text)
                .hint("Make another one, for instance with: vshmem pool create NAME --size 1G"));
        }
        let name = match found.name() {
            [] => name_of(&path),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        Ok(HostPool { name, path, size, transport })
    }

    /// Backs all of it with memory: on a full host, a machine that touches an unbacked page is killed.
    pub fn reserve(&self) -> Result<()> {
        pools::reserve(&self.path.to_string_lossy(), UNRESERVED)
    }

    /// Gives the pool another name in machines, if there is one.
    ///
    /// # Errors
    /// Its name can't be a pool's in machines.
    pub fn with_name(mut self, name: Option<&str>) -> Result<HostPool> {
        if let Some(name) = name {
            self.name = name.into();
        }
        check_name(&self.name)?;
        Ok(self)
    }
}

/// The file of a pool's name or path; it need not exist any more.
pub fn path_of(pool: &str) -> Option<PathBuf> {
    resolve(pool.as_bytes()).ok().map(|found| file_of(&found))
}

fn file_of(pool: &PoolRef) -> PathBuf {
    let path = Path::new(std::ffi::OsStr::from_bytes(pool.path().to_bytes()));
    path.canonicalize().unwrap_or_else(|_| path.into())
}

/// The name of a pool that was given by its path.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into()
}

/// An error unless it can be a pool's name in machines.
pub fn check_name(name: &str) -> Result<()> {
    let fine = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    // The name of a file in machines and, with others before it, here.
    let why = match name {
        "." | ".." => ": it is that of a directory",
        _ if (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(fine) => return Ok(()),
        _ => "",
    };
    Err(error!("{name:?} can't be the name of a machine's pool{why}")
        .code(2)
        .hint("A name has 1 to 64 letters, digits, '.', '-' and '_'. Choose one with --as."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_names() {
        assert_eq!(name_of(Path::new("/dev/shm/vshmem.0/work")), "work");
        assert_eq!(name_of(Path::new("/dev/shm/vshmem.0/a.b")), "a.b");
        assert_eq!(name_of(Path::new("/tmp/pool")), "pool");
    }

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        for name in ["", ".", "..", "a b", "a/b", "a,b", "a=b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["a.b-c_D9", "...", ".a"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
