//! The memory of a template: a file without a name, which machines map privately once it is sealed.

use rustix::fs::{
    fallocate, fcntl_add_seals, ftruncate, memfd_create, seek, FallocateFlags, MemfdFlags, SealFlags,
    SeekFrom,
};
use rustix::io::{pread, pwrite, Errno};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use twox_hash::XxHash3_128;

/// The size of a page.
const PAGE: usize = 4096;
/// Bytes that are copied at a time.
const PART: usize = 1 << 20;

/// New memory of this size, all zeros, which can be written until it is sealed.
pub fn create(bytes: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(c"vshmem-template", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes)?;
    Ok(file)
}

/// Seals memory: nobody can change it any more. It fails while somebody has it mapped to write.
pub fn seal(file: impl AsFd) -> io::Result<()> {
    Ok(fcntl_add_seals(file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?)
}

/// Gives back pages of zeros.
pub fn drop_zeros(file: impl AsFd) -> io::Result<()> {
    let file = file.as_fd();
    for_data(file, &mut |at, bytes| {
        let mut run: Option<u64> = None;
        let starts = (at..).step_by(PAGE);
        let pages = starts.zip(bytes.chunks(PAGE).map(is_zero).chain([false]));
        for (at, zero) in pages {
            match (zero, run) {
                (true, None) => run = Some(at),
                (false, Some(from)) => {
                    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(file, punch, from, at - from)?;
                    run = None;
                }
                _ => (),
            }
        }
        Ok(())
    })
}

/// Copies what is not zero, and nothing else: the copy, which has the same size and is all zeros, gets the
/// same holes. Returns a hash of what was copied and where it lies.
pub fn copy(from: impl AsFd, to: impl AsFd) -> io::Result<String> {
    let to = to.as_fd();
    let mut hasher = XxHash3_128::new();
    for_data(from.as_fd(), &mut |at, bytes| {
        // Holes of a file may begin elsewhere in its copy: what is hashed is what is not zero.
        for (at, page) in (at..).step_by(PAGE).zip(bytes.chunks(PAGE)).filter(|(_, page)| !is_zero(page)) {
            hasher.write(&at.to_le_bytes());
            hasher.write(page);
        }
        write_all(to, bytes, at)
    })?;
    Ok(format!("{:032x}", hasher.finish_128()))
}

fn is_zero(page: &[u8]) -> bool {
    let (head, words, tail) = {
        // SAFETY: any bytes are valid integers.
        unsafe { page.align_to::<u64>() }
    };
    head.iter().chain(tail).all(|byte| *byte == 0) && words.iter().all(|word| *word == 0)
}

/// Calls `each` with all parts of a file that are no holes, in pages but for the last one, and where they
/// begin.
fn for_data(file: impl AsFd, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let file = file.as_fd();
    let mut buffer = vec![0; PART];
    let mut end = 0;
    loop {
        let begin = match seek(file, SeekFrom::Data(end)) {
            Ok(begin) => begin / PAGE as u64 * PAGE as u64,
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        end = seek(file, SeekFrom::Hole(begin))?;
        let mut at = begin;
        while at < end {
            let wanted = (end - at).min(PART as u64) as usize;
            let mut filled = 0;
            while filled < wanted {
                match pread(file, &mut buffer[filled..wanted], at + filled as u64)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    len => filled += len,
                }
            }
            each(at, &buffer[..filled])?;
            at += filled as u64;
        }
    }
}

fn write_all(file: impl AsFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let len = pwrite(&file, bytes, at)?;
        (bytes, at) = (&bytes[len..], at + len as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use std::fs::File;
    use std::io::Read;

    const SIZE: usize = 64 * PAGE;

    fn blocks(file: &OwnedFd) -> i64 {
        fstat(file).unwrap().st_blocks * 512
    }

    #[test]
    fn only_what_is_not_zero_takes_memory() {
        let memory = create(SIZE as u64).unwrap();
        write_all(&memory, &[0; 8 * PAGE], 0).unwrap();
        write_all(&memory, &[7; PAGE], 3 * PAGE as u64).unwrap();
        write_all(&memory, &[9; 2], 63 * PAGE as u64 + 5).unwrap();
        assert_eq!(blocks(&memory), 9 * PAGE as i64);
        drop_zeros(&memory).unwrap();
        assert_eq!(blocks(&memory), 2 * PAGE as i64);
        let copied = create(SIZE as u64).unwrap();
        let hash = copy(&memory, &copied).unwrap();
        assert_eq!(blocks(&copied), 2 * PAGE as i64);
        let mut all = vec![];
        File::from(copied.try_clone().unwrap()).read_to_end(&mut all).unwrap();
        let mut expected = vec![0; SIZE];
        expected[3 * PAGE..4 * PAGE].fill(7);
        expected[63 * PAGE + 5..63 * PAGE + 7].fill(9);
        // What was copied by offsets is read from the beginning.
        assert!(all == expected);
        assert_eq!(copy(&copied, create(SIZE as u64).unwrap()).unwrap(), hash);
        write_all(&copied, &[1], 0).unwrap();
        assert_ne!(copy(&copied, create(SIZE as u64).unwrap()).unwrap(), hash);
    }

    #[test]
    fn sealed_memory_stays_as_it_is() {
        let memory = create(SIZE as u64).unwrap();
        write_all(&memory, &[7; PAGE], 0).unwrap();
        seal(&memory).unwrap();
        assert!(write_all(&memory, &[8], 0).is_err() && ftruncate(&memory, 0).is_err());
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
        let again = File::options().read(true).write(true).open(path).unwrap();
        assert!(write_all(&again, &[8], 0).is_err());
        // SAFETY: the kernel chooses the place of a new mapping, which stays until the process ends.
        let shared = unsafe {
            use rustix::mm::{mmap, MapFlags, ProtFlags};
            mmap(std::ptr::null_mut(), SIZE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &again, 0)
        };
        assert!(shared.is_err());
    }
}
