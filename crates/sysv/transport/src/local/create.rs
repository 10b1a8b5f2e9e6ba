//! Creating a local pool so that nobody ever sees half of one.
//!
//! The file has no name, or a temporary one, until it is complete. Then it is linked under its own name,
//! which fails if another process was faster. Its contents are first written to a memory file and then
//! copied: writing through a mapping of a full file system would end the calling program by SIGBUS, where a
//! copy fails with an error.

use core::ffi::{c_void, CStr};

use vshmem_pool::{Mem, MIN_POOL};

use crate::descriptor::Owned;
use crate::error::CreateError;
use crate::head::{self, HEAD};
use crate::local::entry::Entry;
use crate::mapping::page_size_of;
use crate::pool_ref::PoolRef;
use crate::sys::{self, Errno};
use crate::text::Text;
use crate::{mapping, reserve};

/// The number of temporary names that are tried.
const TEMPORARY_NAMES: u64 = 1000;

/// Creates a local pool, given by name or, with a slash, by path. Its permissions are exactly `mode`,
/// whatever the umask is. `size` is rounded up to whole pages. The pool is sparse: only what `init` writes
/// takes memory.
///
/// `init` gets zeroed memory of the pool's length, and returns whether it could format it as a pool. It must
/// not keep the memory.
///
/// # Errors
/// See [`CreateError`]. [`CreateError::Exists`] also tells the loser of a race, who can open the winner's
/// pool at once.
pub fn create_local(
    path: &CStr,
    size: u64,
    mode: u32,
    init: &mut dyn FnMut(Mem) -> bool,
) -> Result<(), CreateError> {
    let pool = PoolRef::local(path.to_bytes()).map_err(|_| CreateError::BadName)?;
    create_resolved(&pool, size, mode, init)
}

/// Creates a local pool that was resolved. The directory of named pools is created if need be.
///
/// # Errors
/// As those of [`create_local`].
pub fn create_resolved(
    pool: &PoolRef,
    size: u64,
    mode: u32,
    init: &mut dyn FnMut(Mem) -> bool,
) -> Result<(), CreateError> {
    create(pool, None, size, mode, init)
}

/// Creates a local pool that machines are shown as persistent memory, which they map in multiples of `align`
/// or less: its file has a [`head`].
///
/// # Errors
/// As those of [`create_local`].
pub fn create_with_head(
    pool: &PoolRef,
    align: u64,
    size: u64,
    mode: u32,
    init: &mut dyn FnMut(Mem) -> bool,
) -> Result<(), CreateError> {
    // Guests' kernels take whole blocks of this size only.
    let size = size.checked_next_multiple_of(HEAD);
    create(pool, Some(align), size.ok_or(CreateError::TooLarge)?, mode, init)
}

/// The size of pages in the directory where a pool is to be made, to which segments of the pool have to be
/// aligned: larger ones on hugetlbfs.
///
/// # Errors
/// As those of [`create_local`].
pub fn page_size_for(pool: &PoolRef) -> Result<u64, CreateError> {
    Ok(page_size_of(Entry::for_new(pool)?.directory()))
}

/// Creates a pool, with a head before it that says how it is aligned, or without.
fn create(
    pool: &PoolRef,
    head: Option<u64>,
    size: u64,
    mode: u32,
    init: &mut dyn FnMut(Mem) -> bool,
) -> Result<(), CreateError> {
    if size < MIN_POOL {
        return Err(CreateError::TooSmall);
    }
    let entry = Entry::for_new(pool)?;
    if sys::lstat_at(entry.directory(), entry.name()).is_ok() {
        return Err(CreateError::Exists);
    }
    let new = NewFile::new(&entry)?;
    let begins = head.map_or(0, |_| HEAD);
    let len = set_size(&new.file, begins, size)?;
    sys::set_mode(new.file.fd(), mode & 0o777)?;
    if let Some(align) = head {
        sys::write_at(new.file.fd(), &head::block(len as u64, align), head::BLOCK_AT)?;
    }
    let contents = Contents::new(len, page_size_of(new.file.fd()))?;
    // SAFETY: so many bytes are mapped there, and stay mapped beyond the call.
    if !init(unsafe { Mem::new(contents.map.base.cast(), contents.map.len) }.beginning_of(len)) {
        return Err(match contents.map.len == len {
            true => CreateError::InitFailed,
            false => CreateError::NoMemory,
        });
    }
    contents.copy_to(&new.file, begins)?;
    new.link()
}

