//! Checksums of files, by the system's programs for them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use vshmem_base::error::{error, Error, Explain, Result};

/// A SHA-256 or SHA-512 checksum, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

/// Digits that tell files apart in the cache.
const SHORT: usize = 12;

impl Digest {
    /// Reads the digits, whose number tells the kind.
    pub fn parse(hex: &str) -> Option<Digest> {
        let fine = matches!(hex.len(), 64 | 128) && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        fine.then(|| Digest(hex.to_ascii_lowercase()))
    }

    /// `sha256` or `sha512`.
    pub fn kind(&self) -> &'static str {
        match self.0.len() {
            64 => "sha256",
            _ => "sha512",
        }
    }

    /// Its first digits.
    pub fn short(&self) -> &str {
        &self.0[..SHORT]
    }

    /// Whether a name's digits may be those of [`short`](Digest::short).
    pub fn is_short(digits: &str) -> bool {
        digits.len() == SHORT && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The checksum of a text.
    pub fn of_text(text: &str) -> Result<Digest> {
        let mut command = Command::new("sha256sum");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| lacks(&command, &why))?;
        let written =
            child.stdin.take().map(|mut pipe| std::io::Write::write_all(&mut pipe, text.as_bytes()));
        written.unwrap_or(Ok(())).explain(|| "could not pass a text to sha256sum".into())?;
        let out = child.wait_with_output().explain(|| "could not wait for sha256sum".into())?;
        first_word(&out.stdout).ok_or_else(|| Error::new("sha256sum printed no checksum"))
    }

    /// The checksum of a file, of the same kind as this one.
    pub fn of_file(&self, path: &Path) -> Result<Digest> {
        let file = File::open(path).explain(|| format!("could not open {}", path.display()))?;
        let mut command = Command::new(format!("{}sum", self.kind()));
        let out = command.stdin(file).stderr(Stdio::null()).output().map_err(|why| lacks(&command, &why))?;
        let digest = first_word(&out.stdout).filter(|_| out.status.success());
        digest.ok_or_else(|| error!("the checksum of {} could not be computed", path.display()))
    }

    /// The checksum of the file of this name in a list, as `sha512sum` prints it.
    pub fn in_list(list: &str, name: &str) -> Option<Digest> {
        list.lines().find_map(|line| {
            let (hex, rest) = line.split_once(char::is_whitespace)?;
            let listed = rest.trim_start().trim_start_matches('*').trim_start_matches("./").trim_end();
            (listed == name).then(|| Digest::parse(hex)).flatten()
        })
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}...", self.kind(), self.short())
    }
}

fn first_word(printed: &[u8]) -> Option<Digest> {
    Digest::parse(std::str::from_utf8(printed).ok()?.split_whitespace().next()?)
}

fn lacks(command: &Command, why: &std::io::Error) -> Error {
    let program = command.get_program().to_string_lossy();
    error!("{program}, which computes checksums, could not be started: {why}")
        .hint("Install it, for instance: sudo apt-get install coreutils")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_checksum_of_a_name() {
        let [a, b] = ["a".repeat(128), "B".repeat(64)];
        let list = format!("{a}  debian.qcow2\n{b} *./ubuntu.img\nxyz  broken.img\n{a}  a b.img\n");
        assert_eq!(Digest::in_list(&list, "debian.qcow2"), Digest::parse(&a));
        let ubuntu = Digest::in_list(&list, "ubuntu.img").unwrap();
        assert_eq!((ubuntu.kind(), ubuntu.short()), ("sha256", "bbbbbbbbbbbb"));
        assert!(Digest::is_short(ubuntu.short()));
        assert!(Digest::in_list(&list, "a b.img").is_some());
        for name in ["broken.img", "qcow2", "", "debian"] {
            assert_eq!(Digest::in_list(&list, name), None, "{name}");
        }
    }

    #[test]
    fn the_systems_programs_compute_them() {
        // The example of FIPS 180-2.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of_text("abc").unwrap().0, abc);
        let path = std::env::temp_dir().join(format!("vshmem-digest-{}", std::process::id()));
        std::fs::write(&path, "abc").unwrap();
        let [small, large] = ["0".repeat(64), "0".repeat(128)].map(|zeros| Digest::parse(&zeros).unwrap());
        assert_eq!(small.of_file(&path).unwrap().0, abc);
        assert!(large.of_file(&path).unwrap().0.starts_with("ddaf35a193617aba"));
        std::fs::remove_file(&path).unwrap();
        assert!(small.of_file(&path).unwrap_err().to_string().contains("could not open"));
    }
}
