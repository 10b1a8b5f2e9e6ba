//! Writes cpio archives in the "newc" format, which Linux unpacks as an initramfs.
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst of Linux.

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// An archive in memory.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

struct Entry<'a> {
    name: &'a str,
    mode: u32,
    device: (u32, u32),
    data: &'a [u8],
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds a directory. Parents must have been added before it.
    pub fn directory(&mut self, name: &str, mode: u32) {
        self.add(Entry {
            name,
            mode: DIRECTORY | mode,
            device: (0, 0),
            data: &[],
        });
    }

    /// Adds a file with its contents.
    pub fn file(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.add(Entry {
            name,
            mode: REGULAR | mode,
            device: (0, 0),
            data,
        });
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, name: &str, target: &str) {
        self.add(Entry {
            name,
            mode: SYMLINK | 0o777,
            device: (0, 0),
            data: target.as_bytes(),
        });
    }

    /// Adds a character device.
    pub fn character(&mut self, name: &str, mode: u32, major: u32, minor: u32) {
        self.add(Entry {
            name,
            mode: CHARACTER | mode,
            device: (major, minor),
            data: &[],
        });
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entries = 0;
        self.add(Entry {
            name: "TRAILER!!!",
            mode: 0,
            device: (0, 0),
            data: &[],
        });
        self.bytes
    }

    fn add(&mut self, entry: Entry<'_>) {
        self.entries += 1;
        let links = if entry.mode & 0o170_000 == DIRECTORY {
            2
        } else {
            1
        };
        let fields = [
            self.entries,
            entry.mode,
            0, // uid
            0, // gid
            links,
            0, // time of change
            u32::try_from(entry.data.len()).expect("a file in an initramfs is smaller than 4 GiB"),
            0, // major and minor of the device that holds the file
            0,
            entry.device.0,
            entry.device.1,
            entry.name.len() as u32 + 1,
            0, // checksum, unused in this format
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(entry.name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(entry.data);
        self.pad();
    }

    fn pad(&mut self) {
        while self.bytes.len() % 4 != 0 {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Reads an archive back: (name, mode, contents).
    fn parse(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut out = Vec::new();
        let total = bytes.len();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |i: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * i..14 + 8 * i]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_len) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_len - 1].to_vec()).unwrap();
            assert_eq!(bytes[110 + name_len - 1], 0);
            let data_at = (110 + name_len).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(bytes.len(), data_at);
                assert_eq!(total % 4, 0);
                return out;
            }
            out.push((name, mode, bytes[data_at..data_at + size].to_vec()));
            bytes = &bytes[(data_at + size).next_multiple_of(4)..];
        }
    }

    fn sample() -> Vec<u8> {
        let mut archive = Archive::new();
        archive.directory("bin", 0o755);
        archive.file("bin/one", 0o755, b"12345");
        archive.file("empty", 0o644, b"");
        archive.symlink("link", "bin/one");
        archive.finish()
    }

    #[test]
    fn an_archive_can_be_read_back() {
        let entries = parse(&sample());
        assert_eq!(
            entries,
            vec![
                ("bin".into(), 0o040_755, vec![]),
                ("bin/one".into(), 0o100_755, b"12345".to_vec()),
                ("empty".into(), 0o100_644, vec![]),
                ("link".into(), 0o120_777, b"bin/one".to_vec()),
            ]
        );
    }

    #[test]
    fn busybox_or_cpio_lists_it() {
        for (program, args) in [("cpio", &["-it"][..]), ("busybox", &["cpio", "-t"][..])] {
            let child = Command::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = child else { continue };
            child.stdin.take().unwrap().write_all(&sample()).unwrap();
            let out = child.wait_with_output().unwrap();
            assert!(out.status.success(), "{program} refused the archive");
            let text = String::from_utf8(out.stdout).unwrap();
            assert_eq!(
                text.lines().collect::<Vec<_>>(),
                ["bin", "bin/one", "empty", "link"]
            );
        }
    }
}