/// Sets a new file's length so that `size`, rounded up to whole pages, find room after `begins`; returns the
/// former.
fn set_size(file: &Owned, begins: u64, size: u64) -> Result<usize, CreateError> {
    let page = page_size_of(file.fd());
    let size = size.checked_next_multiple_of(page).ok_or(CreateError::TooLarge)?;
    if size >= crate::LIVENESS_BASE {
        return Err(CreateError::TooLarge);
    }
    set_length(file, begins + size)?;
    usize::try_from(size).map_err(|_| CreateError::TooLarge)
}

fn set_length(file: &Owned, len: u64) -> Result<(), CreateError> {
    sys::truncate(file.fd(), len).map_err(|error| match error {
        Errno(libc::EFBIG) if len > sys::longest_file() => CreateError::FileLimit,
        error => error.into(),
    })
}

/// A file without its final name. Its temporary name, if it has one, is removed on drop.
struct NewFile<'p> {
    file: Owned,
    entry: &'p Entry,
    temporary: Option<Temporary>,
}

type Temporary = Text<48>;

impl NewFile<'_> {
    /// Creates a file in the directory where it will get its name.
    fn new(entry: &Entry) -> Result<NewFile<'_>, CreateError> {
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        match sys::open_at(entry.directory(), c".", flags, 0o600) {
            Ok(fd) => Ok(NewFile { file: Owned::new(fd), entry, temporary: None }),
            // File systems without O_TMPFILE fail with the first, on old kernels with the others.
            Err(Errno(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => NewFile::with_name(entry),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file with a temporary name.
    fn with_name(entry: &Entry) -> Result<NewFile<'_>, CreateError> {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NOFOLLOW;
        for attempt in 0..TEMPORARY_NAMES {
            let name = temporary_name(attempt).ok_or(CreateError::BadName)?;
            match sys::open_at(entry.directory(), name.c_str(), flags, 0o600) {
                Ok(fd) => return Ok(NewFile { file: Owned::new(fd), entry, temporary: Some(name) }),
                Err(Errno(libc::EEXIST)) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        Err(CreateError::Exists)
    }

    /// Gives the file its name in place of the temporary one, unless there is a file of that name.
    fn link(mut self) -> Result<(), CreateError> {
        let (directory, name) = (self.entry.directory(), self.entry.name());
        if let Some(temporary) = &self.temporary {
            sys::rename_new(directory, temporary.c_str(), name)?;
            self.temporary = None;
            return Ok(());
        }
        let fd = self.file.fd();
        let mut own = Text::<32>::new();
        own.push(b"/proc/self/fd/").and_then(|()| own.push_decimal(fd as u64)).ok_or(CreateError::BadName)?;
        let follow = libc::AT_SYMLINK_FOLLOW;
        match sys::link(libc::AT_FDCWD, own.c_str(), directory, name, follow) {
            // There is no /proc. This way needs a privilege on older kernels.
            Err(Errno(libc::ENOENT)) => Ok(sys::link(fd, c"", directory, name, libc::AT_EMPTY_PATH)?),
            outcome => Ok(outcome?),
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            let _ = sys::unlink(self.entry.directory(), name.c_str());
        }
    }
}

/// A name that differs for each process and attempt, and that no pool can have.
fn temporary_name(attempt: u64) -> Option<Temporary> {
    let mut name = Temporary::new();
    name.push(b"#vshmem-")?;
    name.push_decimal(u64::from(sys::process_id()))?;
    name.push(b"-")?;
    name.push_decimal(attempt)?;
    Some(name)
}

/// A mapping that is unmapped on drop.
struct Mapping {
    base: *mut c_void,
    len: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the code that made this has mapped it, and keeps no pointer into it for longer.
        unsafe { sys::unmap(self.base as usize, self.len) };
    }
}

/// The contents of a new pool: a memory file, mapped.
struct Contents {
    file: Owned,
    map: Mapping,
}

impl Contents {
    /// `len` zeros, of which only what is written takes memory. Where there is too little address space for
    /// all of them, a part of them is mapped: structures take a fourth at the most.
    fn new(len: usize, page: u64) -> Result<Contents, CreateError> {
        let file = Owned::new(sys::memory_file(c"vshmem-new-pool")?);
        set_length(&file, len as u64)?;
        let map = |len| mapping::whole(file.fd(), 0, len).map(|base| Mapping { base, len });
        let map = match map(len) {
            Err(Errno(libc::ENOMEM)) => map((len / 4).next_multiple_of(page as usize))?,
            whole => whole?,
        };
        Ok(Contents { file, map })
    }

    /// Copies what was written to another file, where it begins `begins` bytes later.
    fn copy_to(&self, target: &Owned, begins: u64) -> Result<(), CreateError> {
        let page = page_size_of(target.fd());
        let mut at = 0;
        while let Some((from, end)) = self.next_data(at)? {
            // Copied in whole pages of the target, which may be larger than those of memory.
            let from = from / page * page;
            let end = end.next_multiple_of(page).min(self.map.len as u64);
            if !reserve::in_file(target.fd(), begins + from, end - from, page) {
                return Err(why_not_reserved(target, begins + from, page));
            }
            let len = (end - from) as usize;
            let to = Mapping { base: mapping::whole(target.fd(), begins + from, len)?, len };
            // SAFETY: the source has `end` bytes, the target as many as are copied, and they don't overlap.
            // The target's pages have been reserved, so writing them can't fail.
            unsafe {
                let source = self.map.base.cast::<u8>().add(from as usize);
                core::ptr::copy_nonoverlapping(source, to.base.cast::<u8>(), len);
            }
            at = end;
        }
        Ok(())
    }

    /// The next range that was written to, from `at` on.
    fn next_data(&self, at: u64) -> Result<Option<(u64, u64)>, CreateError> {
        if at >= self.map.len as u64 {
            return Ok(None);
        }
        let from = match sys::seek(self.file.fd(), at, libc::SEEK_DATA) {
            Err(Errno(libc::ENXIO)) => return Ok(None),
            found => found?,
        };
        let end = sys::seek(self.file.fd(), from, libc::SEEK_HOLE)?;
        Ok(Some((from, end)))
    }
}

/// Asks again for a page that could not be reserved, to learn the reason.
fn why_not_reserved(file: &Owned, offset: u64, page: u64) -> CreateError {
    match sys::allocate(file.fd(), 0, offset, page) {
        Err(error) => error.into(),
        // Only the larger request failed.
        Ok(()) => CreateError::NoRoom,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_copied_and_stay_sparse() {
        let page = sys::page_size();
        let len = 1 << 30;
        let contents = Contents::new(len, sys::page_size()).expect("memory");
        let places = [0, 5 * page, 6 * page, (len as u64) - page];
        for at in places {
            // SAFETY: inside the mapping.
            unsafe { *contents.map.base.cast::<u8>().add(at as usize) = 7 };
        }
        let target = Owned::new(sys::memory_file(c"copy").expect("memory"));
        sys::truncate(target.fd(), len as u64).expect("sparse");
        contents.copy_to(&target, 0).expect("room");
        let mut byte = [0u8];
        for at in places {
            assert_eq!(sys::seek(target.fd(), at, libc::SEEK_SET), Ok(at));
            assert_eq!(sys::read(target.fd(), &mut byte), Ok(1));
            assert_eq!(byte, [7]);
        }
        let blocks = sys::fstat(target.fd()).expect("status").st_blocks as u64;
        assert_eq!(blocks * 512, 4 * page);
    }

    #[test]
    fn a_new_file_with_a_name_leaves_nothing_behind() {
        let pool = PoolRef::at(b"/dev/shm/vshmem-file-test").expect("a path");
        let entry = Entry::of(&pool).expect("a directory");
        let there = |name: &CStr| sys::lstat_at(entry.directory(), name);
        let new = NewFile::with_name(&entry).expect("writable");
        let name = new.temporary.clone().expect("a name");
        assert!(there(name.c_str()).is_ok());
        new.link().expect("renamed");
        assert!(there(name.c_str()).is_err());
        let links = there(entry.name()).expect("under its name").st_nlink;
        assert_eq!(links, 1);
        let second = NewFile::with_name(&entry).expect("writable");
        assert_eq!(second.link(), Err(CreateError::Exists));
        assert!(there(name.c_str()).is_err());
        sys::unlink(entry.directory(), entry.name()).expect("there");
    }
}
