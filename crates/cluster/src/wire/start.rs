//! The request to start a command, as bytes.
//!
//! Lists and strings are preceded by their length (four bytes, little-endian); strings are bytes, as on
//! Linux.

use super::frame::MAX_PAYLOAD;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        Some(Size {
            rows: u16::from_le_bytes([a, b]),
            columns: u16::from_le_bytes([c, d]),
        })
    }
}

/// What to start, and as which user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
        let mut out = Vec::new();
        put_list(&mut out, self.argv.iter().map(OsString::as_os_str));
        put_list(
            &mut out,
            self.env
                .iter()
                .flat_map(|(k, v)| [k.as_os_str(), v.as_os_str()]),
        );
        put_bytes(&mut out, self.cwd.as_bytes());
        put(&mut out, u32::from(self.cwd_optional));
        put(&mut out, u32::from(self.stdin));
        put(&mut out, u32::from(self.login));
        match self.terminal {
            Some(size) => put_bytes(&mut out, &size.to_bytes()),
            None => put_bytes(&mut out, &[]),
        }
        put(&mut out, self.uid);
        put(&mut out, self.gid);
        put(&mut out, self.groups.len() as u32);
        for &group in &self.groups {
            put(&mut out, group);
        }
        put_list(&mut out, self.needs.iter().map(OsString::as_os_str));
        if out.len() > MAX_PAYLOAD {
            return Err(Error::new(format!(
                "the command with its environment takes {} bytes; {MAX_PAYLOAD} is the most",
                out.len()
            )));
        }
        Ok(out)
    }

    /// From a frame; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Start> {
        let mut reader = Reader { bytes };
        let argv = reader.list()?;
        let mut flat = reader.list()?.into_iter();
        let mut env = Vec::new();
        while let Some(key) = flat.next() {
            env.push((key, flat.next()?));
        }
        let cwd = reader.string()?;
        let cwd_optional = reader.number()? != 0;
        let stdin = reader.number()? != 0;
        let login = reader.number()? != 0;
        let terminal = match reader.string()? {
            none if none.is_empty() => None,
            size => Some(Size::from_bytes(size.as_bytes())?),
        };
        let (uid, gid) = (reader.number()?, reader.number()?);
        let mut groups = Vec::new();
        for _ in 0..reader.number()? {
            groups.push(reader.number()?);
        }
        let needs = reader.list()?;
        let whole = reader.bytes.is_empty() && !argv.is_empty();
        whole.then_some(Start {
            argv,
            env,
            cwd,
            cwd_optional,
            stdin,
            login,
            terminal,
            uid,
            gid,
            groups,
            needs,
        })
    }
}

fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A length that does not fit makes the request too long, which encode refuses.
    put(out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(bytes);
}

fn put_list<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = &'a OsStr>) {
    let items: Vec<_> = items.collect();
    put(out, items.len() as u32);
    for item in items {
        put_bytes(out, item.as_bytes());
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u32> {
        let (raw, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_le_bytes(*raw))
    }

    fn string(&mut self) -> Option<OsString> {
        let len = self.number()? as usize;
        if len > self.bytes.len() {
            return None;
        }
        let (raw, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        Some(OsString::from_vec(raw.to_vec()))
    }

    fn list(&mut self) -> Option<Vec<OsString>> {
        // Each item takes a byte or more, so a wrong count runs out of bytes before it takes much memory.
        (0..self.number()?).map(|_| self.string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Start {
        Start {
            argv: vec![
                "sh".into(),
                "-c".into(),
                OsString::from_vec(vec![0xff, b'x']),
            ],
            env: vec![("A".into(), "1".into()), ("EMPTY".into(), "".into())],
            cwd: "/tmp".into(),
            cwd_optional: true,
            stdin: true,
            login: true,
            terminal: Some(Size {
                rows: 24,
                columns: 300,
            }),
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
