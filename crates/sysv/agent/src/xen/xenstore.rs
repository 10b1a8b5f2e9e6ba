//! A XenStore client, over `/dev/xen/xenbus`: requests and responses have a header of four numbers, and then
//! their text.
//!
//! The kernel passes messages on to xenstored and back. Watch events come between responses. Only the
//! fact of a change is noted, since the callers then look at all that they watch.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io::{Read, Write};
use vshmem_base::error::{error, Error, Explain, Result};

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

/// Bytes of the longest text of a message.
const MAX_TEXT: usize = 4096;
/// Events that are read at a time: other domains may cause them without end.
const MAX_EVENTS: usize = 1024;
/// Type, request number, transaction, length.
const HEADER: usize = 16;

/// The permissions of a key. Its owner may do everything with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The domain that owns the key.
    pub owner: u16,
    /// The only other domain that may read it.
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
pub struct XenStore {
    file: File,
    changed: bool,
    released: bool,
}

/// The path to watch for domains that are created.
pub const INTRODUCED: &str = "@introduceDomain";
/// The path to watch for domains that end.
pub const RELEASED: &str = "@releaseDomain";

/// The token of all watches: they need not be told apart.
const TOKEN: &[u8] = b"vshmem\0";

/// A message from XenStore.
struct Message {
    kind: u32,
    text: Vec<u8>,
}

impl XenStore {
    /// Opens a connection.
    pub fn open() -> Result<XenStore> {
        let path = "/dev/xen/xenbus";
        let mut options = File::options();
        let file =
            options.read(true).write(true).open(path).explain(|| {
                format!("{path} could not be opened: this must be root's process in a Xen domain")
            })?;
        Ok(XenStore { file, changed: false, released: false })
    }

