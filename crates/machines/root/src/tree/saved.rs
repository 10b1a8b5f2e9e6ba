//! A tree in a file: what a server that is started again needs to give machines the same image, and what a
//! later walk need not look at again.
//!
//! Numbers are little-endian. At the end stands a hash of all that is before it, which tells a file that was
//! cut off or damaged. Who writes another file with a right hash gets no further: what is read is a tree that
//! a walk could have found, or an error ([`super::sound`]).

use super::{Entry, Node, Run, Stamp, Time, Tree};
use std::ffi::OsString;
use std::io::{BufWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use twox_hash::XxHash3_128;
use vshmem_base::error::{error, Error, Explain, Result};

/// How the file begins; its last digits are the version.
const MAGIC: &[u8; 16] = b"vshmem-root 0001";
/// The most bytes that are read: more than a tree with all numbers of inodes that an image has.
const MAX_LENGTH: u64 = 64 << 30;

impl Tree {
    /// Writes the tree.
    pub fn save(&self, to: &mut impl Write) -> Result<()> {
        let mut out = Output { out: BufWriter::with_capacity(1 << 20, to), hash: XxHash3_128::new() };
        self.put(&mut out).explain(|| "could not keep a machine's file tree".into())
    }

    fn put(&self, out: &mut Output<impl Write>) -> std::io::Result<()> {
        out.bytes(MAGIC)?;
        out.text(self.walked_by.as_bytes())?;
        out.time(self.began)?;
        out.u64(self.sources.len() as u64)?;
        for source in &self.sources {
            out.text(source.as_os_str().as_bytes())?;
        }
        out.u64(self.nodes.len() as u64)?;
        for node in &self.nodes {
            let Node { mode, uid, gid, links, device_number, stamp, attributes, .. } = *node;
            let Node { parent, entry, part, first, count, marks, .. } = *node;
            for number in
                [mode, uid, gid, links, device_number, attributes, parent, entry, part, first, count, marks]
            {
                out.u32(number)?;
            }
            for number in [stamp.device, stamp.inode, stamp.size] {
                out.u64(number)?;
            }
            out.time(stamp.mtime)?;
            out.time(stamp.ctime)?;
        }
        out.u64(self.entries.len() as u64)?;
        for entry in &self.entries {
            out.u32(entry.node)?;
            out.u32(entry.name)?;
            out.bytes(&[entry.length])?;
        }
        out.text(&self.texts)?;
        out.u64(self.runs.len() as u64)?;
        for run in &self.runs {
            out.u64(run.first)?;
            out.u64(run.count)?;
        }
        out.u64(self.attributes.len() as u64)?;
        for set in &self.attributes {
            out.text(set)?;
        }
        let hash = out.hash.finish_128().to_le_bytes();
        out.out.write_all(&hash)?;
        out.out.flush()
    }

    /// Reads a tree.
    pub fn load(from: &mut impl Read) -> Result<Tree> {
        let mut bytes = Vec::new();
        let failed = || "could not read a machine's file tree".to_string();
        from.take(MAX_LENGTH).read_to_end(&mut bytes).explain(failed)?;
        Tree::parse(&bytes)
    }

    /// The tree in these bytes.
    pub fn parse(bytes: &[u8]) -> Result<Tree> {
        let (body, hash) = bytes.split_last_chunk::<16>().ok_or_else(damaged)?;
        let mut hasher = XxHash3_128::new();
        hasher.write(body);
        if hasher.finish_128().to_le_bytes() != *hash {
            return Err(damaged());
        }
        let mut input = Input(body);
        let tree = input.tree().ok_or_else(damaged)?;
        match input.0.is_empty() {
            true => tree.checked(),
            false => Err(damaged()),
        }
    }
}

/// For fuzzing and tests: a file with this and the right hash.
#[cfg(any(test, feature = "fuzz"))]
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut hasher = XxHash3_128::new();
    hasher.write(body);
    [body, &hasher.finish_128().to_le_bytes()].concat()
}

pub(super) fn damaged() -> Error {
    error!("a machine's kept file tree is damaged, or of another version").hint("It is made anew by a walk.")
}

struct Output<W: Write> {
    out: BufWriter<W>,
    hash: XxHash3_128,
}

