//! Versions of libraries, and the range of those that were tested.

use std::fmt;

/// A version: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Reads `4.1`, `4.1.4` or `5.0.0rc2`.
    pub fn parse(text: &str) -> Option<Version> {
        let mut parts = text.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = match parts.next() {
            None => 0,
            Some(patch) => {
                let end = patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len());
                let is_name = patch[end..].bytes().all(|b| b.is_ascii_alphanumeric());
                patch[..end].parse().ok().filter(|_| is_name)?
            }
        };
        Some(Version(major, minor, patch))
    }

    /// The first word of a text that is a version, with or without a `v` before and a comma behind it.
    pub fn in_text(text: &str) -> Option<Version> {
        text.split_whitespace().find_map(|word| {
            let word = word.strip_prefix('v').unwrap_or(word);
            Version::parse(word.strip_suffix(',').unwrap_or(word))
        })
    }

    /// The first text in a library's file that is nothing but a version with this major number: a guess, for
    /// a library that can't be asked.
    pub fn in_file(bytes: &[u8], major: u16) -> Option<Version> {
        let is_version = |text: &&[u8]| (3..=16).contains(&text.len());
        bytes.split(|b| *b == 0).filter_map(last_word).filter(is_version).find_map(|text| {
            Version::parse(std::str::from_utf8(text).ok()?).filter(|version| version.0 == major)
        })
    }
}

/// A text without the byte of something else that happens to precede it. `v4.1.4` and `GLIBC_2.2.5` are
/// names.
fn last_word(text: &[u8]) -> Option<&[u8]> {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() && !b.is_ascii_uppercase() || *b == b'.';
    let start = text.iter().rposition(|b| !is_part(b)).map_or(0, |at| at + 1);
    let (before, word) = text.split_at(start);
    let is_name = before.last().is_some_and(|b| b"_ -+/:".contains(b));
    (!is_name && word.first().is_some_and(u8::is_ascii_digit)).then_some(word)
}

/// The versions of a library that were tested, from the first to the last minor version.
#[derive(Debug, Clone, Copy)]
pub struct Tested {
    /// The oldest.
    pub first: Version,
    /// Major and minor number of the newest.
    pub last: (u16, u16),
}

impl Tested {
    /// True for a version that was tested, and for those in between.
    pub fn has(&self, version: Version) -> bool {
        version >= self.first && (version.0, version.1) <= self.last
    }
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}.{}", self.first, self.last.0, self.last.1)
    }
}

/// The versions of UCX that were tested.
pub const UCX: Tested = Tested { first: Version(1, 13, 1), last: (1, 22) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(Version::parse("4.0.2"), Some(Version(4, 0, 2)));
        assert_eq!(Version::parse("1.20"), Some(Version(1, 20, 0)));
        assert_eq!(Version::parse("5.0.11rc1"), Some(Version(5, 0, 11)));
        for wrong in ["", "4", "4.", "4.x", "v4.1.4", "4.1.x", "4.1.4.1", "4.1.4-2", "99999.1"] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn versions_are_found_in_texts() {
        let find = Version::in_text;
        let open_mpi =
            "Open MPI v5.0.7, package: Debian OpenMPI, ident: 5.0.7, repo rev: v5.0.7, Feb 14, 2025";
        assert_eq!(find(open_mpi), Some(Version(5, 0, 7)));
        assert_eq!(find("MPICH Version:      4.2.1\nMPICH ABI:          16:1:4\n"), Some(Version(4, 2, 1)));
        assert_eq!(find("HYDRA build details:\n    Version:       4.0.2\n"), Some(Version(4, 0, 2)));
        assert_eq!(find("mpiexec.openmpi (OpenRTE) 4.1.4\n"), Some(Version(4, 1, 4)));
        assert_eq!(find("# Library version: 1.13.1\n"), Some(Version(1, 13, 1)));
        assert_eq!(find("MPI 9.9.0rc1"), Some(Version(9, 9, 0)));
        assert_eq!(find("no version, v, 9"), None);
    }

    #[test]
    fn versions_are_found_in_files() {
        let find = |bytes: &[u8]| Version::in_file(bytes, 1);
        // The last byte of a number before the text, as in Debian's libucp.so.0.
        assert_eq!(find(b"\0\0\0A1.13.1\0"), Some(Version(1, 13, 1)));
        assert_eq!(find(b"\0\xff\x801.20.1\0"), Some(Version(1, 20, 1)));
        assert_eq!(find(b"0.13.99\0v1.4.1\0\x001.22.0\0"), Some(Version(1, 22, 0)));
        assert_eq!(find(b"GLIBC_1.2.5\0from 1.4.1 on\0v1.1.1\0"), None);
        assert_eq!(find(b"\x004.0.2"), None);
    }

    #[test]
    fn ends_of_what_was_tested() {
        assert!(UCX.has(Version(1, 13, 1)) && UCX.has(Version(1, 22, 9)));
        assert!(!UCX.has(Version(1, 13, 0)) && !UCX.has(Version(1, 23, 0)) && !UCX.has(Version(2, 0, 0)));
        assert_eq!(UCX.to_string(), "1.13.1 to 1.22");
    }
}
