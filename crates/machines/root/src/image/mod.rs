//! An EROFS image of a tree: its metadata, and where in it the host's files lie.
//!
//! ```text
//! superblock, inodes with attributes, targets of links,    directories'  shared        files, in the order
//! small directories                                        blocks        attributes    of their inodes
//! |<---------------------------- metadata, in a file ------------------------------->|<- read when asked for ->|
//! ```

mod attributes;
mod directories;
mod format;

use crate::tree::{chunk_bits, Node, Tree, LINK, SPARSE};
use attributes::Attributes;
use format::{Inode, Layout, Super, BLOCK, HOLE, INODE, SLOT, SUPER_LENGTH, SUPER_OFFSET};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use twox_hash::XxHash3_128;
use vshmem_base::error::{error, Explain, Result};

/// A run of blocks of an image whose contents a file of the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its first block in the image.
    pub block: u32,
    /// How many there are.
    pub blocks: u32,
    /// The file.
    pub node: u32,
    /// Where it begins in the file, in blocks.
    pub offset: u64,
}

/// An image.
#[derive(Debug)]
pub struct Image {
    /// Its metadata, from its beginning on.
    metadata: File,
    /// Blocks of metadata.
    metadata_blocks: u32,
    /// Blocks in all.
    blocks: u32,
    /// In the order of their blocks, without gaps from the end of the metadata on.
    extents: Vec<Extent>,
    id: [u8; 16],
}

/// Where the inodes of a tree are, and the blocks that belong to them.
struct Plan {
    /// The number of each inode.
    slots: Vec<u32>,
    /// The first block of each file, directory or long link; that of its index, for a sparse file none.
    blocks: Vec<u32>,
    /// Sizes of directories, by their nodes.
    sizes: std::collections::HashMap<u32, u64>,
    extents: Vec<Extent>,
    directories: u32,
    shared: u32,
    metadata: u32,
    all: u32,
}

impl Image {
    /// Makes the image of a tree, and writes its metadata to an empty file.
    pub fn make(tree: &Tree, metadata: File) -> Result<Image> {
        let attributes = Attributes::of(tree);
        let plan = Plan::of(tree, &attributes)?;
        let mut out = Writer::new(metadata);
        let failed = || "could not write the metadata of a machine's file system".to_string();
        plan.write(tree, &attributes, &mut out).explain(failed)?;
        let (mut metadata, mut hash) = out.finish().explain(failed)?;
        for node in tree.nodes.iter().filter(|node| node.has_contents()) {
            hash.write(&node.stamp.inode.to_le_bytes());
            hash.write(&node.stamp.ctime.seconds.to_le_bytes());
            hash.write(&node.stamp.ctime.nanoseconds.to_le_bytes());
        }
        let id = hash.finish_128().to_le_bytes();
        plan.finish(tree, id, &mut metadata).explain(failed)?;
        let Plan { metadata: metadata_blocks, all: blocks, extents, .. } = plan;
        Ok(Image { metadata, metadata_blocks, blocks, extents, id })
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        u64::from(self.blocks) * BLOCK
    }

    /// Bytes of its metadata.
    pub fn metadata_length(&self) -> u64 {
        u64::from(self.metadata_blocks) * BLOCK
    }

    /// The file that has its metadata.
    pub fn metadata(&self) -> &File {
        &self.metadata
    }

