//! What machines see: which directories of the host, and where.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use vshmem_base::error::{error, Result};

/// How much of a part is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// What the walking user can read, as it is.
    Readable,
    /// What everybody can read. Other files are empty, other directories have nothing in them, and what is
    /// neither file, directory nor symbolic link is left out. Set-user-id bits and attributes are, too.
    Public,
}

/// A part of the tree that machines see. One that lies within another stands in its place there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A file or directory of the host, without what is mounted below it. Its path has no symbolic links but
    /// for the last name, which is then shown as the link that it is.
    Host {
        /// Its path on the host.
        source: PathBuf,
        /// Its path in the tree.
        at: PathBuf,
        /// What is visible of it.
        view: View,
    },
    /// A directory that is made, unless the host has one there.
    Directory {
        /// Its path in the tree.
        at: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A path whose file or directory, if there is one, is shown empty.
    Hidden(PathBuf),
}

/// A place of the tree at which, or below which, something was asked for.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub children: BTreeMap<Vec<u8>, Place>,
    /// The number of the part that is here.
    pub part: Option<usize>,
}

impl Place {
    /// The places of parts.
    pub fn of(parts: &[Part]) -> Result<Place> {
        let mut root = Place::default();
        for (number, part) in parts.iter().enumerate() {
            let mut place = &mut root;
            for name in names(part.at())? {
                place = place.children.entry(name.as_bytes().to_vec()).or_default();
            }
            if place.part.is_some() {
                return Err(
                    error!("{} can be only one thing in a machine's tree", part.at().display()).code(2)
                );
            }
            place.part = Some(number);
        }
        Ok(root)
    }
}

impl Part {
    /// Its path in the tree.
    pub fn at(&self) -> &Path {
        match self {
            Part::Host { at, .. } | Part::Directory { at, .. } | Part::Hidden(at) => at,
        }
    }

    /// Its path on the host, if it has one.
    pub fn source(&self) -> Option<&Path> {
        match self {
            Part::Host { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The names of an absolute path.
fn names(path: &Path) -> Result<Vec<&OsStr>> {
    let refused =
        || error!("{} is no path in a machine's tree: it begins at / and has no ..", path.display());
    if !path.is_absolute() {
        return Err(refused().code(2));
    }
    let names = path.components().filter(|part| *part != Component::RootDir);
    names
        .map(|part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(refused().code(2)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_nested_and_wrong_paths_are_refused() {
        let host = |at: &str| Part::Host { source: "/x".into(), at: at.into(), view: View::Readable };
        let places = Place::of(&[host("/usr"), host("/usr/local"), Part::Hidden("/a/b".into())]).unwrap();
        let usr = &places.children[&b"usr"[..]];
        assert_eq!((usr.part, usr.children[&b"local"[..]].part), (Some(0), Some(1)));
        assert_eq!((places.children[&b"a"[..]].part, places.part), (None, None));
        assert_eq!(Place::of(&[host("/")]).unwrap().part, Some(0));
        for wrong in ["usr", "", "/usr/../etc"] {
            assert_eq!(Place::of(&[host(wrong)]).unwrap_err().exit_code(), 2, "{wrong}");
        }
        assert!(Place::of(&[host("/usr"), host("/usr/")]).is_err());
    }
}
