//! A walk that goes on: what it has found so far, and what is left to do.

use super::attributes::{self, Of};
use super::left_out::{LeftOut, Why};
use super::listing;
use crate::tree::{Node, Run, Tree, MAX_BLOCKS, MAX_CHUNKS, MAX_RUNS, NONE, SPARSE};
use crate::view::{Part, Place};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A walk that goes on.
pub struct Walker<'a> {
    pub parts: &'a [Part],
    pub tree: Tree,
    pub earlier: Option<&'a Tree>,
    /// Files with several names, by file system, number and part.
    pub links: HashMap<(u64, u64, u32), u32>,
    pub sets: HashMap<Box<[u8]>, u32>,
    pub left_out: LeftOut,
    pub known: usize,
    pub blocks: u64,
    pub chunks: u64,
    /// The parts' sources, those that are directories.
    pub sources: Vec<Option<OwnedFd>>,
    pub work: Vec<Work<'a>>,
    pub reader: listing::Reader,
}

/// A directory whose entries are still to be walked.
pub struct Work<'a> {
    pub node: u32,
    /// What was asked for there.
    pub place: Option<&'a Place>,
    /// Its number in the earlier walk.
    pub earlier: Option<u32>,
    /// Its path, for its length and for what is left out.
    pub path: PathBuf,
    /// What the host has in it is not shown: only what was asked for there.
    pub is_closed: bool,
}

impl Walker<'_> {
    /// The number of a set of attributes.
    pub fn intern(&mut self, set: Vec<u8>) -> u32 {
        if set.is_empty() {
            return NONE;
        }
        let set = set.into_boxed_slice();
        if let Some(&number) = self.sets.get(&set) {
            return number;
        }
        let number = self.tree.attributes.len() as u32;
        self.tree.attributes.push(set.clone());
        self.sets.insert(set, number);
        number
    }

    /// Counts what the contents of a file take in an image, if there is room for them.
    pub fn take_room(&mut self, node: &Node) -> bool {
        let blocks = self.blocks.saturating_add(self.tree.blocks_of(node));
        let chunks = self.chunks + self.tree.chunks_of(node);
        let fits = blocks <= MAX_BLOCKS && chunks <= MAX_CHUNKS && self.tree.runs.len() <= MAX_RUNS;
        match fits {
            true => (self.blocks, self.chunks) = (blocks, chunks),
            // Its runs are the last ones.
            false if node.has(SPARSE) => self.tree.runs.truncate(node.first as usize),
            false => (),
        }
        fits
    }

    /// Notes where a sparse file has data.
    pub fn add_runs(&mut self, runs: &[Run]) -> (u32, u32) {
        let first = self.tree.runs.len() as u32;
        self.tree.runs.extend(runs);
        (first, runs.len() as u32)
    }

    /// The attributes of a file, as a set.
    pub fn attributes_of(&mut self, of: &Of, path: &Path) -> Vec<u8> {
        let (set, lacks) = attributes::read(of);
        if lacks {
            self.left_out.add(Why::Attributes, path);
        }
        set
    }
}
