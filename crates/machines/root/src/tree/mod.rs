//! What a walk has found: a table of inodes, the names in directories, and what belongs to them.
//!
//! An image is made of nothing else, so the same tree always has the same image.

mod saved;
mod sound;

#[cfg(feature = "fuzz")]
pub use saved::sealed;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Stands for no node, no set of attributes, no part.
pub const NONE: u32 = u32::MAX;
/// Bytes of the longest path in an image: Linux takes no longer one, with its NUL.
pub const MAX_PATH: usize = 4095;

/// Blocks of 4 KiB that files' contents may take in all: EROFS has numbers of 32 bits, and some are for
/// metadata.
pub(crate) const MAX_BLOCKS: u64 = (1 << 32) - (1 << 28);

/// Inodes that a tree has at most: each takes memory.
pub(crate) const MAX_NODES: usize = 1 << 24;
/// Runs of sparse files in all, ...
pub(crate) const MAX_RUNS: usize = 1 << 22;
/// ... and chunks, which have an entry each in the image.
pub(crate) const MAX_CHUNKS: u64 = 1 << 26;

/// The bits of a mode that tell what a file is.
pub const KIND: u32 = 0o170000;
/// A directory, by these bits.
pub const DIRECTORY: u32 = 0o040000;
/// A regular file.
pub const REGULAR: u32 = 0o100000;
/// A symbolic link.
pub const LINK: u32 = 0o120000;

/// A time, in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// The rest.
    pub nanoseconds: u32,
}

/// By what a file is known to be the same, and unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The file system's number.
    pub device: u64,
    /// The inode's number there.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When its contents were changed.
    pub mtime: Time,
    /// When anything of it was changed.
    pub ctime: Time,
}

/// A file of whatever kind. Its number in the tree is its inode's in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Kind and permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How many names it has in the tree; of a directory, with `.` and those `..` that mean it.
    pub links: u32,
    /// The number of a device, as Linux encodes it in 32 bits.
    pub device_number: u32,
    /// What was there at the walk. The size of what is no regular file is 0, as is all of a made directory.
    pub stamp: Stamp,
    /// Its set of extended attributes.
    pub attributes: u32,
    /// The directory in which it was found; the root has itself.
    pub parent: u32,
    /// The entry there by which it was found.
    pub entry: u32,
    /// The part that it belongs to.
    pub part: u32,
    /// Of a directory, its first entry. Of a symbolic link, where its target begins in the texts. Of a sparse
    /// file, its first run.
    pub first: u32,
    /// How many entries, bytes or runs these are.
    pub count: u32,
    /// What else is to be known of it.
    pub marks: u32,
}

/// A regular file that is shown empty: it has no contents on the host that machines may ask for.
pub const EMPTY: u32 = 1;
/// A regular file of whose blocks only runs are in the image.
pub const SPARSE: u32 = 2;
/// A directory whose entries are all names that were listed there, and no others.
pub const COMPLETE: u32 = 4;

/// A name in a directory. Those of one directory lie side by side, in the order of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What it names.
    pub node: u32,
    /// Where the name begins in the texts.
    pub name: u32,
    /// Its length.
    pub length: u8,
}

/// A part of a sparse file that has data, in chunks of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first chunk.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// A walked tree. Node 0 is its root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// What was walked and by whom, in words that are equal if both are.
    pub walked_by: String,
    /// When the walk began.
    pub began: Time,
    /// The host's path of each part; that of one without is empty.
    pub sources: Vec<PathBuf>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) entries: Vec<Entry>,
    /// Names, and targets of symbolic links.
    pub(crate) texts: Vec<u8>,
    pub(crate) runs: Vec<Run>,
    /// Sets of attributes, each as [`Attribute`] encodes them.
    pub(crate) attributes: Vec<Box<[u8]>>,
}

