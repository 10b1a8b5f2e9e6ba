//! Random bytes from the kernel, for names and tokens that nobody guesses.

use crate::error::{Explain, Result};
use std::fs::File;
use std::io::Read;

/// 128 random bits, which nobody guesses.
pub fn bytes() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .explain(|| "reading /dev/urandom".into())?;
    Ok(bytes)
}
