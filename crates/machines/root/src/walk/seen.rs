//! What is seen of a directory, and of what is in it.

use super::host::{is_directory, look, mount, stamp};
use crate::tree::{Node, Stamp, Time, Tree, COMPLETE, DIRECTORY, EMPTY, NONE, REGULAR};
use crate::view::View;
use rustix::fs::Statx;
use std::os::fd::OwnedFd;

/// For so long after its change a file may be changed again without a trace in its times.
const UNSURE: i64 = 2;

/// An open directory of a part.
pub struct Directory {
    pub file: OwnedFd,
    pub stamp: Stamp,
    /// The mount that it belongs to, where Linux tells it (5.8).
    mount: Option<u64>,
    pub part: u32,
    pub view: View,
    /// What is found in it may lie on another file system.
    pub is_anywhere: bool,
}

/// What was found.
#[derive(Clone, Copy)]
pub struct Found {
    pub node: Node,
    /// It has other names.
    pub is_linked: bool,
    /// It is a directory whose entries are not shown.
    pub is_closed: bool,
    /// It is as an earlier walk has found it.
    pub is_known: bool,
}

impl From<Node> for Found {
    fn from(node: Node) -> Found {
        Found { node, is_linked: false, is_closed: false, is_known: false }
    }
}

impl Found {
    /// The same without what is in it.
    pub fn emptied(self) -> Found {
        let mut node = self.node;
        if node.kind() == REGULAR {
            node.marks = EMPTY;
            node.stamp.size = 0;
        }
        Found { node, is_linked: false, is_closed: true, is_known: false }
    }
}

impl Directory {
    /// One that is open.
    pub fn new(file: OwnedFd, part: u32, view: View) -> Option<Directory> {
        let stat = look(&file, b"").ok()?;
        let (stamp, mount) = (stamp(&stat), mount(&stat));
        Some(Directory { file, stamp, mount, part, view, is_anywhere: false })
    }

    /// Whether its names are those of an earlier walk.
    pub fn is_as_listed(&self, tree: &Tree, old: &Node) -> bool {
        old.has(COMPLETE) && old.stamp == self.stamp && is_sure(&self.stamp, tree.began)
    }

    /// Whether something is mounted on what was found in it.
    pub fn is_mounted_on(&self, stat: &Statx) -> bool {
        if self.is_anywhere {
            return false;
        }
        match self.mount.zip(mount(stat)) {
            Some((own, other)) => own != other,
            // Files of an overlay have the numbers of the file systems below it; directories have its own.
            None => is_directory(stat) && stamp(stat).device != self.stamp.device,
        }
    }
}

/// Whether a file is what it was. Its mode may be shown otherwise than it is.
pub fn is_same(now: &Node, old: &Node) -> bool {
    let size = if old.has(EMPTY) { now.stamp.size } else { old.stamp.size };
    let old_stamp = Stamp { size, ..old.stamp };
    now.stamp == old_stamp
        && now.kind() == old.kind()
        && (now.uid, now.gid, now.part) == (old.uid, old.gid, old.part)
}

/// A file that was looked at.
pub fn node(stat: &Statx, part: u32) -> Node {
    let (major, minor) = (stat.stx_rdev_major, stat.stx_rdev_minor);
    Node {
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        links: if is_directory(stat) { 2 } else { 1 },
        // Linux' new_encode_dev.
        device_number: minor & 0xff | major << 8 | (minor & !0xff) << 12,
        stamp: stamp(stat),
        attributes: NONE,
        parent: NONE,
        entry: NONE,
        part,
        first: 0,
        count: 0,
        marks: 0,
    }
}

/// A directory that the host does not have.
pub fn made(mode: u32, uid: u32, gid: u32) -> Node {
    Node {
        mode: DIRECTORY | mode & 0o7777,
        uid,
        gid,
        links: 2,
        device_number: 0,
        stamp: Stamp::default(),
        attributes: NONE,
        parent: NONE,
        entry: NONE,
        part: NONE,
        first: 0,
        count: 0,
        marks: 0,
    }
}

/// Whether the times of a file would tell that it was changed since a walk began.
pub fn is_sure(stamp: &Stamp, began: Time) -> bool {
    stamp.ctime.seconds < began.seconds - UNSURE
}
