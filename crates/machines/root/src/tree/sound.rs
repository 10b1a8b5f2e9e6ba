//! What holds in every tree that a walk has made. One that was read from a file is checked for it, so that
//! nothing that uses a tree needs to doubt a number.

use super::saved::damaged;
use super::{
    chunk_bits, Attribute, Node, Tree, COMPLETE, DIRECTORY, EMPTY, LINK, MAX_BLOCKS, MAX_CHUNKS, MAX_NODES,
    MAX_PATH, MAX_RUNS, NONE, REGULAR, SPARSE,
};
use vshmem_base::error::Result;

/// Numbers that EROFS has for beginnings of attributes' names.
const PREFIXES: [u8; 5] = [1, 2, 3, 4, 6];
/// The most attributes of a file.
const MOST_ATTRIBUTES: usize = 255;

impl Tree {
    /// The tree, if a walk could have made it.
    pub(super) fn checked(self) -> Result<Tree> {
        match self.is_sound() {
            Some(true) => Ok(self),
            _ => Err(damaged()),
        }
    }

    fn is_sound(&self) -> Option<bool> {
        let root = self.nodes.first()?;
        let begins = root.is_directory() && root.parent == 0 && root.entry == NONE;
        let sets = self.attributes.iter().all(|set| is_set(set));
        let nodes = self.nodes.iter().all(|node| self.is_node(node).unwrap_or(false));
        Some(begins && sets && nodes && self.is_connected()? && self.has_room()?)
    }

    /// Whether what a node says of itself can be.
    fn is_node(&self, node: &Node) -> Option<bool> {
        let is_file = node.kind() == REGULAR;
        let kinds = [DIRECTORY, REGULAR, LINK, 0o010000, 0o020000, 0o060000, 0o140000];
        let marks = match node.kind() {
            DIRECTORY => COMPLETE,
            REGULAR => EMPTY | SPARSE,
            _ => 0,
        };
        let fits = |many: usize| node.first.checked_add(node.count).is_some_and(|end| end as usize <= many);
        let times =
            node.stamp.mtime.nanoseconds < 1_000_000_000 && node.stamp.ctime.nanoseconds < 1_000_000_000;
        let fine = kinds.contains(&node.kind())
            && node.mode <= 0o177777
            && node.marks & !marks == 0
            && times
            && (node.part == NONE || (node.part as usize) < self.sources.len())
            && (node.attributes == NONE || (node.attributes as usize) < self.attributes.len())
            && node.stamp.size <= if is_file && !node.has(EMPTY) { i64::MAX as u64 } else { 0 }
            && node.has(EMPTY | SPARSE) <= is_file
            && !(node.has(EMPTY) && node.has(SPARSE));
        let more = match node.kind() {
            DIRECTORY => fits(self.entries.len()) && self.is_sorted(node)?,
            LINK => fits(self.texts.len()) && is_target(&self.texts[node.range()]),
            _ if node.has(SPARSE) => fits(self.runs.len()) && self.are_runs(node),
            _ => true,
        };
        Some(fine && more)
    }

    /// Whether names can be names, and are in their order.
    fn is_sorted(&self, node: &Node) -> Option<bool> {
        let mut last: &[u8] = b"";
        for entry in self.entries.get(node.range())? {
            let from = entry.name as usize;
            let name = self.texts.get(from..from.checked_add(entry.length.into())?)?;
            let is_name =
                name > last && name != b"." && name != b".." && !name.iter().any(|it| b"/\0".contains(it));
            if !is_name || entry.node as usize >= self.nodes.len() {
                return Some(false);
            }
            last = name;
        }
        Some(true)
    }

    fn are_runs(&self, node: &Node) -> bool {
        let end = node.stamp.size.div_ceil(1 << chunk_bits(node.stamp.size));
        let mut at = 0;
        self.runs[node.range()].iter().all(|run| {
            let fine = run.count > 0 && run.first >= at && run.first <= end && run.count <= end - run.first;
            at = run.first.saturating_add(run.count);
            fine
        })
    }

    /// Whether each name belongs to one directory, each file to the directory by which it is found, and the
    /// counts of names are right.
    fn is_connected(&self) -> Option<bool> {
        let directories = self.nodes.iter().filter(|node| node.is_directory() && node.count > 0);
        let mut ranges: Vec<_> = directories.map(|node| node.range()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut end = 0;
        for range in ranges {
            if range.start != end {
                return Some(false);
            }
            end = range.end;
        }
        let mut names = vec![0u32; self.nodes.len()];
        let mut below = vec![0u32; self.nodes.len()];
        for entry in &self.entries {
            names[entry.node as usize] += 1;
        }
        let mut lengths = vec![0u32; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let (parent, entry) =
                (self.nodes.get(node.parent as usize)?, self.entries.get(node.entry as usize)?);
            let is_there = (node.parent as usize) < number
                && parent.is_directory()
                && parent.range().contains(&(node.entry as usize))
                && entry.node as usize == number;
            lengths[number] = lengths[node.parent as usize].checked_add(1 + u32::from(entry.length))?;
            if !is_there || lengths[number] as usize > MAX_PATH + 1 {
                return Some(false);
            }
            below[node.parent as usize] += u32::from(node.is_directory());
        }
        let right = |(number, node): (usize, &Node)| match node.is_directory() {
            true => names[number] == u32::from(number > 0) && node.links == 2 + below[number],
            false => names[number] == node.links,
        };
        Some(end == self.entries.len() && self.nodes.iter().enumerate().all(right))
    }

    /// Whether the contents have room in an image.
    fn has_room(&self) -> Option<bool> {
        let (mut blocks, mut chunks) = (0u64, 0u64);
        for node in self.nodes.iter().filter(|node| node.has_contents()) {
            blocks = blocks.checked_add(self.blocks_of(node))?;
            chunks = chunks.checked_add(self.chunks_of(node))?;
        }
        let few = self.nodes.len() <= MAX_NODES && self.runs.len() <= MAX_RUNS && chunks <= MAX_CHUNKS;
        Some(few && blocks <= MAX_BLOCKS)
    }
}

fn is_target(target: &[u8]) -> bool {
    (1..=MAX_PATH).contains(&target.len()) && !target.contains(&0)
}

fn is_set(set: &[u8]) -> bool {
    let all: Vec<_> = Attribute::all(set).take(MOST_ATTRIBUTES + 1).collect();
    let length: usize = all.iter().map(|it| 4 + it.name.len() + it.value.len()).sum();
    let known = all.iter().all(|it| PREFIXES.contains(&it.prefix));
    length == set.len() && !all.is_empty() && all.len() <= MOST_ATTRIBUTES && known
}
