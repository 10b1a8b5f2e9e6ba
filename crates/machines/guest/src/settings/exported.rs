//! The file systems by which a machine sees this host, for launchers that put no file tree together: one for
//! each directory of the system's, and one for each share.

use percent_encoding::{percent_decode_str, percent_encode};
use std::fs;
use std::path::{Component, Path, PathBuf};
use vshmem_session::share::{Share, PLAIN, SYSTEM};

/// The exported parts of this host, besides the shares that are directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    /// Directories of the system's.
    pub trees: Vec<PathBuf>,
    /// Symbolic links, and their targets.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The shares that are files, by their places among the shares. Each is in a directory of its own.
    pub files: Vec<usize>,
}

/// The tag of the file system with the system's directory of this number.
pub fn system_tag(number: usize) -> String {
    format!("system{number}")
}

/// The tag of the file system with the share of this number.
pub fn share_tag(number: usize) -> String {
    format!("share{number}")
}

impl Exported {
    /// The exported parts for these shares, and those of the system if the machine sees it.
    pub fn of(shares: &[Share], sees_system: bool) -> Exported {
        let is_file = |(number, share): (usize, &Share)| share.path.is_file().then_some(number);
        let files = shares.iter().enumerate().filter_map(is_file).collect();
        let mut exported = Exported { files, ..Exported::default() };
        for path in SYSTEM.iter().filter(|_| sees_system).map(PathBuf::from) {
            match fs::read_link(&path) {
                Ok(target) => exported.links.push((path, target)),
                // Those in one that is seen are seen, too.
                Err(_) if path.is_dir() && !exported.trees.iter().any(|tree| path.starts_with(tree)) => {
                    exported.trees.push(path);
                }
                Err(_) => (),
            }
        }
        exported
    }

    /// The place of a share in its file system: the root, or a file there.
    pub fn place<'a>(&self, number: usize, share: &'a Share) -> &'a Path {
        match self.files.contains(&number) {
            true => share.path.file_name().map_or(Path::new(""), Path::new),
            false => Path::new(""),
        }
    }

    /// The parts as a word of a kernel's command line.
    pub fn encode(&self) -> String {
        let path = |path: &Path| percent_encode(path.as_os_str().as_encoded_bytes(), PLAIN).to_string();
        let trees = self.trees.iter().map(|tree| path(tree));
        let links = self.links.iter().map(|(from, to)| format!("{}={}", path(from), path(to)));
        let files = self.files.iter().map(|number| format!(":{number}"));
        trees.chain(links).chain(files).collect::<Vec<_>>().join(",")
    }

    /// The parts that such a word says. `None`: it says none.
    pub fn decode(word: &str) -> Option<Exported> {
        let mut exported = Exported::default();
        let path =
            |text: &str| Some(PathBuf::from(percent_decode_str(text).decode_utf8().ok()?.into_owned()));
        let absolute = |text: &str| {
            let path = path(text)?;
            let plain = path.components().all(|part| part != Component::ParentDir);
            (path.is_absolute() && plain).then_some(path)
        };
        for part in word.split(',').filter(|part| !part.is_empty()) {
            if let Some(number) = part.strip_prefix(':') {
                exported.files.push(number.parse().ok()?);
            } else if let Some((from, to)) = part.split_once('=') {
                exported.links.push((absolute(from)?, path(to)?));
            } else {
                exported.trees.push(absolute(part)?);
            }
        }
        Some(exported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(path: &str) -> Share {
        Share { path: path.into(), writable: false }
    }

    #[test]
    fn it_survives_the_command_line() {
        let exported = Exported {
            trees: vec!["/etc".into(), "/a b,c=d:e".into()],
            links: vec![("/bin".into(), "usr/bin".into())],
            files: vec![0, 11],
        };
        assert_eq!(Exported::decode(&exported.encode()), Some(exported));
        assert_eq!(Exported::decode(""), Some(Exported::default()));
        for bad in ["etc", "/../etc", "/a/../b=c", ":x", "%ff"] {
            assert_eq!(Exported::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_part_of_the_system_is_seen_once() {
        let exported = Exported::of(&[share("/usr"), share("/etc/passwd")], true);
        assert_eq!(exported.files, [1]);
        assert!(exported.trees.contains(&"/usr".into()) && exported.trees.contains(&"/etc".into()));
        assert!(!exported.trees.contains(&"/usr/local".into()), "it is in /usr");
        assert_eq!(exported.place(1, &share("/etc/passwd")), Path::new("passwd"));
        assert_eq!(exported.place(0, &share("/usr")), Path::new(""));
        let none = Exported::of(&[], false);
        assert_eq!(none, Exported::default());
    }
}
