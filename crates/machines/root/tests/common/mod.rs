//! A directory for a test, and images of what is in it.
#![allow(dead_code)]

use rustix::fs::{memfd_create, MemfdFlags};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use vshmem_root::serve::Contents;
use vshmem_root::{walk, Image, Part, Tree, View, Walked};

/// A directory that goes with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("vshmem-root-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("tree")).unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    /// A path in the tree.
    pub fn tree(&self, name: &str) -> PathBuf {
        self.0.join("tree").join(name)
    }

    /// Makes a file in the tree, with the directories above it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.tree(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The tree as the only part.
    pub fn part(&self) -> Part {
        host(&self.0.join("tree"), "/", View::Readable)
    }

    pub fn walk(&self) -> Walked {
        walk(&[self.part()], None).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn host(source: &Path, at: &str, view: View) -> Part {
    Part::Host { source: source.into(), at: at.into(), view }
}

pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn image(tree: &Tree) -> Image {
    Image::make(tree, memfd_create("test", MemfdFlags::CLOEXEC).unwrap().into()).unwrap()
}

/// The bytes of an image's metadata.
pub fn metadata(tree: &Tree) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let image = image(tree);
    let mut bytes = vec![0; image.metadata_length() as usize];
    image.metadata().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Lines that a log has got.
pub type Lines = Arc<Mutex<Vec<String>>>;

/// The contents of a tree's image, with their log.
pub fn contents(tree: Tree, most_open: usize) -> (Arc<Contents>, Lines) {
    let lines = Lines::default();
    let log = lines.clone();
    let image = image(&tree);
    let log = Box::new(move |line: &str| log.lock().unwrap().push(line.into()));
    (Arc::new(Contents::new(tree, image, most_open, log)), lines)
}

/// The number of a file in a tree.
pub fn number(tree: &Tree, path: &str) -> Option<u32> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    names.try_fold(0, |at, name| tree.find(tree.node(at), name.as_bytes()))
}

/// All paths of a tree that a user could name.
pub fn paths(tree: &Tree) -> Vec<String> {
    fn below(tree: &Tree, number: u32, path: &str, out: &mut Vec<String>) {
        for entry in tree.entries(tree.node(number)) {
            let path = format!("{path}/{}", String::from_utf8_lossy(tree.name(entry)));
            out.push(path.clone());
            below(tree, entry.node, &path, out);
        }
    }
    let mut out = Vec::new();
    below(tree, 0, "", &mut out);
    out
}
