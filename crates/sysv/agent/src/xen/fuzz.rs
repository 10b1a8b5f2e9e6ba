//! The readers of texts by other domains, for the fuzzer: functions from bytes, which panic where a reader
//! has a fault.

use super::announce;
use crate::fuzz::Reader;

/// The readers, by name.
pub const READERS: &[(&str, Reader)] = &[("announcement", announcement)];

/// A pool's announcement by another domain.
fn announcement(text: &[u8]) {
    if let Some(info) = announce::read(&String::from_utf8_lossy(text)) {
        let again = announce::read(&announce::write(&info));
        assert_eq!(again, Some(info), "the same again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_examples_are_parsed() {
        crate::fuzz::run_all(READERS, &[("announcement", b"16777216 9 8 4000000000 0 7")]);
    }
}
