//! The key of a template: all that makes it differ from another one, as lines of text.

use std::fmt::{self, Write};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use twox_hash::XxHash3_128;
use vshmem_base::directories::boot_id;
use vshmem_base::error::{Explain, Result};

/// What is said of a processor in /proc/cpuinfo that machines may see.
const PROCESSOR: [&str; 7] =
    ["vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"];

/// All that makes a template differ from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key of templates of this host in this boot, by this version of Vshmem.
    pub fn of_host() -> Key {
        let mut key = Key(String::new());
        key.add("vshmem", env!("CARGO_PKG_VERSION"));
        key.add("boot", boot_id());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        key.add("host's kernel", release.trim());
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        for (name, value) in processor(&processors) {
            key.add(name, value);
        }
        key
    }

    /// The key whose text was kept.
    pub fn of_text(text: &str) -> Key {
        Key(text.into())
    }

    /// Adds a line.
    pub fn add(&mut self, name: &str, value: impl fmt::Display) {
        let value = value.to_string().replace('\n', " ");
        writeln!(self.0, "{name}: {value}").expect("a string takes it");
    }

    /// Adds a program, which changes only with its file.
    pub fn add_program(&mut self, name: &str, file: &Path) -> Result<()> {
        let meta = fs::metadata(file).explain(|| format!("could not look at {}", file.display()))?;
        let (device, inode, size) = (meta.dev(), meta.ino(), meta.len());
        let (changed, part) = (meta.ctime(), meta.ctime_nsec());
        self.add(name, format!("{} {device}:{inode} {size} {changed}.{part:09}", file.display()));
        Ok(())
    }

    /// Its text, a line for each part.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// A name for it: 32 hexadecimal digits.
    pub fn id(&self) -> String {
        hash(self.0.as_bytes())
    }
}

/// What /proc/cpuinfo says of the first processor that machines may see.
fn processor(cpuinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = cpuinfo.lines().take_while(|line| !line.is_empty());
    let parts = lines.filter_map(|line| line.split_once(':'));
    parts.map(|(name, value)| (name.trim(), value.trim())).filter(|(name, _)| PROCESSOR.contains(name))
}

/// A hash of bytes: 32 hexadecimal digits. It finds what has changed, and keeps no liar out: the files are
/// the user's own.
pub fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// A hash of what is in a file.
pub fn hash_of(file: &Path) -> Result<String> {
    let mut hasher = XxHash3_128::new();
    let read = File::open(file).and_then(|mut file| io::copy(&mut file, &mut Hashed(&mut hasher)));
    read.explain(|| format!("could not read {}", file.display()))?;
    Ok(format!("{:032x}", hasher.finish_128()))
}

/// Hashes what is written.
struct Hashed<'a>(&'a mut XxHash3_128);

impl io::Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_makes_another_key() {
        let of = |value: &str| {
            let mut key = Key(String::new());
            key.add("words", value);
            key.add("more", "same");
            key
        };
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a").id(), of("b").id());
        assert_eq!(of("a\nmore: x").text(), "words: a more: x\nmore: same\n");
        assert_eq!(of("a").id().len(), 32);
    }

    #[test]
    fn a_program_is_another_one_when_its_file_has_changed() {
        let file = std::env::temp_dir().join(format!("vshmem-key-{}", std::process::id()));
        fs::write(&file, "one").unwrap();
        let key = || {
            let mut key = Key(String::new());
            key.add_program("program", &file).unwrap();
            key.add("content", hash_of(&file).unwrap());
            key
        };
        let before = key();
        assert_eq!(before, key());
        fs::write(&file, "two").unwrap();
        assert_ne!(before, key());
        fs::remove_file(&file).unwrap();
        assert!(hash_of(&file).is_err());
    }

    #[test]
    fn the_first_processor_counts() {
        let text = "processor\t: 0\nvendor_id\t: A\nmodel name\t: B 2.1\nbogomips\t: 4\n\nprocessor\t: 1\nvendor_id\t: C\n";
        assert_eq!(processor(text).collect::<Vec<_>>(), [("vendor_id", "A"), ("model name", "B 2.1")]);
    }
}
