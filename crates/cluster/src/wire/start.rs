//! The request to start a command, in JSON. Strings are bytes on Linux, and so lists of numbers there.

use super::frame::MAX_PAYLOAD;
use crate::error::{error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

impl Size {
    /// As the payload of a frame.
    pub fn to_bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.rows.to_le_bytes(), self.columns.to_le_bytes());
        [a, b, c, d]
    }

    /// From a frame; `None` if it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Size> {
        let [a, b, c, d] = *bytes else { return None };
        Some(Size { rows: u16::from_le_bytes([a, b]), columns: u16::from_le_bytes([c, d]) })
    }
}

/// What to start, and as which user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The program and its arguments. With `login`, a list of shells, of which the first that exists is
    /// started.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The directory to start in.
    pub cwd: OsString,
    /// Start in `/` if the machine does not have `cwd`.
    pub cwd_optional: bool,
    /// Standard input follows in frames; otherwise it is empty.
    pub stdin: bool,
    /// A login shell.
    pub login: bool,
    /// It gets a terminal of this size for input and output.
    pub terminal: Option<Size>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Paths of the host that the command needs, in directories where the machine has its own files.
    pub needs: Vec<OsString>,
}

impl Start {
    /// As the payload of a frame.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let out = serde_json::to_vec(self).expect("a request is plain data");
        if out.len() > MAX_PAYLOAD {
            return Err(error!(
                "the command with its environment takes {} bytes; {MAX_PAYLOAD} is the most",
                out.len()
            ));
        }
        Ok(out)
    }

    /// From a frame; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Start> {
        let start: Start = serde_json::from_slice(bytes).ok()?;
        (!start.argv.is_empty()).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn sample() -> Start {
        Start {
            argv: vec!["sh".into(), "-c".into(), OsString::from_vec(vec![0xff, b'x'])],
            env: vec![("A".into(), "1".into()), ("EMPTY".into(), "".into())],
            cwd: "/tmp".into(),
            cwd_optional: true,
            stdin: true,
            login: true,
            terminal: Some(Size { rows: 24, columns: 300 }),
            uid: 1000,
            gid: 100,
            groups: vec![4, 24],
            needs: vec!["/tmp/x/libvshmem.so".into()],
        }
    }

    #[test]
    fn a_request_survives_the_wire() {
        let bytes = sample().encode().unwrap();
        assert_eq!(Start::decode(&bytes), Some(sample()));
    }

    #[test]
    fn a_damaged_request_is_refused() {
        let bytes = sample().encode().unwrap();
        for len in 0..bytes.len() {
            assert_eq!(Start::decode(&bytes[..len]), None, "cut at {len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Start::decode(&longer), None);
        for at in (0..bytes.len()).step_by(4) {
            let mut wild = bytes.clone();
            wild[at..(at + 4).min(bytes.len())].fill(0xff);
            let _ = Start::decode(&wild);
        }
        assert_eq!(Start::decode(&Start::default().encode().unwrap()), None);
    }

    #[test]
    fn too_long_a_request_is_refused() {
        let mut start = sample();
        start.argv.push("x".repeat(MAX_PAYLOAD).into());
        assert!(start.encode().is_err());
    }
}
