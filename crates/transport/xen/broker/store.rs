//! XenStore, spoken over `/dev/xen/xenbus`: a request and its answer have a header of four numbers and then their text.
//!
//! The kernel passes messages on to xenstored and back. Changes of watched paths come in between answers; what changed is not
//! kept, only that something did: whoever watches looks at everything.

use crate::error::{Error, Explain, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io::{Read, Write};

/// Message types, from Xen's `xs_wire.h`.
mod kind {
    pub const DIRECTORY: u32 = 1;
    pub const READ: u32 = 2;
    pub const WATCH: u32 = 4;
    pub const UNWATCH: u32 = 5;
    pub const WRITE: u32 = 11;
    pub const MKDIR: u32 = 12;
    pub const RM: u32 = 13;
    pub const SET_PERMS: u32 = 14;
    pub const WATCH_EVENT: u32 = 15;
    pub const ERROR: u32 = 16;
}

/// The longest text of a message.
const LONGEST: usize = 4096;
/// So many reports are read at a time: who can change what is watched may do so without end.
const MOST_NEWS: usize = 1024;
/// Type, request number, transaction, length.
const HEADER: usize = 16;

/// Who may read a key, beside its owner, who may do everything with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The domain that owns the key.
    pub owner: u16,
    /// The domain that may read it; nobody else.
    pub reader: Option<u16>,
}

impl Access {
    fn text(self) -> Vec<u8> {
        let mut text = format!("n{}\0", self.owner);
        if let Some(reader) = self.reader {
            text += &format!("r{reader}\0");
        }
        text.into_bytes()
    }
}

/// A connection to XenStore.
#[derive(Debug)]
pub struct Store {
    file: File,
    changed: bool,
    released: bool,
}

/// What is watched to learn that domains were made.
pub const INTRODUCED: &str = "@introduceDomain";
/// What is watched to learn that domains have ended.
pub const RELEASED: &str = "@releaseDomain";

/// What the watches are told apart by, which all mean the same.
const TOKEN: &[u8] = b"vshmem\0";

/// A message from XenStore.
struct Message {
    kind: u32,
    text: Vec<u8>,
}

impl Store {
    /// Connects.
    pub fn open() -> Result<Store> {
        let path = "/dev/xen/xenbus";
        let mut options = File::options();
        let file = options.read(true).write(true).open(path).explain(|| {
            format!("{path} could not be opened: this must be root's process in a Xen domain")
        })?;
        Ok(Store {
            file,
            changed: false,
            released: false,
        })
    }

    /// What changes can be waited for on.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The value of a key; none if there is no such key, or it may not be read.
    pub fn read(&mut self, path: &str) -> Result<Option<String>> {
        let value = self.ask(kind::READ, path, &[])?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// The names below a path; none if there is no such path, or it may not be read.
    pub fn list(&mut self, path: &str) -> Result<Vec<String>> {
        let names = self.ask(kind::DIRECTORY, path, &[])?.unwrap_or_default();
        let names = names.split(|&c| c == 0).filter(|name| !name.is_empty());
        Ok(names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect())
    }

    /// Sets a key that only these domains may read. It is empty until that is settled.
    pub fn write(&mut self, path: &str, value: &str, access: Access) -> Result<()> {
        self.make(path, access)?;
        self.must(kind::WRITE, path, value.as_bytes())
    }

    /// Makes a path that only these domains may read.
    pub fn make(&mut self, path: &str, access: Access) -> Result<()> {
        self.must(kind::MKDIR, path, &[])?;
        self.must(kind::SET_PERMS, path, &access.text())
    }

    /// Removes a path and all below it; it may be gone already.
    pub fn remove(&mut self, path: &str) -> Result<()> {
        self.ask(kind::RM, path, &[]).map(|_| ())
    }

    /// Has changes of a path, and of all below it, reported.
    pub fn watch(&mut self, path: &str) -> Result<()> {
        self.must(kind::WATCH, path, TOKEN)
    }

    /// No longer; it may not be watched.
    pub fn unwatch(&mut self, path: &str) -> Result<()> {
        self.ask(kind::UNWATCH, path, TOKEN).map(|_| ())
    }

    /// Whether domains have ended since this was asked last, if that is watched.
    pub fn has_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Whether something that is watched has changed since this was asked last.
    pub fn news(&mut self) -> Result<bool> {
        self.drain()?;
        Ok(std::mem::take(&mut self.changed))
    }

    /// Reads what has come by itself.
    fn drain(&mut self) -> Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        for _ in 0..MOST_NEWS {
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, Some(&now)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(Error::new(format!("waiting for XenStore: {e}"))),
            }
            self.receive()?;
        }
        Ok(())
    }

    /// A request that must succeed.
    fn must(&mut self, kind: u32, path: &str, rest: &[u8]) -> Result<()> {
        match self.ask(kind, path, rest)? {
            Some(_) => Ok(()),
            None => Err(Error::new(format!(
                "XenStore refused to change or watch {path}: this domain may not"
            ))),
        }
    }

    /// A request about a path and its answer. None: there is no such path, or this domain may not.
    fn ask(&mut self, kind: u32, path: &str, rest: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut text = path.as_bytes().to_vec();
        text.push(0);
        text.extend_from_slice(rest);
        self.file
            .write_all(&message(kind, &text)?)
            .explain(|| "XenStore does not take requests".into())?;
        loop {
            let answer = self.receive()?;
            match answer.kind {
                kind::WATCH_EVENT => {}
                kind::ERROR => return refusal(path, &answer.text),
                _ => return Ok(Some(answer.text)),
            }
        }
    }

    /// The next message.
    fn receive(&mut self) -> Result<Message> {
        let mut header = [0; HEADER];
        self.fill(&mut header)?;
        let number = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (kind, len) = (number(0), number(12) as usize);
        if len > LONGEST {
            return Err(Error::new(
                "XenStore sends a message that is too long: it speaks another protocol",
            ));
        }
        let mut text = vec![0; len];
        self.fill(&mut text)?;
        self.changed |= kind == kind::WATCH_EVENT;
        self.released |= kind == kind::WATCH_EVENT && text.starts_with(RELEASED.as_bytes());
        Ok(Message { kind, text })
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        self.file
            .read_exact(into)
            .explain(|| "XenStore does not answer".into())
    }
}

