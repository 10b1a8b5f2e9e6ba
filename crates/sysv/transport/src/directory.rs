//! Reading directories without heap memory.

use core::ffi::CStr;

use crate::descriptor::Owned;
use crate::error::DiscoverError;
use crate::sys::{self, Errno};

/// Calls `each` with a directory's descriptor and the name of every entry until it returns `false`. A
/// directory that doesn't exist has no entries.
pub fn each_entry(directory: &CStr, each: &mut dyn FnMut(i32, &CStr) -> bool) -> Result<(), DiscoverError> {
    match sys::open(directory, libc::O_RDONLY | libc::O_DIRECTORY, 0) {
        Ok(fd) => each_entry_of(&Owned::new(fd), each),
        Err(Errno(libc::ENOENT)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Calls `each` with every entry of a directory that is open for reading, until it returns `false`.
pub(crate) fn each_entry_of(
    directory: &Owned,
    each: &mut dyn FnMut(i32, &CStr) -> bool,
) -> Result<(), DiscoverError> {
    let mut buffer = [0u8; 1024];
    loop {
        let len = sys::read_directory(directory.fd(), &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        let mut rest = buffer.get(..len).unwrap_or(&[]);
        while let Some((name, more)) = split_entry(rest) {
            if !each(directory.fd(), name) {
                return Ok(());
            }
            rest = more;
        }
    }
}

/// The name of the first `struct linux_dirent64` in a buffer, and what follows it.
fn split_entry(buffer: &[u8]) -> Option<(&CStr, &[u8])> {
    /// Offset of the entry's length, behind inode number and offset, 8 bytes each.
    const LENGTH_AT: usize = 16;
    /// Offset of the name, behind the length and a byte for the type.
    const NAME_AT: usize = 19;
    let len = buffer.get(LENGTH_AT..LENGTH_AT + 2)?;
    let len = usize::from(u16::from_ne_bytes([len[0], len[1]]));
    let name = CStr::from_bytes_until_nul(buffer.get(NAME_AT..len)?).ok()?;
    Some((name, buffer.get(len..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn entries_are_split() {
        let mut buffer = Vec::new();
        for (name, len) in [(&b"a\0"[..], 24u16), (b"bcdefg\0", 32)] {
            let start = buffer.len();
            buffer.extend_from_slice(&[0; 16]);
            buffer.extend_from_slice(&len.to_ne_bytes());
            buffer.push(8);
            buffer.extend_from_slice(name);
            buffer.resize(start + usize::from(len), 0xff);
        }
        let (name, rest) = split_entry(&buffer).expect("the first entry");
        assert_eq!(name, c"a");
        let (name, rest) = split_entry(rest).expect("the second entry");
        assert_eq!(name, c"bcdefg");
        assert!(split_entry(rest).is_none());
        assert!(split_entry(&buffer[..20]).is_none(), "a cut entry");
    }

    #[test]
    fn directories_are_read_whole() {
        let mut names = Vec::new();
        each_entry(c"/proc/self", &mut |_, name| {
            names.push(name.to_owned());
            true
        })
        .expect("readable");
        assert!(names.iter().any(|name| &**name == c"status"));
        assert!(names.len() > 30, "more than one buffer of entries: {}", names.len());
        assert_eq!(each_entry(c"/nonexistent", &mut |_, _| true), Ok(()));
    }
}
