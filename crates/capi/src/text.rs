//! Text without a heap, in fixed buffers.

use core::ffi::CStr;
use core::fmt::{self, Write};

/// Text in a buffer of its own; what doesn't fit is cut off. Always ends in a zero byte.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text yet.
    #[allow(clippy::new_without_default)] // for statics
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], len: 0 }
    }

    /// Nothing again.
    pub fn clear(&mut self) {
        self.len = 0;
        self.bytes[0] = 0;
    }

    /// Adds bytes; false if they don't all fit.
    pub fn push(&mut self, more: &[u8]) -> bool {
        let n = more.len().min(N - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&more[..n]);
        self.len += n;
        self.bytes[self.len] = 0;
        n == more.len()
    }

    /// The bytes, without the zero at the end.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As a C string; it ends where a zero byte was pushed.
    pub fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.push(s.as_bytes());
        Ok(())
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    /// Writes what is UTF-8, and a mark for what isn't.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.bytes().utf8_chunks() {
            f.write_str(part.valid())?;
            if !part.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_terminated() {
        let mut t = Text::<8>::new();
        assert!(t.push(b"abcd"));
        assert!(!t.push(b"efghij"));
        assert_eq!(t.bytes(), b"abcdefg");
        assert_eq!(t.c_str().to_bytes(), b"abcdefg");
    }
}
