//! The table of granted pools: what the host calls the devices that it gives to this machine while it runs.
//! The front end (`vshmem agent --guest`) writes it, a line `ADDRESS NAME` for each device; processes that
//! open a pool read it.
//!
//! The names come from the host and not from the pools, because a member of a pool could write any name into
//! it.

use core::ffi::CStr;
use core::fmt;

use crate::descriptor::Owned;
use crate::given::address::Address;
use crate::pool_ref::{is_name, Name, PoolRef};
use crate::sys;

/// The path of the table.
pub const GRANTS: &CStr = c"/run/vshmem/pools";
/// More than the longest line needs.
const LONGEST_LINE: usize = 128;
/// No table needs more reads; what follows is ignored.
const MOST_READS: usize = 256;

/// A grant: the host's name for a device, a line of the table.
#[derive(Clone, Debug)]
pub struct Grant {
    address: Address,
    name: Name,
}

impl Grant {
    /// `None` if that is no PCI address, or no name of a pool.
    pub fn new(address: &[u8], name: &[u8]) -> Option<Grant> {
        let mut kept = Name::new();
        kept.push(name).filter(|()| is_name(name))?;
        Some(Grant { address: Address::parse(address)?, name: kept })
    }

    /// Reads a line of the table.
    pub fn parse(line: &[u8]) -> Option<Grant> {
        let space = line.iter().position(|&c| c == b' ')?;
        Grant::new(&line[..space], &line[space + 1..])
    }

    /// The host's name for it.
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }

    /// Is this the pool's device?
    pub fn is_for(&self, pool: &PoolRef) -> bool {
        pool.address() == Some(self.address)
    }

    /// The device's address.
    pub fn address(&self) -> Address {
        self.address
    }
}

impl fmt::Display for Grant {
    /// The line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.name)
    }
}

/// Whether there is a table, even an empty one. Then the machine is given pools while it runs.
pub(crate) fn exist() -> bool {
    sys::open(GRANTS, libc::O_RDONLY, 0).map(Owned::new).is_ok()
}

/// The name that the table gives to a device, if any.
pub(crate) fn name_of(address: Address) -> Option<Name> {
    let file = Owned::new(sys::open(GRANTS, libc::O_RDONLY, 0).ok()?);
    name_in(file.fd(), address)
}

/// The last line of a table that is for a device counts, as with the command line.
fn name_in(fd: i32, address: Address) -> Option<Name> {
    let mut name = None;
    each_line(fd, &mut |line| {
        if let Some(grant) = Grant::parse(line).filter(|grant| grant.address == address) {
            name = Some(grant.name);
        }
    });
    name
}

/// Calls `each` with every whole line of a file that is not too long.
fn each_line(fd: i32, each: &mut dyn FnMut(&[u8])) {
    let mut buffer = [0u8; LONGEST_LINE];
    let (mut kept, mut too_long) = (0, false);
    for _ in 0..MOST_READS {
        let end = match sys::read(fd, &mut buffer[kept..]) {
            Ok(0) | Err(_) => return,
            Ok(len) => (kept + len).min(LONGEST_LINE),
        };
        let mut start = 0;
        while let Some(len) = buffer[start..end].iter().position(|&c| c == b'\n') {
            if !too_long {
                each(&buffer[start..start + len]);
            }
            too_long = false;
            start += len + 1;
        }
        buffer.copy_within(start..end, 0);
        kept = end - start;
        if kept == LONGEST_LINE {
            (kept, too_long) = (0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn table(text: &[u8]) -> std::fs::File {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(std::format!("vshmem-grants-{}-{number}", std::process::id()));
        std::fs::write(&path, text).expect("written");
        let file = std::fs::File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("removed");
        file
    }

    fn look_up(text: &[u8], address: &str) -> Option<String> {
        let address = Address::parse(address.as_bytes()).expect("an address");
        name_in(table(text).as_raw_fd(), address).map(|name| name.to_string())
    }

    #[test]
    fn lines_name_devices() {
        let text = b"0000:05:00.0 work\n06:00.0 other.pool-2\n0000:05:00.0 late\n";
        assert_eq!(look_up(text, "05:00.0").as_deref(), Some("late"));
        assert_eq!(look_up(text, "0000:06:00.0").as_deref(), Some("other.pool-2"));
        assert_eq!(look_up(text, "07:00.0"), None);
        assert_eq!(look_up(b"", "07:00.0"), None);
    }

    #[test]
    fn malformed_lines_are_left_out() {
        let long = "x".repeat(5000);
        let mut text = Vec::new();
        for line in [
            "05:00.0",
            "05:00.0 ",
            "05:00.0 two words",
            "05:00.0  x",
            "nowhere x",
            "",
            "\0\0",
            &std::format!("05:00.0 {long}"),
            &std::format!("05:00.0 {}", "y".repeat(65)),
            "06:00.0 good",
        ] {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(b"05:00.0 unfinished");
        assert_eq!(look_up(&text, "05:00.0"), None);
        assert_eq!(look_up(&text, "06:00.0").as_deref(), Some("good"));
    }

    #[test]
    fn an_endless_table_ends() {
        let mut endless = "z".repeat(LONGEST_LINE * MOST_READS).into_bytes();
        endless.extend_from_slice(b"\n05:00.0 behind\n");
        assert_eq!(look_up(&endless, "05:00.0"), None);
    }

    #[test]
    fn a_grant_is_written_as_it_is_read() {
        let grant = Grant::new(b"5:0.0", b"work").expect("a grant");
        assert_eq!(grant.to_string(), "0000:05:00.0 work");
        let again = Grant::parse(grant.to_string().as_bytes()).expect("a line");
        assert_eq!((again.address, again.name()), (grant.address, &b"work"[..]));
        assert!(Grant::new(b"5:0.0", b"a b").is_none() && Grant::new(b"x", b"a").is_none());
    }
}
