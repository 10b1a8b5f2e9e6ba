//! What is found by a name in a directory.

use super::attributes::Of;
use super::host::{is_directory, look, stamp};
use super::left_out::Why;
use super::seen::{is_same, is_sure, node, Directory, Found};
use super::walker::Walker;
use crate::tree::{chunk_bits, Node, Run, Tree, COMPLETE, DIRECTORY, EMPTY, KIND, LINK, REGULAR, SPARSE};
use crate::view::View;
use rustix::fs::{openat, readlinkat, seek, Mode, OFlags, SeekFrom, Statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files of this size may be sparse in an image, if they are on the host. In smaller ones, holes are zeroes
/// that the host is asked for.
const SPARSE_FROM: u64 = 1 << 30;
/// The most runs of a sparse file; what follows counts as data.
const MAX_RUNS: usize = 1 << 16;

impl Walker<'_> {
    /// What a directory has by this name, if it is visible.
    pub(super) fn found(
        &mut self,
        directory: &Directory,
        name: &[u8],
        path: &Path,
        old: Option<u32>,
    ) -> Option<Found> {
        // What has gone meanwhile is not there.
        let stat = look(&directory.file, name).ok()?;
        let is_public = directory.view == View::Public;
        let mut node = node(&stat, directory.part);
        if directory.is_mounted_on(&stat) && (is_directory(&stat) || !is_public) {
            if is_public || !is_directory(&stat) {
                self.left_out.add(Why::Mounted, path);
                return None;
            }
            // The directory below is not to be seen, and what is mounted is not to be shown.
            self.left_out.add(Why::Mounted, path);
            return Some(Found { is_closed: true, ..Found::from(node) });
        }
        let key = (node.stamp.device, node.stamp.inode, directory.part);
        let is_linked = stat.stx_nlink > 1 && node.kind() != DIRECTORY;
        if is_linked && self.links.contains_key(&key) {
            return Some(Found { is_linked, ..Found::from(node) });
        }
        let old = self.earlier.zip(old).map(|(tree, old)| (tree, *tree.node(old)));
        let old = old.filter(|(tree, old)| is_same(&node, old) && is_sure(&node.stamp, tree.began));
        let mut found = match node.kind() {
            DIRECTORY | REGULAR => self.readable(directory, name, path, node, &stat, old)?,
            LINK => {
                let target = match old {
                    Some((tree, old)) => tree.target(&old).to_vec(),
                    None => {
                        readlinkat(&directory.file, OsStr::from_bytes(name), Vec::new()).ok()?.into_bytes()
                    }
                };
                (node.first, node.count) = (self.tree.texts.len() as u32, target.len() as u32);
                self.tree.texts.extend(target);
                Found::from(node)
            }
            _ if is_public => return None,
            _ => Found::from(node),
        };
        if !is_public && !matches!(node.kind(), DIRECTORY | REGULAR) {
            let set = match old {
                Some((tree, old)) => set_of(tree, &old),
                None => self.attributes_of(&Of::Named(directory.file.as_fd(), name), path),
            };
            found.node.attributes = self.intern(set);
        }
        found.is_linked = is_linked;
        found.is_known = old.is_some();
        Some(found)
    }

    /// A file or a directory, which is opened to see whether it can be read.
    fn readable(
        &mut self,
        directory: &Directory,
        name: &[u8],
        path: &Path,
        node: Node,
        stat: &Statx,
        old: Option<(&Tree, Node)>,
    ) -> Option<Found> {
        let is_public = directory.view == View::Public;
        if let Some((tree, old)) = old {
            let mut same = Node { marks: old.marks & !COMPLETE, mode: old.mode, ..node };
            if old.has(SPARSE) {
                (same.first, same.count) = self.add_runs(tree.runs(&old));
            }
            same.attributes = self.intern(set_of(tree, &old));
            if same.has_contents() && !self.take_room(&same) {
                self.left_out.add(Why::TooLarge, path);
                return None;
            }
            if same.has(EMPTY) {
                same.stamp.size = 0;
            }
            let closed = is_public && node.is_directory() && node.mode & 0o5 != 0o5;
            return Some(Found { is_closed: closed, ..Found::from(same) });
        }
        let mut node = node;
        let all = if node.is_directory() { 0o5 } else { 0o4 };
        let shown = node.mode & KIND | node.mode & 0o777 | (all * 0o111);
        let is_closed = is_public && node.mode & all != all;
        if is_public {
            node.mode = shown;
        }
        if is_closed {
            return Some(Found::from(node).emptied());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(&directory.file, OsStr::from_bytes(name), flags, Mode::empty());
        let same = |file: &OwnedFd| look(file, b"").is_ok_and(|now| stamp(&now).inode == stamp(stat).inode);
        let Some(file) = opened.ok().filter(same) else {
            if is_public {
                return Some(Found::from(node).emptied());
            }
            self.left_out.add(Why::Unreadable, path);
            return None;
        };
        if !is_public {
            let set = self.attributes_of(&Of::Open(file.as_fd()), path);
            node.attributes = self.intern(set);
        }
        let size = node.stamp.size;
        if node.kind() == REGULAR && size >= SPARSE_FROM && stat.stx_blocks < size / 512 / 2 {
            let runs = runs(&file, size);
            node.marks |= SPARSE;
            (node.first, node.count) = self.add_runs(&runs);
        }
        if node.has_contents() && !self.take_room(&node) {
            self.left_out.add(Why::TooLarge, path);
            return None;
        }
        Some(Found::from(node))
    }
}

/// The attributes of a file of an earlier walk.
fn set_of(tree: &Tree, node: &Node) -> Vec<u8> {
    tree.attributes.get(node.attributes as usize).map_or(Vec::new(), |set| set.to_vec())
}

/// Where a sparse file has data, in chunks.
fn runs(file: &OwnedFd, size: u64) -> Vec<Run> {
    let bits = chunk_bits(size);
    let end = size.div_ceil(1 << bits);
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while at < size {
        let (from, to) = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            Ok(from) if runs.len() < MAX_RUNS => {
                (from, seek(file, SeekFrom::Hole(from)).unwrap_or(size).min(size))
            }
            // It can't be known, or is too much to note.
            other => (other.unwrap_or(at), size),
        };
        let (first, last) = ((from >> bits).min(end), to.div_ceil(1 << bits).min(end));
        match runs.last_mut() {
            Some(run) if run.first + run.count >= first => run.count = run.count.max(last - run.first),
            _ if last > first => runs.push(Run { first, count: last - first }),
            _ => (),
        }
        // A file that is being changed may end where it began.
        at = to.max(at + 1).max(from);
    }
    runs
}