    /// Its id, in hexadecimal digits: another tree, or one whose files have changed, has another.
    pub fn id(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The run that has a block, which lies behind the metadata.
    pub fn extent_of(&self, block: u32) -> Option<&Extent> {
        let after = self.extents.partition_point(|extent| extent.block <= block);
        let extent = self.extents.get(after.checked_sub(1)?)?;
        (block - extent.block < extent.blocks).then_some(extent)
    }

    /// Bytes of memory that it takes, without what the kernel keeps of its metadata.
    pub fn memory(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>()
    }
}

impl Plan {
    fn of(tree: &Tree, attributes: &Attributes) -> Result<Plan> {
        let too_large = || error!("a machine's tree has more files than an image can hold");
        let mut slots = Vec::with_capacity(tree.len());
        let mut blocks = vec![0; tree.len()];
        let mut sizes = std::collections::HashMap::new();
        let mut at = SUPER_OFFSET + SUPER_LENGTH;
        for (number, node) in (0u32..).zip(&tree.nodes) {
            let size = match node.is_directory() {
                true => directories::size(tree, number, node),
                false => tree.target(node).len() as u64,
            };
            if node.is_directory() {
                sizes.insert(number, size);
            }
            let fixed = INODE + attributes.behind(node.attributes).len() as u64;
            // What stands behind an inode lies in one block, or in blocks of its own.
            let (inline, length) = match inline_length(fixed, size) {
                _ if node.has(SPARSE) => (0, fixed.next_multiple_of(4) + tree.chunks_of(node) * 4),
                inline => (inline, fixed + inline),
            };
            if inline > 0 && at % BLOCK + length > BLOCK {
                at = at.next_multiple_of(BLOCK);
            }
            slots.push(u32::try_from(at / SLOT).map_err(|_| too_large())?);
            at = (at + length).next_multiple_of(SLOT);
        }
        // Blocks that directories and long links need beside.
        let directories = at.div_ceil(BLOCK);
        let mut next = directories;
        for (number, node) in (0u32..).zip(&tree.nodes) {
            let size = sizes.get(&number).copied().unwrap_or(tree.target(node).len() as u64);
            let fixed = INODE + attributes.behind(node.attributes).len() as u64;
            let beside = size - inline_length(fixed, size);
            if beside > 0 {
                blocks[number as usize] = u32::try_from(next).map_err(|_| too_large())?;
                next += beside.div_ceil(BLOCK);
            }
        }
        let shared = next;
        let metadata = shared + (attributes.shared.len() as u64).div_ceil(BLOCK);
        let (all, extents) = place_contents(tree, metadata, &mut blocks);
        let fits = |blocks: u64| u32::try_from(blocks).map_err(|_| too_large());
        let (directories, shared, metadata) = (fits(directories)?, fits(shared)?, fits(metadata)?);
        Ok(Plan { slots, blocks, sizes, extents, directories, shared, metadata, all: fits(all)? })
    }

    /// Writes the metadata, all but the superblock.
    fn write(&self, tree: &Tree, attributes: &Attributes, out: &mut Writer) -> std::io::Result<()> {
        let number_of = |node: u32| self.slots[node as usize].into();
        for (number, node) in (0u32..).zip(&tree.nodes) {
            let behind = attributes.behind(node.attributes);
            let fixed = INODE + behind.len() as u64;
            out.pad_to(u64::from(self.slots[number as usize]) * SLOT)?;
            let data = match (node.is_directory(), node.kind()) {
                (true, _) => directories::encode(tree, number, node, &number_of),
                (_, LINK) => tree.target(node).to_vec(),
                _ => vec![],
            };
            let inline = inline_length(fixed, data.len() as u64);
            out.put(&self.inode(tree, number, behind.len() as u64, inline > 0).encode())?;
            out.put(behind)?;
            if node.has(SPARSE) {
                out.pad_to(out.at.next_multiple_of(4))?;
                self.write_index(tree, number, node, out)?;
            }
            out.put(&data[data.len() - inline as usize..])?;
        }
        out.pad_to(u64::from(self.directories) * BLOCK)?;
        for (number, node) in (0u32..).zip(&tree.nodes) {
            if self.blocks[number as usize] == 0 || !(node.is_directory() || node.kind() == LINK) {
                continue;
            }
            out.pad_to(u64::from(self.blocks[number as usize]) * BLOCK)?;
            let data = match node.is_directory() {
                true => directories::encode(tree, number, node, &number_of),
                false => tree.target(node).to_vec(),
            };
            let fixed = INODE + attributes.behind(node.attributes).len() as u64;
            let beside = data.len() as u64 - inline_length(fixed, data.len() as u64);
            out.put(&data[..beside as usize])?;
        }
        out.pad_to(u64::from(self.shared) * BLOCK)?;
        out.put(&attributes.shared)?;
        out.pad_to(u64::from(self.metadata) * BLOCK)
    }

