//! What reads what other domains say, as functions from bytes. It panics where a reader has a fault.

use super::announce;
use crate::fuzz::Reader;

/// All of them, by name.
pub const READERS: &[(&str, Reader)] = &[("ticket", ticket)];

/// A pool's announcement by another domain.
fn ticket(text: &[u8]) {
    let read = |text: &str| announce::read(text);
    if let Some(ticket) = read(&String::from_utf8_lossy(text)) {
        assert_eq!(read(&announce::write(&ticket)), Some(ticket), "and again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_what_they_should() {
        crate::fuzz::try_all(READERS, &[("ticket", b"16777216 9 8 4000000000 0 7")]);
    }
}
