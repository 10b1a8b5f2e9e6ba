//! EROFS on the disk (Linux' fs/erofs/erofs_fs.h): an image without compression, as Linux 5.15 and newer read
//! it.

use crate::tree::{Attribute, Time};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Where the superblock begins.
pub const SUPER_OFFSET: u64 = 1024;
/// Its length.
pub const SUPER_LENGTH: u64 = 128;
/// Bytes of an inode that has its own times.
pub const INODE: u64 = 64;
/// Inodes begin at multiples of this; the multiple is an inode's number.
pub const SLOT: u64 = 32;
/// Bytes of a name's entry in a directory, without the name.
pub const DIRENT: u64 = 12;
/// Bytes before an inode's attributes.
pub const ATTRIBUTES_HEADER: u64 = 12;
/// A chunk of a sparse file that is a hole.
pub const HOLE: u32 = u32::MAX;

const MAGIC: u32 = 0xe0f5_e1e2;
const COMPATIBLE_CHECKSUM: u32 = 1;
const COMPATIBLE_MTIME: u32 = 2;
const INCOMPATIBLE_CHUNKED: u32 = 4;

/// How an inode's data are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// In blocks that follow each other, of which this is the first.
    Plain(u32),
    /// The same, and what is left behind the inode.
    Inline(u32),
    /// In chunks, whose first blocks stand behind the inode, with this binary logarithm of their blocks.
    Chunks(u32),
    /// None: the number of a device.
    Device(u32),
}

/// What stands in the superblock.
pub struct Super {
    pub root: u16,
    pub inodes: u64,
    pub blocks: u32,
    pub shared: u32,
    pub id: [u8; 16],
    pub has_chunks: bool,
}

/// What stands in an inode.
pub struct Inode {
    pub layout: Layout,
    /// Bytes of its attributes, with their header.
    pub attributes: u64,
    pub mode: u32,
    pub size: u64,
    pub number: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    pub links: u32,
}

impl Super {
    /// The superblock. Its checksum is set once the rest of its block is known.
    pub fn encode(&self) -> [u8; SUPER_LENGTH as usize] {
        let mut out = [0; SUPER_LENGTH as usize];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_le_bytes());
        put(8, &(COMPATIBLE_CHECKSUM | COMPATIBLE_MTIME).to_le_bytes());
        put(12, &[BLOCK.ilog2() as u8, 0]);
        put(14, &self.root.to_le_bytes());
        put(16, &self.inodes.to_le_bytes());
        // The time of inodes without their own (24), and the first block of metadata (40), stay 0.
        put(36, &self.blocks.to_le_bytes());
        put(44, &self.shared.to_le_bytes());
        put(48, &self.id);
        put(64, b"vshmem-root");
        put(80, &if self.has_chunks { INCOMPATIBLE_CHUNKED } else { 0 }.to_le_bytes());
        out
    }
}

/// Sets the checksum in the image's first block.
pub fn seal(block: &mut [u8; BLOCK as usize]) {
    let (from, at) = (SUPER_OFFSET as usize, SUPER_OFFSET as usize + 4);
    block[at..at + 4].fill(0);
    let sum = crc32c(&block[from..]);
    block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// The checksum that begins with all ones, and is not inverted at its end.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0x82f6_3b78 * (sum & 1)))
    })
}

impl Inode {
    /// The inode, without what follows it.
    pub fn encode(&self) -> [u8; INODE as usize] {
        let (layout, union) = match self.layout {
            Layout::Plain(block) => (0, block),
            Layout::Inline(block) => (2, block),
            Layout::Chunks(bits) => (4, bits),
            Layout::Device(number) => (0, number),
        };
        let count = match self.attributes {
            0 => 0,
            bytes => 1 + (bytes - ATTRIBUTES_HEADER) / 4,
        };
        let mut out = [0; INODE as usize];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(1u16 | layout << 1).to_le_bytes());
        put(2, &(count as u16).to_le_bytes());
        put(4, &(self.mode as u16).to_le_bytes());
        put(8, &self.size.to_le_bytes());
        put(16, &union.to_le_bytes());
        put(20, &self.number.to_le_bytes());
        put(24, &self.uid.to_le_bytes());
        put(28, &self.gid.to_le_bytes());
        put(32, &self.mtime.seconds.to_le_bytes());
        put(40, &self.mtime.nanoseconds.to_le_bytes());
        put(44, &self.links.to_le_bytes());
        out
    }
}

/// Bytes of an attribute, with what aligns the next one.
pub fn attribute_length(attribute: &Attribute) -> u64 {
    (4 + attribute.name.len() as u64 + attribute.value.len() as u64).next_multiple_of(4)
}

/// Adds an attribute.
pub fn encode_attribute(attribute: &Attribute, out: &mut Vec<u8>) {
    out.extend([attribute.name.len() as u8, attribute.prefix]);
    out.extend((attribute.value.len() as u16).to_le_bytes());
    out.extend(attribute.name);
    out.extend(attribute.value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The number by which a directory says what a name's file is.
pub fn kind_in_directory(mode: u32) -> u8 {
    match mode >> 12 {
        0o10 => 1,
        0o04 => 2,
        0o02 => 3,
        0o06 => 4,
        0o01 => 5,
        0o14 => 6,
        0o12 => 7,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        // RFC 3720, B.4: inverted there.
        assert_eq!(!crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }
}
