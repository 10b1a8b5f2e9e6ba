//! Images by the programs of erofs-utils: no errors, and every file as it is. Skipped where they are not
//! installed. What a kernel makes of them is tested by tests/root.

mod common;

use common::{contents, Scratch};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{symlink, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes an image with all contents, as a machine would read it.
fn write_image(it: &Scratch) -> PathBuf {
    let (contents, lines) = contents(it.walk().tree, 16);
    let path = it.0.join("image");
    let mut out = File::create(&path).unwrap();
    // Not a multiple of a block, so that reads begin and end everywhere.
    let mut bytes = vec![0; 100_001];
    let mut at = 0;
    while at < contents.image().length() {
        let length = (contents.image().length() - at).min(bytes.len() as u64) as usize;
        contents.read(&mut bytes[..length], at).unwrap();
        out.write_all(&bytes[..length]).unwrap();
        at += length as u64;
    }
    assert!(lines.lock().unwrap().is_empty());
    path
}

/// The output of fsck.erofs; nothing if it is not installed.
fn fsck(arguments: &[&Path]) -> Option<String> {
    let out = match Command::new("fsck.erofs").arg("-d3").args(arguments).output() {
        Ok(out) => out,
        Err(why) => {
            println!("skipped: fsck.erofs can't be started ({why}): install erofs-utils");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !said.contains("<E>"), "{said}");
    Some(said)
}

/// Compares two trees file by file. Who is not root gets files of its own when it extracts.
fn compare(one: &Path, other: &Path) -> usize {
    let is_root = rustix::process::geteuid().is_root();
    let mut count = 0;
    let mut names: Vec<_> = fs::read_dir(one).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut others: Vec<_> = fs::read_dir(other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    others.sort();
    assert_eq!(names, others, "{}", one.display());
    for name in names {
        let (one, other) = (one.join(&name), other.join(&name));
        let (meta, theirs) = (fs::symlink_metadata(&one).unwrap(), fs::symlink_metadata(&other).unwrap());
        let what = one.display();
        assert_eq!(meta.mode() & 0o170000, theirs.mode() & 0o170000, "{what}");
        if !meta.is_symlink() {
            let time = |meta: &fs::Metadata| (meta.mtime(), meta.mtime_nsec());
            // It sets the owner behind the mode, by which Linux takes set-user-id bits away.
            assert_eq!(meta.mode() & 0o171777, theirs.mode() & 0o171777, "{what}");
            assert_eq!(time(&meta), time(&theirs), "{what}");
        }
        if is_root {
            assert_eq!((meta.uid(), meta.gid()), (theirs.uid(), theirs.gid()), "{what}");
        }
        if meta.is_dir() {
            count += compare(&one, &other);
        } else if meta.is_symlink() {
            assert_eq!(fs::read_link(&one).unwrap(), fs::read_link(&other).unwrap());
        } else if meta.is_file() {
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{what}");
        } else if meta.file_type().is_char_device() {
            assert_eq!(meta.rdev(), theirs.rdev());
        }
        count += 1;
    }
    count
}

#[test]
fn fsck_finds_nothing_and_extracts_what_is_there() {
    let it = Scratch::new("fsck");
    for size in [0, 1, 4095, 4096, 4097, 100_000] {
        it.write(&format!("sizes/{size}"), &vec![size as u8; size]);
    }
    // Directories of every size around those of a block, and of many.
    for count in [0usize, 1, 10, 58, 59, 60, 61, 62, 63, 64, 65, 300] {
        fs::create_dir_all(it.tree(&format!("with/{count}"))).unwrap();
        for number in 0..count {
            it.write(&format!("with/{count}/{}-{number}", "n".repeat(number % 57)), b"x");
        }
    }
    for name in ["-before", "!the", "+dots", "~after", "a b", "é"] {
        it.write(name, name.as_bytes());
    }
    it.write(&"n".repeat(255), b"a long name");
    for length in [1, 100, 3000] {
        symlink("t".repeat(length), it.tree(&format!("link-{length}"))).unwrap();
    }
    Command::new("mkfifo").arg(it.tree("fifo")).status().unwrap();
    let _ = std::os::unix::net::UnixListener::bind(it.tree("socket")).unwrap();
    common::mode(&it.tree("a b"), 0o4750);
    let image = write_image(&it);
    if fsck(&[&image]).is_none() {
        return;
    }
    let to = it.0.join("extracted");
    fsck(&[format!("--extract={}", to.display()).as_ref(), "--preserve-perms".as_ref(), &image]).unwrap();
    let count = compare(&it.tree(""), &to);
    assert!(count > 700, "{count} files were compared");
}

#[test]
fn a_directory_may_fill_its_blocks_to_the_last_byte() {
    let it = Scratch::new("full");
    for more in 0..3usize {
        let mut left = 4096 - 13 - 14;
        while left > 12 + 255 + 13 {
            it.write(&format!("d{more}/{left:0255}"), b"");
            left -= 12 + 255;
        }
        it.write(&format!("d{more}/{}", "x".repeat(left - 13 + more)), b"");
    }
    let image = write_image(&it);
    let Some(_) = fsck(&[&image]) else { return };
    let to = it.0.join("extracted");
    fsck(&[format!("--extract={}", to.display()).as_ref(), &image]).unwrap();
    compare(&it.tree(""), &to);
}