/// An extended attribute, as EROFS names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attribute<'a> {
    /// The number of its name's beginning.
    pub prefix: u8,
    /// The rest of its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Adds it to a set.
    pub(crate) fn encode(&self, set: &mut Vec<u8>) {
        set.extend([self.prefix, self.name.len() as u8]);
        set.extend((self.value.len() as u16).to_le_bytes());
        set.extend(self.name);
        set.extend(self.value);
    }

    /// The attributes of a set. What can't be one ends it.
    pub(crate) fn all(set: &'a [u8]) -> impl Iterator<Item = Attribute<'a>> {
        let mut rest = set;
        std::iter::from_fn(move || {
            let (&[prefix, name, low, high], after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(name.into())?;
            let (value, after) = after.split_at_checked(u16::from_le_bytes([low, high]).into())?;
            rest = after;
            Some(Attribute { prefix, name, value })
        })
    }
}

impl Node {
    /// What it is, by the bits of its mode.
    pub fn kind(&self) -> u32 {
        self.mode & KIND
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == DIRECTORY
    }

    /// Whether this is marked of it.
    pub fn has(&self, mark: u32) -> bool {
        self.marks & mark != 0
    }

    /// Whether machines may ask for contents that lie on the host.
    pub fn has_contents(&self) -> bool {
        self.kind() == REGULAR && !self.has(EMPTY) && self.stamp.size > 0
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.first as usize..self.first as usize + self.count as usize
    }
}

impl Tree {
    /// How many files it has, of whatever kind.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing was walked.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A file of it.
    pub fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    /// The names in a directory; there are none in other files.
    pub fn entries(&self, node: &Node) -> &[Entry] {
        match node.is_directory() {
            true => &self.entries[node.range()],
            false => &[],
        }
    }

    /// The name of an entry.
    pub fn name(&self, entry: &Entry) -> &[u8] {
        &self.texts[entry.name as usize..][..entry.length.into()]
    }

    /// What a directory has by this name.
    pub fn find(&self, directory: &Node, name: &[u8]) -> Option<u32> {
        let entries = self.entries(directory);
        let at = entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok()?;
        Some(entries[at].node)
    }

    /// The target of a symbolic link; that of other files is empty.
    pub fn target(&self, node: &Node) -> &[u8] {
        match node.kind() {
            LINK => &self.texts[node.range()],
            _ => &[],
        }
    }

    /// The runs of a sparse file.
    pub fn runs(&self, node: &Node) -> &[Run] {
        match node.has(SPARSE) {
            true => &self.runs[node.range()],
            false => &[],
        }
    }

    /// How many blocks of an image the contents of a file take.
    pub(crate) fn blocks_of(&self, node: &Node) -> u64 {
        if !node.has(SPARSE) {
            return node.stamp.size.div_ceil(4096);
        }
        let chunk = 1u64 << (chunk_bits(node.stamp.size) - 12);
        self.runs(node).iter().fold(0, |all, run| run.count.saturating_mul(chunk).saturating_add(all))
    }

    /// How many chunks a sparse file has, with those that are holes.
    pub(crate) fn chunks_of(&self, node: &Node) -> u64 {
        match node.has(SPARSE) {
            true => node.stamp.size.div_ceil(1 << chunk_bits(node.stamp.size)),
            false => 0,
        }
    }

    /// The attributes of a file.
    pub fn attributes(&self, node: &Node) -> impl Iterator<Item = Attribute<'_>> {
        let set = self.attributes.get(node.attributes as usize);
        Attribute::all(set.map_or(&[], |set| set))
    }

    /// How many chunks all sparse files have.
    #[cfg(feature = "fuzz")]
    pub fn chunks(&self) -> u64 {
        self.nodes.iter().map(|node| self.chunks_of(node)).sum()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let sets: usize = self.attributes.iter().map(|set| set.len() + size_of::<Box<[u8]>>()).sum();
        self.nodes.capacity() * size_of::<Node>()
            + self.entries.capacity() * size_of::<Entry>()
            + self.texts.capacity()
            + self.runs.capacity() * size_of::<Run>()
            + sets
    }

    /// The path of a file below the source of its part, and that part. The path of the source itself is
    /// empty.
    pub fn path_in_part(&self, number: u32) -> (u32, PathBuf) {
        let part = self.node(number).part;
        (part, self.path_while(number, |parent| parent.part == part))
    }

    /// The path of a file in the tree, without the slash at its beginning.
    pub fn path(&self, number: u32) -> PathBuf {
        self.path_while(number, |_| true)
    }

    fn path_while(&self, number: u32, more: impl Fn(&Node) -> bool) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self.node(number);
        // Parents have smaller numbers, but for the root, which ends it.
        while at.parent != NONE && at.entry != NONE && more(self.node(at.parent)) {
            names.push(OsStr::from_bytes(self.name(&self.entries[at.entry as usize])));
            at = self.node(at.parent);
        }
        names.into_iter().rev().collect()
    }
}

/// The size of a chunk of a sparse file, as a power of two: as small as its number of chunks allows.
pub(crate) fn chunk_bits(size: u64) -> u32 {
    let mut bits = 16;
    while bits < 43 && size >> bits >= 1 << 16 {
        bits += 1;
    }
    bits
}
