//! Kinds of PCI functions, by their class.

/// Kinds that machines can ask for: a name, the class, and how many of its six hexadecimal digits count.
const KINDS: [(&str, u32, u32); 8] = [
    ("nvme", 0x010800, 4),
    ("infiniband", 0x020700, 4),
    ("network", 0x020000, 2),
    ("gpu", 0x030000, 2),
    ("accelerator", 0x120000, 2),
    ("usb", 0x0c0300, 4),
    ("storage", 0x010000, 2),
    ("audio", 0x040000, 2),
];
/// The base class of bridges.
const BRIDGE: u32 = 0x06;

/// The names of all kinds.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, ..)| *name)
}

/// True if a class is of the kind of this name.
pub fn is(class: u32, name: &str) -> bool {
    KINDS.iter().any(|(known, of, digits)| *known == name && same(class, *of, *digits))
}

/// The kind of a class, or `other`.
pub fn of(class: u32) -> &'static str {
    let found = KINDS.iter().find(|(_, of, digits)| same(class, *of, *digits));
    found.map_or(if is_bridge(class) { "bridge" } else { "other" }, |(name, ..)| name)
}

/// True for a bridge, which no machine can be given.
pub fn is_bridge(class: u32) -> bool {
    class >> 16 == BRIDGE
}

fn same(class: u32, of: u32, digits: u32) -> bool {
    let shift = 4 * (6 - digits);
    class >> shift == of >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_kinds() {
        assert_eq!((of(0x010802), of(0x030200), of(0x020700)), ("nvme", "gpu", "infiniband"));
        assert_eq!((of(0x060400), of(0xff0000)), ("bridge", "other"));
        assert!(is(0x020700, "network") && is(0x010802, "storage") && !is(0x020000, "infiniband"));
    }
}
