//! Reading the names in a directory.

use rustix::fs::RawDir;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Reads directories, with one buffer.
pub struct Reader(Vec<MaybeUninit<u8>>);

impl Reader {
    pub fn new() -> Reader {
        Reader(vec![MaybeUninit::uninit(); 64 << 10])
    }

    /// The names in a directory that was opened for this, without `.` and `..`. An error ends it.
    pub fn names(&mut self, directory: &OwnedFd) -> Vec<Vec<u8>> {
        let mut entries = RawDir::new(directory, &mut self.0);
        let mut names = Vec::new();
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_bytes();
            // A file system of another kernel's may say anything.
            let is_name = (1..=255).contains(&name.len()) && !name.contains(&b'/');
            if is_name && name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names
    }
}
