//! Readers of texts that others write, each as a function from bytes. It panics where a reader has a fault.

use crate::given::{command_line, Grant};
use crate::ids::IdMap;
use crate::{stat, PoolRef};
use std::string::ToString;

/// A reader.
pub type Reader = fn(&[u8]);

/// All of them, by name.
pub const READERS: &[(&str, Reader)] =
    &[("ids", ids), ("grant", grant), ("command line", kernel_command_line), ("stat", stat), ("pool", pool)];

/// `uid_map` and `gid_map`: an id that has another name outside is found again by that name.
fn ids(text: &[u8]) {
    let Ok(map) = IdMap::from_text(text) else {
        return;
    };
    let sample = text.split(|c| !c.is_ascii_digit()).filter_map(|word| {
        let word = core::str::from_utf8(word).ok()?;
        word.parse::<u32>().ok()
    });
    for id in sample.chain([0, 1, 1000, u32::MAX - 1]) {
        let outside = map.outside(id);
        if outside != crate::ids::NOBODYS {
            assert_eq!(map.inside(outside), id, "and back");
        }
    }
}

/// A line of the table of granted pools: what was read is written as it is read again.
fn grant(line: &[u8]) {
    let Some(grant) = Grant::parse(line) else {
        return;
    };
    let written = grant.to_string();
    let again = Grant::parse(written.as_bytes()).expect("what was written");
    assert_eq!(again.to_string(), written, "and again");
    assert!(!written.contains('\n'), "one line");
}

/// The kernel's command line.
fn kernel_command_line(line: &[u8]) {
    let value = command_line::value_in(line, command_line::POOLS);
    for entry in command_line::entries(value) {
        assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'), "a name");
    }
}

/// `/proc/PID/stat`, whose second field is what a program calls itself.
fn stat(text: &[u8]) {
    let _ = stat::parse(text);
}

/// The name that a person gives to a pool. It leads nowhere else.
fn pool(value: &[u8]) {
    if let Ok(pool) = PoolRef::named(value) {
        let path = pool.path().to_bytes();
        assert!(path.starts_with(b"/dev/shm/vshmem."), "in its directory");
        assert_eq!(path.iter().filter(|c| **c == b'/').count(), 4, "in it");
    }
    let _ = PoolRef::at(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_what_they_should() {
        let samples: [(&str, &[u8]); 5] = [
            ("ids", b"0 1000 1, 1 5000 10 # more\n4000000000 7 2\n"),
            ("grant", b"0000:00:05.0 work"),
            ("command line", b"quiet vshmem.pools=a,b:00:05.0"),
            ("stat", b"1 (a) b) S 1 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 5"),
            ("pool", b"work"),
        ];
        for (name, sample) in samples {
            let (_, read) = READERS.iter().find(|(n, _)| *n == name).expect("a reader");
            read(sample);
            for end in 0..sample.len() {
                read(&sample[..end]);
            }
        }
    }
}