impl<W: Write> Output<W> {
    fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.write(bytes);
        self.out.write_all(bytes)
    }

    fn u32(&mut self, number: u32) -> std::io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> std::io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    fn time(&mut self, time: Time) -> std::io::Result<()> {
        self.bytes(&time.seconds.to_le_bytes())?;
        self.u32(time.nanoseconds)
    }

    fn text(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.u64(text.len() as u64)?;
        self.bytes(text)
    }
}

/// What is left to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.chunk()?))
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { seconds: i64::from_le_bytes(self.chunk()?), nanoseconds: self.u32()? })
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// So many of something that takes so many bytes at least: no more than there can be.
    fn list<T>(&mut self, least: usize, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.u64()?).ok()?;
        if count > self.0.len() / least {
            return None;
        }
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }

    fn node(&mut self) -> Option<Node> {
        let (mode, uid, gid, links) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let (device_number, attributes, parent) = (self.u32()?, self.u32()?, self.u32()?);
        let (entry, part, first, count, marks) =
            (self.u32()?, self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let (device, inode, size) = (self.u64()?, self.u64()?, self.u64()?);
        let stamp = Stamp { device, inode, size, mtime: self.time()?, ctime: self.time()? };
        Some(Node {
            mode,
            uid,
            gid,
            links,
            device_number,
            stamp,
            attributes,
            parent,
            entry,
            part,
            first,
            count,
            marks,
        })
    }

    fn tree(&mut self) -> Option<Tree> {
        if self.chunk::<16>()? != *MAGIC {
            return None;
        }
        let walked_by = String::from_utf8(self.text()?.to_vec()).ok()?;
        let began = self.time()?;
        let path = |it: &mut Self| Some(PathBuf::from(OsString::from_vec(it.text()?.to_vec())));
        let sources = self.list(8, path)?;
        let nodes = self.list(96, Self::node)?;
        let entry = |it: &mut Self| {
            let (node, name, [length]) = (it.u32()?, it.u32()?, it.chunk()?);
            Some(Entry { node, name, length })
        };
        let entries = self.list(9, entry)?;
        let texts = self.text()?.to_vec();
        let runs = self.list(16, |it| Some(Run { first: it.u64()?, count: it.u64()? }))?;
        let attributes = self.list(8, |it| Some(it.text()?.into()))?;
        Some(Tree { walked_by, began, sources, nodes, entries, texts, runs, attributes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{walk, Image, Part, View};
    use rustix::fs::{memfd_create, MemfdFlags};
    use std::fs;

    /// A small tree with all kinds of nodes, as it is kept, without its hash.
    fn body() -> Vec<u8> {
        let root = std::env::temp_dir().join(format!("vshmem-forged-{}", std::process::id()));
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("a"), "text").unwrap();
        fs::hard_link(root.join("a"), root.join("d/hard")).unwrap();
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        fs::File::create(root.join("sparse")).unwrap().set_len(2 << 30).unwrap();
        std::process::Command::new("setfattr")
            .args(["-n", "user.x", "-v", "1"])
            .arg(root.join("a"))
            .status()
            .ok();
        let part = Part::Host { source: root.clone(), at: "/".into(), view: View::Readable };
        let tree = walk(&[part], None).unwrap().tree;
        fs::remove_dir_all(&root).unwrap();
        let mut bytes = Vec::new();
        tree.save(&mut bytes).unwrap();
        bytes.truncate(bytes.len() - 16);
        bytes
    }

    #[test]
    fn forged_trees_are_refused_or_harmless() {
        let body = body();
        assert!(Tree::parse(&sealed(&body)).is_ok());
        let (mut refused, mut taken) = (0, 0);
        for at in 0..body.len() {
            for change in [1, 0x10, 0x80, 0xff] {
                let mut forged = body.clone();
                forged[at] ^= change;
                let Ok(tree) = Tree::parse(&sealed(&forged)) else {
                    refused += 1;
                    continue;
                };
                taken += 1;
                let file = memfd_create("forged", MemfdFlags::CLOEXEC).unwrap();
                Image::make(&tree, file.into()).unwrap();
                for number in 0..tree.len() as u32 {
                    tree.path(number);
                    tree.path_in_part(number);
                }
            }
        }
        assert!(refused > 500 && taken > 500, "{refused} were refused, {taken} taken");
    }
}
