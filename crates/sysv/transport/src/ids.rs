//! Mapping this kernel's users and groups to those in pools.
//!
//! As in user_namespaces(7): a line `INSIDE OUTSIDE COUNT` says that the ids from INSIDE on are, in every
//! pool, those from OUTSIDE on. Without any line ids are the same inside and outside, which is right where
//! all kernels have the same users. With a map, an id in no line has no counterpart, in either direction.

use core::fmt;

use crate::descriptor::Owned;
use crate::sys;
use core::ffi::CStr;

/// Lines of a map, at the most.
const MOST_LINES: usize = 32;
/// Longest file that is read, in bytes.
const LONGEST: usize = 2048;
/// The id that no user has: the kernel refuses to assign it.
pub const NOBODYS: u32 = u32::MAX;
/// The id here of those in a pool that have no counterpart, as in the kernel.
const OVERFLOW: u32 = 65534;

/// Ids of this kernel and of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    lines: [Line; MOST_LINES],
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    inside: u32,
    outside: u32,
    count: u32,
}

/// The maps of users and of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Users.
    pub users: IdMap,
    /// Groups.
    pub groups: IdMap,
}

/// A map that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdMapError {
    /// A text is no map.
    Text,
    /// A file can't be understood.
    File(&'static str),
    /// A file can't be read.
    Unreadable(&'static str),
}

impl fmt::Display for IdMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = "up to 32 lines of three numbers, INSIDE OUTSIDE COUNT, that don't overlap";
        match self {
            IdMapError::Text => write!(f, "a map of ids has {form}"),
            IdMapError::File(path) => {
                write!(f, "{path} can't be understood; it has {form}, in 2048 bytes")
            }
            IdMapError::Unreadable(path) => write!(f, "{path} is there but can't be read"),
        }
    }
}
impl core::error::Error for IdMapError {}

impl IdMap {
    /// Ids are the same inside and outside.
    pub const SAME: IdMap = IdMap { lines: [Line { inside: 0, outside: 0, count: 0 }; MOST_LINES], count: 0 };

    /// The id in pools of one of this kernel; [`NOBODYS`] if it is in no line.
    pub fn outside(&self, id: u32) -> u32 {
        self.translate(id, |line| (line.inside, line.outside)).unwrap_or(NOBODYS)
    }

    /// The id in this kernel of one of a pool; 65534 if it is in no line.
    pub fn inside(&self, id: u32) -> u32 {
        self.translate(id, |line| (line.outside, line.inside)).unwrap_or(OVERFLOW)
    }

    fn translate(&self, id: u32, way: impl Fn(&Line) -> (u32, u32)) -> Option<u32> {
        let lines = self.lines.get(..self.count).unwrap_or(&[]);
        if lines.is_empty() {
            return Some(id);
        }
        lines.iter().find_map(|line| {
            let (from, to) = way(line);
            let ahead = id.checked_sub(from).filter(|ahead| *ahead < line.count)?;
            Some(to + ahead)
        })
    }

    /// Reads a map: lines end with a newline or a comma; what follows a `#` up to the end of the line is left
    /// out.
    ///
    /// # Errors
    /// [`IdMapError::Text`]: it is none.
    pub fn from_text(text: &[u8]) -> Result<IdMap, IdMapError> {
        IdMap::parse(text).ok_or(IdMapError::Text)
    }

    fn parse(text: &[u8]) -> Option<IdMap> {
        let mut map = IdMap::SAME;
        for line in text.split(|c| *c == b'\n') {
            let line = line.split(|c| *c == b'#').next().unwrap_or(&[]);
            for part in line.split(|c| *c == b',') {
                let mut words = part.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                let Some(first) = words.next() else { continue };
                let new = Line {
                    inside: number(first)?,
                    outside: number(words.next()?)?,
                    count: number(words.next()?)?,
                };
                if words.next().is_some() || !map.admits(&new) {
                    return None;
                }
                *map.lines.get_mut(map.count)? = new;
                map.count += 1;
            }
        }
        Some(map)
    }

    /// Whether a line is not empty, stays below [`NOBODYS`] and overlaps no other.
    fn admits(&self, new: &Line) -> bool {
        let fits = |first: u32| first.checked_add(new.count).is_some();
        let apart = |a: u32, a_count: u32, b: u32| a + a_count <= b || b + new.count <= a;
        new.count > 0
            && fits(new.inside)
            && fits(new.outside)
            && self.lines[..self.count].iter().all(|old| {
                apart(old.inside, old.count, new.inside) && apart(old.outside, old.count, new.outside)
            })
    }
}

fn number(word: &[u8]) -> Option<u32> {
    let all_digits = word.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(word).ok().filter(|_| all_digits)?;
    text.parse().ok()
}

