//! What a walk has seen and does not show.

use std::fmt;
use std::path::{Path, PathBuf};

/// The most paths that are kept for a reason.
const MAX_NAMED: usize = 20;

/// Why something is not in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The walking user can't read it.
    Unreadable,
    /// Another file system, or another part of one, is mounted on it.
    Mounted,
    /// Its path is longer than Linux takes.
    PathTooLong,
    /// All contents together are larger than an image can be, or sparse files have too many parts.
    TooLarge,
    /// It is there, but attributes of it are not, which an image can't hold.
    Attributes,
}

const ALL: [(Why, &str); 5] = [
    (Why::Unreadable, "can't be read by this user"),
    (Why::Mounted, "have something mounted on them"),
    (Why::PathTooLong, "have paths longer than 4,095 bytes"),
    (Why::TooLarge, "have no room in an image, which has 15 TiB"),
    (Why::Attributes, "have more extended attributes than an image can hold"),
];

/// How many files were left out, and some of their paths in the tree.
#[derive(Debug, Default)]
pub struct LeftOut {
    counts: [usize; ALL.len()],
    paths: Vec<(Why, PathBuf)>,
}

impl LeftOut {
    pub(crate) fn add(&mut self, why: Why, path: &Path) {
        let count = &mut self.counts[why as usize];
        *count += 1;
        if *count <= MAX_NAMED {
            self.paths.push((why, path.to_path_buf()));
        }
    }

    /// How many files were left out for a reason.
    pub fn count(&self, why: Why) -> usize {
        self.counts[why as usize]
    }

    /// Some of the files that were left out for a reason: the first ones.
    pub fn paths(&self, why: Why) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(move |(one, _)| *one == why).map(|(_, path)| path.as_path())
    }
}

/// A line for each reason.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, text) in ALL.iter().filter(|(why, _)| self.count(*why) > 0) {
            let named: Vec<_> = self.paths(*why).take(3).map(|path| format!("/{}", path.display())).collect();
            let more = if self.count(*why) > named.len() { ", ..." } else { "" };
            writeln!(f, "{} files {text}: {}{more}", self.count(*why), named.join(", "))?;
        }
        Ok(())
    }
}
