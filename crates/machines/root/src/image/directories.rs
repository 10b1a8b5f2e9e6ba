//! The blocks of a directory: in each, entries and then their names, all in the order of the names' bytes.

use super::format::{kind_in_directory, BLOCK, DIRENT};
use crate::tree::{Node, Tree};

/// A name of a directory, and what it means.
struct Named<'a> {
    name: &'a [u8],
    node: u32,
}

/// The names of a directory, with `.` and `..`, in their order.
fn names<'a>(tree: &'a Tree, number: u32, node: &Node) -> impl Iterator<Item = Named<'a>> {
    let own = [Named { name: b".", node: number }, Named { name: b"..", node: node.parent }];
    let mut own = own.into_iter().peekable();
    let entries = tree.entries(node).iter().map(|entry| Named { name: tree.name(entry), node: entry.node });
    let mut entries = entries.peekable();
    std::iter::from_fn(move || match (own.peek(), entries.peek()) {
        (Some(one), Some(other)) if other.name < one.name => entries.next(),
        (Some(_), _) => own.next(),
        _ => entries.next(),
    })
}

/// Counts what a directory's blocks take, without keeping them.
pub fn size(tree: &Tree, number: u32, node: &Node) -> u64 {
    let (mut full, mut used) = (0, 0);
    for named in names(tree, number, node) {
        let length = DIRENT + named.name.len() as u64;
        if used + length > BLOCK {
            (full, used) = (full + BLOCK, 0);
        }
        used += length;
    }
    full + used
}

/// A directory's blocks, the last without what is behind its names. `number_of` tells an inode's number.
pub fn encode(tree: &Tree, number: u32, node: &Node, number_of: &dyn Fn(u32) -> u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut block: Vec<Named> = Vec::new();
    let mut used = 0;
    for named in names(tree, number, node) {
        let length = DIRENT + named.name.len() as u64;
        if used + length > BLOCK {
            flush(tree, &mut block, number_of, &mut out);
            out.resize(out.len().next_multiple_of(BLOCK as usize), 0);
            used = 0;
        }
        used += length;
        block.push(named);
    }
    flush(tree, &mut block, number_of, &mut out);
    out
}

fn flush(tree: &Tree, block: &mut Vec<Named>, number_of: &dyn Fn(u32) -> u64, out: &mut Vec<u8>) {
    let mut at = block.len() as u64 * DIRENT;
    for named in block.iter() {
        out.extend(number_of(named.node).to_le_bytes());
        out.extend((at as u16).to_le_bytes());
        out.extend([kind_in_directory(tree.node(named.node).mode), 0]);
        at += named.name.len() as u64;
    }
    block.drain(..).for_each(|named| out.extend(named.name));
}
