//! Strings in fixed buffers: no path here allocates.

use core::ffi::CStr;
use core::fmt;

/// A string of at most `N - 1` bytes with a terminating zero. All zeros: empty.
#[derive(Clone)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// An empty string.
    #[allow(clippy::new_without_default)] // for statics
    pub const fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    /// Makes it empty again.
    pub fn clear(&mut self) {
        (self.bytes[0], self.len) = (0, 0);
    }

    /// Appends bytes; `None` if they don't fit or hold a zero byte.
    #[must_use]
    pub fn push(&mut self, more: &[u8]) -> Option<()> {
        let end = self.len.checked_add(more.len()).filter(|&end| end < N)?;
        if more.contains(&0) {
            return None;
        }
        self.bytes.get_mut(self.len..end)?.copy_from_slice(more);
        *self.bytes.get_mut(end)? = 0;
        self.len = end;
        Some(())
    }

    /// Appends a number in decimal digits; `None` if they don't fit.
    #[must_use]
    pub fn push_decimal(&mut self, mut value: u64) -> Option<()> {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return self.push(&digits[at..]);
            }
        }
    }

    /// The string.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The string, for C.
    pub fn c_str(&self) -> &CStr {
        // A zero always follows: the last byte is kept free.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    /// Appends text; an error if it doesn't all fit, and is cut off.
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fitting = more.len().min(N - 1 - self.len);
        let pushed = self.push(&more.as_bytes()[..fitting]);
        pushed.filter(|()| fitting == more.len()).ok_or(fmt::Error)
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.bytes(), f)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        show(self.bytes(), f)?;
        f.write_str("\"")
    }
}

/// Writes bytes that are meant as text; what isn't UTF-8 becomes a replacement character.
fn show(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        f.write_str(chunk.valid())?;
        if !chunk.invalid().is_empty() {
            f.write_str("\u{fffd}")?;
        }
    }
    Ok(())
}

/// The number that hexadecimal digits spell; `None` if there are none, other characters, or too many.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = (digit as char).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;
    use std::string::ToString;

    #[test]
    fn text_keeps_room_for_its_end() {
        let mut text = Text::<8>::new();
        assert_eq!(text.push(b"abcd"), Some(()));
        assert_eq!(text.push_decimal(120), Some(()));
        assert_eq!(text.push(b"x"), None);
        assert_eq!(text.push(b""), Some(()));
        assert_eq!(text.c_str(), c"abcd120");
        assert_eq!(text.bytes(), b"abcd120");
    }

    #[test]
    fn what_is_written_is_cut_to_fit() {
        let mut text = Text::<8>::new();
        assert!(write!(text, "{}", 7).is_ok());
        assert!(write!(text, "abcdefgh{}", 9).is_err());
        assert_eq!(text.c_str(), c"7abcdef");
        text.clear();
        assert_eq!((text.bytes(), text.c_str()), (&b""[..], c""));
        assert_eq!(text.push(b"xy"), Some(()));
        assert_eq!(text.c_str(), c"xy");
    }

    #[test]
    fn text_refuses_zero_bytes() {
        assert_eq!(Text::<8>::new().push(b"a\0b"), None);
    }

    #[test]
    fn numbers() {
        let mut text = Text::<32>::new();
        assert_eq!(text.push_decimal(0), Some(()));
        assert_eq!(text.push_decimal(u64::MAX), Some(()));
        assert_eq!(text.to_string(), "018446744073709551615");
        assert_eq!(hexadecimal(b"1aF4"), Some(0x1af4));
        for bad in [&b""[..], b"0x1", b"g", b"11112222333344445"] {
            assert_eq!(hexadecimal(bad), None);
        }
    }

    #[test]
    fn what_is_not_text_is_still_shown() {
        let mut text = Text::<8>::new();
        assert_eq!(text.push(b"a\xffb"), Some(()));
        assert_eq!(text.to_string(), "a\u{fffd}b");
    }
}