/// A request as it is sent.
fn message(kind: u32, text: &[u8]) -> Result<Vec<u8>> {
    if text.len() > LONGEST {
        return Err(Error::new(
            "XenStore takes no text as long as this pool's announcement",
        ));
    }
    let mut message = Vec::with_capacity(HEADER + text.len());
    for number in [kind, 0, 0, text.len() as u32] {
        message.extend_from_slice(&number.to_ne_bytes());
    }
    message.extend_from_slice(text);
    Ok(message)
}

/// What an error, by name, means.
fn refusal(path: &str, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match name.strip_suffix(&[0]).unwrap_or(name) {
        b"ENOENT" | b"EACCES" => Ok(None),
        // Such a watch is there already.
        b"EEXIST" => Ok(Some(Vec::new())),
        b"ENOSPC" => Err(Error::new(format!(
            "XenStore has no room for {path}: raise this domain's quota in xenstored"
        ))),
        b"E2BIG" => Err(Error::new(format!(
            "XenStore can't list {path}, as there is more than {LONGEST} bytes of names"
        ))),
        other => Err(Error::new(format!(
            "XenStore refused {path} with {}",
            String::from_utf8_lossy(other)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_header() {
        let sent = message(kind::READ, b"domid\0").expect("short");
        assert_eq!(sent.len(), HEADER + 6);
        assert_eq!(sent[..4], 2u32.to_ne_bytes());
        assert_eq!(sent[12..16], 6u32.to_ne_bytes());
        assert_eq!(&sent[16..], b"domid\0");
        assert!(message(kind::WRITE, &[0; LONGEST + 1]).is_err());
    }

    #[test]
    fn keys_are_for_two_domains() {
        let access = |reader| Access { owner: 0, reader }.text();
        assert_eq!(access(Some(12)), b"n0\0r12\0");
        assert_eq!(access(None), b"n0\0");
    }

    #[test]
    fn errors_are_told_from_absence() {
        assert!(matches!(refusal("x", b"ENOENT\0"), Ok(None)));
        assert!(matches!(refusal("x", b"EACCES"), Ok(None)));
        let error = refusal("x", b"ENOSPC\0").expect_err("no room").to_string();
        assert!(error.contains("quota"), "{error}");
        assert!(refusal("x", b"EIO\0").is_err());
    }

    /// Any stream serves as a connection: a file holds what XenStore would send.
    #[test]
    fn changes_between_answers_are_noted() {
        let path = std::env::temp_dir().join(format!("vshmem-store-{}", std::process::id()));
        let mut bytes = message(kind::WATCH_EVENT, b"a\0vshmem\0").expect("short");
        bytes.extend(message(kind::WATCH_EVENT, b"@releaseDomain\0vshmem\0").expect("short"));
        bytes.extend(message(kind::READ, b"7").expect("short"));
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        std::fs::write(&path, bytes).expect("writable");
        let mut store = Store {
            file: File::open(&path).expect("just written"),
            changed: false,
            released: false,
        };
        std::fs::remove_file(&path).expect("there");
        assert_eq!(store.receive().expect("a change").kind, kind::WATCH_EVENT);
        assert!(store.changed && !store.has_released());
        assert_eq!(store.receive().expect("another").kind, kind::WATCH_EVENT);
        assert!(store.has_released() && !store.has_released());
        assert_eq!(store.receive().expect("an answer").text, b"7");
        assert!(store.receive().is_err(), "longer than any message");
        let end = store.receive().err().map(|e| e.to_string());
        assert_eq!(end.map(|text| text.contains("does not answer")), Some(true));
    }
}
