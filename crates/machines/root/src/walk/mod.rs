//! Walking the host's directories.
//!
//! Directories are opened from their part's source without following links, or leaving its file system. What
//! an earlier walk has found is used again where the file's stamp says that nothing has changed: then a file
//! costs one system call, and a directory needs not be listed.

mod attributes;
mod found;
pub(crate) mod host;
mod left_out;
mod listing;
mod seen;
mod walker;

pub use left_out::{LeftOut, Why};

use crate::tree::{Entry, Node, Time, Tree, COMPLETE, MAX_NODES, MAX_PATH, NONE};
use crate::view::{Part, Place};
use rustix::fs::{openat, Mode, OFlags, CWD};
use seen::{made, Directory, Found};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Result};
use walker::{Walker, Work};

/// What a walk has found.
#[derive(Debug)]
pub struct Walked {
    /// What machines are to see.
    pub tree: Tree,
    /// What they don't, though it is there.
    pub left_out: LeftOut,
    /// How many files were known from the earlier walk, and unchanged.
    pub known: usize,
}

/// Walks these parts. `earlier` is an earlier walk, which is of use if it was of the same parts.
pub fn walk(parts: &[Part], earlier: Option<&Tree>) -> Result<Walked> {
    let places = Place::of(parts)?;
    let walked_by = format!("{}{}", words_of(parts), who());
    let earlier = earlier.filter(|tree| tree.walked_by == walked_by && !tree.is_empty());
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let began = Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 };
    let sources = parts.iter().map(|part| part.source().unwrap_or(Path::new("")).to_path_buf()).collect();
    let mut walker = Walker {
        parts,
        tree: Tree { walked_by, began, sources, ..Tree::default() },
        earlier,
        links: HashMap::new(),
        sets: HashMap::new(),
        left_out: LeftOut::default(),
        known: 0,
        blocks: 0,
        chunks: 0,
        sources: parts.iter().map(|_| None).collect(),
        work: Vec::new(),
        reader: listing::Reader::new(),
    };
    walker.all(&places)?;
    Ok(Walked { tree: walker.tree, left_out: walker.left_out, known: walker.known })
}

/// Parts, in words that are equal if they are.
fn words_of(parts: &[Part]) -> String {
    format!("{parts:?} by ")
}

/// Whether a tree was walked of these parts.
pub(crate) fn is_of(tree: &Tree, parts: &[Part]) -> bool {
    tree.walked_by.starts_with(&words_of(parts))
}

/// Who walks, in words: what can be read depends on it.
fn who() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |line: &&str| ["Uid:", "Gid:", "Groups:", "CapEff:"].iter().any(|it| line.starts_with(it));
    status.lines().filter(of).collect::<Vec<_>>().join("; ")
}

impl<'a> Walker<'a> {
    fn all<'p: 'a>(&mut self, places: &'p Place) -> Result<()> {
        let root = match places.part.map(|part| (part, &self.parts[part])) {
            Some((number, Part::Host { source, .. })) => self
                .source(number, Path::new("/"), Some(0))
                .ok_or_else(|| error!("{} can't be read, so machines can't have it", source.display()))?,
            Some((_, Part::Directory { mode, uid, gid, .. })) => made(*mode, *uid, *gid).into(),
            _ => made(0o755, 0, 0).into(),
        };
        if !root.node.is_directory() {
            return Err(error!("a machine's tree begins with a directory"));
        }
        self.tree.nodes.push(Node { parent: 0, entry: NONE, ..root.node });
        let earlier = self.earlier.map(|_| 0);
        self.work.push(Work {
            node: 0,
            place: Some(places),
            earlier,
            path: PathBuf::new(),
            is_closed: false,
        });
        while let Some(work) = self.work.pop() {
            self.directory(work)?;
        }
        Ok(())
    }