    fn inode(&self, tree: &Tree, number: u32, attributes: u64, is_inline: bool) -> Inode {
        let node = tree.node(number);
        let block = self.blocks[number as usize];
        let size = match self.sizes.get(&number) {
            Some(size) => *size,
            None if node.kind() == LINK => tree.target(node).len() as u64,
            None => node.stamp.size,
        };
        let layout = match node.kind() {
            0o020000 | 0o060000 => Layout::Device(node.device_number),
            _ if node.has(SPARSE) => Layout::Chunks(chunk_bits(node.stamp.size) - BLOCK.ilog2()),
            _ if is_inline => Layout::Inline(block),
            _ => Layout::Plain(block),
        };
        let (mode, links) = (node.mode, node.links);
        let (uid, gid, mtime) = (node.uid, node.gid, node.stamp.mtime);
        Inode { layout, attributes, mode, size, number: number + 1, uid, gid, mtime, links }
    }

    /// The blocks of a sparse file's chunks.
    fn write_index(&self, tree: &Tree, number: u32, node: &Node, out: &mut Writer) -> std::io::Result<()> {
        let bits = chunk_bits(node.stamp.size) - BLOCK.ilog2();
        let (mut chunk, mut block) = (0, self.blocks[number as usize]);
        let end = tree.chunks_of(node);
        for run in tree.runs(node) {
            for _ in chunk..run.first {
                out.put(&HOLE.to_le_bytes())?;
            }
            for _ in 0..run.count {
                out.put(&block.to_le_bytes())?;
                block = block.wrapping_add(1 << bits);
            }
            chunk = run.first + run.count;
        }
        for _ in chunk..end {
            out.put(&HOLE.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes the superblock, once the id is known.
    fn finish(&self, tree: &Tree, id: [u8; 16], metadata: &mut File) -> std::io::Result<()> {
        let mut block = [0; BLOCK as usize];
        metadata.read_exact_at(&mut block, 0)?;
        let superblock = Super {
            root: self.slots[0] as u16,
            inodes: tree.len() as u64,
            blocks: self.all,
            shared: self.shared,
            id,
            has_chunks: tree.nodes.iter().any(|node| node.has(SPARSE)),
        };
        let at = SUPER_OFFSET as usize;
        block[at..at + SUPER_LENGTH as usize].copy_from_slice(&superblock.encode());
        format::seal(&mut block);
        metadata.write_all_at(&block, 0)
    }
}

/// How much of a directory or a link stands behind its inode: the part of it that fills no block, unless that
/// does not fit in a block with the inode.
fn inline_length(fixed: u64, size: u64) -> u64 {
    let rest = size % BLOCK;
    if fixed + rest <= BLOCK {
        rest
    } else {
        0
    }
}

/// Gives the files' contents their blocks, from a block on. Returns the block behind the last one.
fn place_contents(tree: &Tree, from: u64, blocks: &mut [u32]) -> (u64, Vec<Extent>) {
    let mut extents = Vec::new();
    let mut next = from;
    for (number, node) in (0u32..).zip(&tree.nodes).filter(|(_, node)| node.has_contents()) {
        blocks[number as usize] = next as u32;
        let all = node.stamp.size.div_ceil(BLOCK);
        let mut add = |offset: u64, count: u64| {
            extents.push(Extent { block: next as u32, blocks: count as u32, node: number, offset });
            next += count;
        };
        if !node.has(SPARSE) {
            add(0, all);
            continue;
        }
        let bits = chunk_bits(node.stamp.size) - BLOCK.ilog2();
        for run in tree.runs(node) {
            add(run.first << bits, run.count << bits);
        }
    }
    (next, extents)
}

/// Writes metadata in their order, and hashes them.
struct Writer {
    out: BufWriter<File>,
    hash: XxHash3_128,
    at: u64,
}

impl Writer {
    fn new(file: File) -> Writer {
        Writer { out: BufWriter::with_capacity(1 << 20, file), hash: XxHash3_128::new(), at: 0 }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.write(bytes);
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad_to(&mut self, to: u64) -> std::io::Result<()> {
        while self.at < to {
            let some = (to - self.at).min(BLOCK);
            self.put(&[0; BLOCK as usize][..some as usize])?;
        }
        Ok(())
    }

    fn finish(self) -> std::io::Result<(File, XxHash3_128)> {
        let file = self.out.into_inner().map_err(|error| error.into_error())?;
        Ok((file, self.hash))
    }
}
