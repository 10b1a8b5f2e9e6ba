//! A recorded system, laid out in a directory.

use crate::System;
use rustix::fs::{fallocate, FallocateFlags};
use std::fs;
use std::os::unix::fs::{symlink, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with `proc` and `sys`, which goes with it.
pub struct Tree {
    root: PathBuf,
    system: System,
}

impl Tree {
    /// Lays out a text: `== PATH` and the lines of that file, or `-> PATH TARGET`. What stands
    /// before is a comment.
    pub fn new(text: &str) -> Tree {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("vshmem-doctor-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let tree = Tree { system: System::below(&root), root };
        let mut file: Option<(String, String)> = None;
        for line in text.lines() {
            if let Some(path) = line.strip_prefix("== ") {
                tree.put_all(file.replace((path.into(), String::new())));
            } else if let Some((path, target)) =
                line.strip_prefix("-> ").and_then(|link| link.split_once(' '))
            {
                tree.put_all(file.take());
                tree.link(path, target);
            } else if let Some((_, text)) = &mut file {
                *text += line;
                text.push('\n');
            }
        }
        tree.put_all(file);
        tree
    }

    fn put_all(&self, file: Option<(String, String)>) {
        if let Some((path, text)) = file {
            self.put(&path, &text);
        }
    }

    /// Writes a file, in the place of what is there.
    pub fn put(&self, path: &str, text: &str) {
        let file = self.room(path);
        fs::write(file, text).unwrap();
    }

    /// Makes a file that takes as much room.
    pub fn allocate(&self, path: &str, size: u64) {
        let file = fs::File::create(self.room(path)).unwrap();
        fallocate(file, FallocateFlags::empty(), 0, size).unwrap();
    }

    /// Makes a symbolic link, in the place of what is there.
    pub fn link(&self, path: &str, target: &str) {
        let file = self.room(path);
        let _ = fs::remove_file(&file);
        symlink(target, file).unwrap();
    }

    /// A path whose directories exist, in the place of files.
    fn room(&self, path: &str) -> PathBuf {
        let file = self.root.join(path);
        let above: Vec<&Path> = file.ancestors().skip(1).filter(|it| it.starts_with(&self.root)).collect();
        above.iter().filter(|it| it.is_file()).for_each(|it| fs::remove_file(it).unwrap());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        file
    }

    /// A file's text.
    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    /// All files: what is in them, where links lead, and when each was changed.
    pub fn snapshot(&self) -> Vec<(PathBuf, String, i64)> {
        let (mut found, mut left) = (Vec::new(), vec![self.root.clone()]);
        while let Some(path) = left.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = match meta.file_type() {
                kind if kind.is_dir() => {
                    left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                    String::new()
                }
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
                _ => fs::read_to_string(&path).unwrap(),
            };
            found.push((path, content, meta.ctime() * 1_000_000_000 + meta.ctime_nsec()));
        }
        found.sort();
        found
    }

    /// The system.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The path of the file in which changes are written down.
    pub fn state(&self) -> PathBuf {
        self.root.join("doctor.json")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
