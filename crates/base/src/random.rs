//! Random bytes from the kernel, for names and tokens that nobody guesses.

use crate::error::{Explain, Result};
use std::fs::File;
use std::io::Read;

/// Random bytes, which nobody guesses if they are 16 or more.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .explain(|| "reading /dev/urandom".into())?;
    Ok(bytes)
}

/// Random bytes as hexadecimal digits.
pub fn hex<const N: usize>() -> Result<String> {
    Ok(bytes::<N>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
