//! Where attributes of files are: those that one file has alone are behind its inode, others are kept once.

use super::format::{attribute_length, encode_attribute, ATTRIBUTES_HEADER};
use crate::tree::{Attribute, Tree, NONE};
use std::collections::HashMap;

/// The most bytes that attributes behind an inode take.
const MAX_INLINE: u64 = 16 << 10;

/// The attributes of a tree.
pub struct Attributes {
    /// What stands behind an inode that has a set.
    behind: Vec<Vec<u8>>,
    /// Those that are kept once.
    pub shared: Vec<u8>,
}

impl Attributes {
    /// Those of a tree.
    pub fn of(tree: &Tree) -> Attributes {
        let mut uses = vec![0u32; tree.attributes.len()];
        for node in tree.nodes.iter().filter(|node| node.attributes != NONE) {
            uses[node.attributes as usize] += 1;
        }
        let mut out = Attributes { behind: Vec::new(), shared: Vec::new() };
        let mut places: HashMap<Attribute, u32> = HashMap::new();
        for (set, uses) in tree.attributes.iter().zip(uses) {
            let length: u64 = Attribute::all(set).map(|it| attribute_length(&it)).sum();
            let is_inline = uses < 2 && length <= MAX_INLINE;
            let behind = match is_inline {
                true => inline(set),
                false => out.sharing(set, &mut places),
            };
            out.behind.push(behind);
        }
        out
    }

    /// What stands behind an inode that has this set.
    pub fn behind(&self, set: u32) -> &[u8] {
        self.behind.get(set as usize).map_or(&[], |bytes| bytes)
    }

    fn sharing<'a>(&mut self, set: &'a [u8], places: &mut HashMap<Attribute<'a>, u32>) -> Vec<u8> {
        let mut numbers: Vec<u32> = Vec::new();
        for attribute in Attribute::all(set) {
            let number = *places.entry(attribute).or_insert_with(|| {
                let number = self.shared.len() as u32 / 4;
                encode_attribute(&attribute, &mut self.shared);
                number
            });
            numbers.push(number);
        }
        // At most 255: the walk has taken no more.
        let mut out = header(numbers.len() as u8);
        numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        out
    }
}

fn inline(set: &[u8]) -> Vec<u8> {
    let mut out = header(0);
    Attribute::all(set).for_each(|attribute| encode_attribute(&attribute, &mut out));
    out
}

fn header(shared: u8) -> Vec<u8> {
    let mut header = vec![0; ATTRIBUTES_HEADER as usize];
    header[4] = shared;
    header
}