impl Ids {
    /// Ids that are the same here and in pools.
    pub const SAME: Ids = Ids { users: IdMap::SAME, groups: IdMap::SAME };

    /// The maps that are given, and where one isn't, that of `/etc/vshmem/uid_map` or `gid_map`; without the
    /// file, the same everywhere.
    ///
    /// # Errors
    /// See [`IdMapError`].
    pub fn read(users: Option<IdMap>, groups: Option<IdMap>) -> Result<Ids, IdMapError> {
        let or_file = |map: Option<IdMap>, path| map.map_or_else(|| from_file(path), Ok);
        Ok(Ids {
            users: or_file(users, c"/etc/vshmem/uid_map")?,
            groups: or_file(groups, c"/etc/vshmem/gid_map")?,
        })
    }
}

#[inline(never)] // Keeps its buffer off the caller's stack.
fn from_file(path: &'static CStr) -> Result<IdMap, IdMapError> {
    let name = path.to_str().unwrap_or("a map");
    let file = match sys::open(path, libc::O_RDONLY, 0) {
        Ok(file) => Owned::new(file),
        Err(sys::Errno(libc::ENOENT | libc::ENOTDIR)) => return Ok(IdMap::SAME),
        Err(_) => return Err(IdMapError::Unreadable(name)),
    };
    let mut buffer = [0; LONGEST + 1];
    let text = sys::read_all(file.fd(), &mut buffer).map_err(|_| IdMapError::Unreadable(name))?;
    Some(text).filter(|text| text.len() <= LONGEST).and_then(IdMap::parse).ok_or(IdMapError::File(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn without_a_map_ids_stay() {
        for id in [0, 1000, 65534, NOBODYS - 1] {
            assert_eq!(IdMap::SAME.outside(id), id);
            assert_eq!(IdMap::SAME.inside(id), id);
        }
    }

    #[test]
    fn ids_are_translated_both_ways() {
        let map =
            IdMap::parse(b"# root is nobody special\n0 100000 1000\n1000 1000 1 # me\n\n").expect("a map");
        for (inside, outside) in [(0, 100_000), (999, 100_999), (1000, 1000)] {
            assert_eq!(map.outside(inside), outside);
            assert_eq!(map.inside(outside), inside);
        }
        assert_eq!(map.outside(1001), NOBODYS);
        for outside in [0, 999, 1001, 99_999, 101_000, NOBODYS] {
            assert_eq!(map.inside(outside), 65534);
        }
        let written_otherwise = IdMap::parse(b"0 100000 1000,1000 1000 1");
        assert_eq!(written_otherwise, Some(map));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for bad in [
            &b"0 0"[..],
            b"0 0 0",
            b"0 0 1 1",
            b"a 0 1",
            b"-1 0 1",
            b"+1 0 1",
            b"0 0 4294967296",
            b"4294967295 0 1",
            b"0 4294967295 1",
            b"1 0 4294967295",
            b"0 0 10,5 100 1",
            b"0 0 10,100 5 1",
        ] {
            assert_eq!(IdMap::parse(bad), None, "{bad:?}");
        }
        assert_eq!(IdMap::parse(b"0 0 4294967295").map(|map| map.count), Some(1));
        let lines = |count: u32| {
            let lines = (0..count).map(|i| std::format!("{i} {i} 1\n"));
            lines.collect::<std::string::String>()
        };
        assert!(IdMap::parse(lines(32).as_bytes()).is_some());
        assert!(IdMap::parse(lines(33).as_bytes()).is_none());
    }

    #[test]
    fn what_is_given_comes_before_files() {
        let map = IdMap::from_text(b"0 5 1").expect("a map");
        let ids = Ids::read(Some(map), Some(IdMap::SAME)).expect("maps");
        assert_eq!((ids.users.outside(0), ids.groups.outside(0)), (5, 0));
        let error = IdMap::from_text(b"x").expect_err("no map");
        assert!(error.to_string().contains("INSIDE OUTSIDE COUNT"));
    }

    #[test]
    fn files_are_read() {
        let path = std::env::temp_dir().join(std::format!("vshmem-ids-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero in it");
        let name: &'static CStr = std::boxed::Box::leak(name.into_boxed_c_str());
        assert_eq!(from_file(name), Ok(IdMap::SAME), "there is none");
        let long = " ".repeat(LONGEST - 7);
        for (text, good) in [("0 5 1\n", true), ("0 5", false)] {
            std::fs::write(&path, text).expect("written");
            assert_eq!(from_file(name).is_ok(), good);
        }
        for (more, good) in [("", true), (" ", false)] {
            std::fs::write(&path, std::format!("0 5 1\n{long}{more} ")).expect("written");
            assert_eq!(from_file(name).is_ok(), good);
        }
        std::fs::remove_file(&path).expect("removed");
    }
}
