//! The head of a pool's file that virtual machines are shown as persistent memory. In it is the block by
//! which their kernels find that the rest is a DAX device, and how that is mapped.
//!
//! The block is Linux's `struct nd_pfn_sb` (`drivers/nvdimm/pfn.h`), 4 KiB into the file. It says that a
//! kernel keeps its own records of the memory's pages in its own memory (mode `PFN_MODE_RAM`), what the
//! device is mapped in multiples of, and that it begins after 2 MiB. Members of the pool can write to it, so
//! a kernel must be told what to expect there; one that takes what it finds can be told to keep its records
//! in the pool.

use vshmem_pool::layout::MAGIC;

use crate::sys;

/// Length in bytes.
pub const HEAD: u64 = 2 << 20;
/// The offset of the block in the file.
pub(crate) const BLOCK_AT: u64 = 4096;
/// Bytes of the block.
const BLOCK: usize = 4096;
/// The identifier by which a kernel tells DAX devices of pools from others.
pub const UUID: [u8; 16] =
    [0xd4, 0x0c, 0x5e, 0x71, 0x2b, 0x93, 0x4f, 0x0a, 0x8c, 0x36, 0x76, 0x73, 0x68, 0x6d, 0x65, 0x6d];

/// Bytes that a file has before the pool: those of a head, if no pool begins without.
pub(crate) fn length(fd: i32, file_len: u64) -> u64 {
    let begins = |at: u64| {
        let mut magic = [0; 8];
        let len = sys::read_at(fd, &mut magic, at);
        len == Ok(magic.len()) && u64::from_le_bytes(magic) == MAGIC
    };
    match file_len > HEAD && !begins(0) && begins(HEAD) {
        true => HEAD,
        false => 0,
    }
}

/// The block of a file that has a pool of `size` bytes behind its head, whose segments are aligned to
/// `align`. The device is to be mapped in large pages if that is no less.
pub(crate) fn block(size: u64, align: u64) -> [u8; BLOCK] {
    const LARGE_PAGE: u32 = HEAD as u32;
    /// `PFN_MODE_RAM`.
    const IN_MEMORY: u32 = 1;
    const PAGE: u32 = 4096;
    /// Bytes of Linux's record of a page; smaller ones find room in as much.
    const RECORD: u16 = 64;
    const CHECKSUM_AT: usize = 4088;
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"NVDIMM_DAX_INFO\0");
    put(16, &UUID);
    // Version 1.4.
    put(52, &1u16.to_le_bytes());
    put(54, &4u16.to_le_bytes());
    put(56, &HEAD.to_le_bytes());
    put(64, &(size / u64::from(PAGE)).to_le_bytes());
    put(72, &IN_MEMORY.to_le_bytes());
    let unit = if align < HEAD { PAGE } else { LARGE_PAGE };
    put(84, &unit.to_le_bytes());
    put(88, &PAGE.to_le_bytes());
    put(92, &RECORD.to_le_bytes());
    let sum = fletcher64(&block);
    block[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Linux's `nd_fletcher64`, of little-endian words.
fn fletcher64(bytes: &[u8]) -> u64 {
    let (mut low, mut high) = (0u32, 0u64);
    for word in bytes.chunks_exact(4) {
        low = low.wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        high = high.wrapping_add(u64::from(low));
    }
    high << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Owned;

    /// The block is that of Linux 6.1 for a device of 64 MiB, besides its identifier.
    #[test]
    fn the_block_is_what_linux_writes() {
        let mut ours = block(64 << 20, 4096);
        let words = |at: usize| u64::from_le_bytes(ours[at..at + 8].try_into().expect("eight"));
        assert_eq!(words(48), 0x0004_0001_0000_0000);
        assert_eq!((words(56), words(64)), (2 << 20, 0x4000));
        assert_eq!((words(72), words(80), words(88)), (1, 0x1000 << 32, 0x40_0000_1000));
        ours[16..32].copy_from_slice(&[
            0x2d, 0x1c, 0x8f, 0xa2, 0x7a, 0x3d, 0x4a, 0x0e, 0x9c, 0x58, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        ]);
        ours[4088..].fill(0);
        assert_eq!(fletcher64(&ours), 0x4001_4a33_aa72_65c0);
    }

    #[test]
    fn the_block_says_how_the_device_is_mapped() {
        let unit = |align| u32::from_le_bytes(block(64 << 20, align)[84..88].try_into().expect("four"));
        assert_eq!([0, 4096, 1 << 20, 2 << 20, 1 << 30].map(unit), [4096, 4096, 4096, 2 << 20, 2 << 20]);
    }

    #[test]
    fn a_head_counts_only_before_a_pool() {
        let file = Owned::new(sys::memory_file(c"head").expect("a memory file"));
        let len = HEAD + (1 << 20);
        sys::truncate(file.fd(), len).expect("sparse");
        assert_eq!(length(file.fd(), len), 0, "no pool at all");
        let write = |at: u64| {
            sys::seek(file.fd(), at, libc::SEEK_SET).expect("there");
            sys::write(file.fd(), &MAGIC.to_le_bytes()).expect("written");
        };
        write(HEAD);
        assert_eq!(length(file.fd(), len), HEAD);
        assert_eq!(length(file.fd(), HEAD), 0, "nothing behind it");
        write(0);
        assert_eq!(length(file.fd(), len), 0, "a pool without a head");
    }
}