    /// The descriptor to poll for watch events.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The value of a key; `None` if there is no such key, or it may not be read.
    pub fn read(&mut self, path: &str) -> Result<Option<String>> {
        let value = self.request(kind::READ, path, &[])?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// The names in a directory; none if there is no such directory, or it may not be read.
    pub fn list(&mut self, path: &str) -> Result<Vec<String>> {
        let names = self.request(kind::DIRECTORY, path, &[])?.unwrap_or_default();
        let names = names.split(|&c| c == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Sets a key. It is empty until its permissions are set.
    pub fn write(&mut self, path: &str, value: &str, access: Access) -> Result<()> {
        self.make(path, access)?;
        self.require(kind::WRITE, path, value.as_bytes())
    }

    /// Creates a directory with these permissions.
    pub fn make(&mut self, path: &str, access: Access) -> Result<()> {
        self.require(kind::MKDIR, path, &[])?;
        self.require(kind::SET_PERMS, path, &access.text())
    }

    /// Removes a path and all below it, if it exists.
    pub fn remove(&mut self, path: &str) -> Result<()> {
        self.request(kind::RM, path, &[]).map(|_| ())
    }

    /// Watches a path and all below it.
    pub fn watch(&mut self, path: &str) -> Result<()> {
        self.require(kind::WATCH, path, TOKEN)
    }

    /// Ends a watch, if there is one.
    pub fn unwatch(&mut self, path: &str) -> Result<()> {
        self.request(kind::UNWATCH, path, TOKEN).map(|_| ())
    }

    /// Whether domains have ended since the last call, if that is watched.
    pub fn has_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Whether a watched key has changed since the last call.
    pub fn has_changed(&mut self) -> Result<bool> {
        self.drain()?;
        Ok(std::mem::take(&mut self.changed))
    }

    /// Reads the events that have come.
    fn drain(&mut self) -> Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..MAX_EVENTS {
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, Some(&now)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(error!("waiting for XenStore: {e}")),
            }
            self.receive()?;
        }
        Ok(())
    }

    /// A request that must succeed.
    fn require(&mut self, kind: u32, path: &str, rest: &[u8]) -> Result<()> {
        match self.request(kind, path, rest)? {
            Some(_) => Ok(()),
            None => Err(error!("XenStore refused to change or watch {path}: this domain may not")),
        }
    }

    /// A request about a path, and its response; `None` if there is no such path, or this domain has no
    /// permission.
    fn request(&mut self, kind: u32, path: &str, rest: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut text = path.as_bytes().to_vec();
        text.push(0);
        text.extend_from_slice(rest);
        self.file.write_all(&message(kind, &text)?).explain(|| "XenStore does not take requests".into())?;
        loop {
            let response = self.receive()?;
            match response.kind {
                kind::WATCH_EVENT => {}
                kind::ERROR => return interpret_error(path, &response.text),
                _ => return Ok(Some(response.text)),
            }
        }
    }

    /// The next message.
    fn receive(&mut self) -> Result<Message> {
        let mut header = [0; HEADER];
        self.fill(&mut header)?;
        let number =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (kind, len) = (number(0), number(12) as usize);
        if len > MAX_TEXT {
            return Err(Error::new("XenStore sends a message that is too long: it speaks another protocol"));
        }
        let mut text = vec![0; len];
        self.fill(&mut text)?;
        self.changed |= kind == kind::WATCH_EVENT;
        self.released |= kind == kind::WATCH_EVENT && text.starts_with(RELEASED.as_bytes());
        Ok(Message { kind, text })
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        self.file.read_exact(into).explain(|| "XenStore does not answer".into())
    }
}

/// A request as it is sent.
fn message(kind: u32, text: &[u8]) -> Result<Vec<u8>> {
    if text.len() > MAX_TEXT {
        return Err(Error::new("XenStore takes no text as long as this pool's announcement"));
    }
    let mut message = Vec::with_capacity(HEADER + text.len());
    for number in [kind, 0, 0, text.len() as u32] {
        message.extend_from_slice(&number.to_ne_bytes());
    }
    message.extend_from_slice(text);
    Ok(message)
}

/// The result that an error of this name means for a path.
fn interpret_error(path: &str, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match name.strip_suffix(&[0]).unwrap_or(name) {
        b"ENOENT" | b"EACCES" => Ok(None),
        // There is such a watch already.
        b"EEXIST" => Ok(Some(Vec::new())),
        b"ENOSPC" => Err(error!("XenStore has no room for {path}: raise this domain's quota in xenstored")),
        b"E2BIG" => {
            Err(error!("XenStore can't list {path}, as there is more than {MAX_TEXT} bytes of names"))
        }
        other => Err(error!("XenStore refused {path} with {}", String::from_utf8_lossy(other))),
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
        assert!(message(kind::WRITE, &[0; MAX_TEXT + 1]).is_err());
    }

    #[test]
    fn permissions_are_written() {
        let access = |reader| Access { owner: 0, reader }.text();
        assert_eq!(access(Some(12)), b"n0\0r12\0");
        assert_eq!(access(None), b"n0\0");
    }

    #[test]
    fn errors_differ_from_absence() {
        assert!(matches!(interpret_error("x", b"ENOENT\0"), Ok(None)));
        assert!(matches!(interpret_error("x", b"EACCES"), Ok(None)));
        let error = interpret_error("x", b"ENOSPC\0").expect_err("no room").to_string();
        assert!(error.contains("quota"), "{error}");
        assert!(interpret_error("x", b"EIO\0").is_err());
    }

    /// A file serves as the connection: it holds what XenStore would send.
    #[test]
    fn events_between_responses_are_noted() {
        let path = std::env::temp_dir().join(format!("vshmem-store-{}", std::process::id()));
        let mut bytes = message(kind::WATCH_EVENT, b"a\0vshmem\0").expect("short");
        bytes.extend(message(kind::WATCH_EVENT, b"@releaseDomain\0vshmem\0").expect("short"));
        bytes.extend(message(kind::READ, b"7").expect("short"));
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        std::fs::write(&path, bytes).expect("writable");
        let mut store =
            XenStore { file: File::open(&path).expect("just written"), changed: false, released: false };
        std::fs::remove_file(&path).expect("there");
        assert_eq!(store.receive().expect("a change").kind, kind::WATCH_EVENT);
        assert!(store.changed && !store.has_released());
        assert_eq!(store.receive().expect("another").kind, kind::WATCH_EVENT);
        assert!(store.has_released() && !store.has_released());
        assert_eq!(store.receive().expect("a response").text, b"7");
        assert!(store.receive().is_err(), "longer than any message");
        let end = store.receive().err().map(|e| e.to_string());
        assert_eq!(end.map(|text| text.contains("does not answer")), Some(true));
    }
}