    /// Notes what is in a directory.
    fn directory(&mut self, work: Work<'a>) -> Result<()> {
        let node = *self.tree.node(work.node);
        let directory = match node.part {
            part if part == NONE || work.is_closed => None,
            part => self.open(work.node, part),
        };
        let earlier = match (&directory, work.earlier.zip(self.earlier)) {
            (_, None) => None,
            (_, Some((number, tree))) => Some((tree, *tree.node(number))),
        };
        let mut names: BTreeSet<Vec<u8>> = match &directory {
            Some(directory) => match earlier.filter(|(tree, old)| directory.is_as_listed(tree, old)) {
                Some((tree, old)) => {
                    tree.entries(&old).iter().map(|entry| tree.name(entry).to_vec()).collect()
                }
                None => self.reader.names(&directory.file).into_iter().collect(),
            },
            None => BTreeSet::new(),
        };
        let listed = names.len();
        if let Some(place) = work.place {
            names.extend(place.children.keys().cloned());
        }
        let first = self.tree.entries.len();
        let mut below = Vec::new();
        for name in names {
            let length = work.path.as_os_str().len() + 1 + name.len();
            let path = work.path.join(std::ffi::OsStr::from_bytes(&name));
            // The paths in the tree, and of what they are on the host.
            if length > MAX_PATH {
                self.left_out.add(Why::PathTooLong, &path);
                continue;
            }
            let old = earlier.and_then(|(tree, old)| tree.find(&old, &name));
            let place = work.place.and_then(|place| place.children.get(&name));
            let found = match place {
                Some(place) => self.at_place(place, directory.as_ref(), &name, &path, old),
                None => directory.as_ref().and_then(|it| self.found(it, &name, &path, old)),
            };
            let Some(found) = found else { continue };
            let number = self.keep(found, work.node, &name, old.is_some())?;
            let is_closed = found.is_closed;
            let is_asked_for = place.is_some_and(|place| !place.children.is_empty());
            if self.tree.node(number).is_directory() && (!is_closed || is_asked_for) {
                below.push(Work { node: number, place, earlier: old, path, is_closed });
            }
        }
        let count = self.tree.entries.len() - first;
        let is_complete = count == listed && work.place.is_none_or(|place| place.children.is_empty());
        let entries = self.tree.entries[first..].iter();
        let links = 2 + entries.filter(|entry| self.tree.node(entry.node).is_directory()).count() as u32;
        let node = &mut self.tree.nodes[work.node as usize];
        (node.first, node.count, node.links) = (first as u32, count as u32, links);
        if let Some(directory) = directory {
            node.stamp = directory.stamp;
            if is_complete {
                node.marks |= COMPLETE;
            }
        }
        // The first one is walked next, so that what lies side by side in the tree does in the image, too.
        self.work.extend(below.into_iter().rev());
        Ok(())
    }

    /// Takes what was found into the tree. Returns its number.
    fn keep(&mut self, found: Found, parent: u32, name: &[u8], was_known: bool) -> Result<u32> {
        let entry = self.tree.entries.len();
        let (number, at) = (self.tree.nodes.len(), self.tree.texts.len());
        let most = NONE as usize - 1;
        if entry >= most || number >= MAX_NODES || at + name.len() >= most {
            return Err(error!("a machine's tree has more than {MAX_NODES} files, or too long names")
                .hint("Share directories with fewer files."));
        }
        self.tree.texts.extend(name);
        let stamp = found.node.stamp;
        let key = (stamp.device, stamp.inode, found.node.part);
        let mut node = found.node;
        let known = (found.is_linked).then(|| self.links.get(&key)).flatten();
        let number = match known {
            Some(&number) => {
                self.tree.nodes[number as usize].links += 1;
                number
            }
            None => {
                let number = number as u32;
                if found.is_linked {
                    self.links.insert(key, number);
                }
                (node.parent, node.entry) = (parent, entry as u32);
                self.known += usize::from(was_known && found.is_known);
                self.tree.nodes.push(node);
                number
            }
        };
        self.tree.entries.push(Entry { node: number, name: at as u32, length: name.len() as u8 });
        Ok(number)
    }

    /// What is at a place at which, or below which, something was asked for.
    fn at_place(
        &mut self,
        place: &Place,
        directory: Option<&Directory>,
        name: &[u8],
        path: &Path,
        old: Option<u32>,
    ) -> Option<Found> {
        let part = place.part.map(|number| (number, &self.parts[number]));
        if let Some((number, Part::Host { .. })) = part {
            return self.source(number, path, old);
        }
        let real = directory.and_then(|directory| self.found(directory, name, path, old));
        match part {
            Some((_, Part::Hidden(_))) => real.map(Found::emptied),
            Some((_, Part::Directory { mode, uid, gid, .. })) => {
                Some(real.filter(|it| it.node.is_directory()).unwrap_or(made(*mode, *uid, *gid).into()))
            }
            _ => Some(real.filter(|it| it.node.is_directory()).unwrap_or(made(0o755, 0, 0).into())),
        }
    }

    /// The source of a part.
    fn source(&mut self, number: usize, path: &Path, old: Option<u32>) -> Option<Found> {
        let Part::Host { source, view, .. } = &self.parts[number] else { return None };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What lies in it is found beside it, as everything is; its own mount counts for what is in it.
        let (parent, name) = match (source.parent(), source.file_name()) {
            (Some(parent), Some(name)) => (parent, name.as_bytes()),
            _ => (Path::new("/"), &b"."[..]),
        };
        self.sources[number] = openat(CWD, source, flags, Mode::empty()).ok();
        let Some(mut parent) = openat(CWD, parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .ok()
            .and_then(|file| Directory::new(file, number as u32, *view))
        else {
            self.left_out.add(Why::Unreadable, path);
            return None;
        };
        parent.is_anywhere = true;
        self.found(&parent, name, path, old)
    }

    /// Opens a directory that was found.
    fn open(&mut self, number: u32, part: u32) -> Option<Directory> {
        let Some(Part::Host { view, .. }) = self.parts.get(part as usize) else { return None };
        let (_, path) = self.tree.path_in_part(number);
        let source = self.sources[part as usize].as_ref()?;
        let file = host::open_directory(source, &path).ok()?;
        Directory::new(file, part, *view)
    }
}
