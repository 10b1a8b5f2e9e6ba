//! Records in files of JSON, each with the version of its format.

use crate::error::{error, Explain, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Reads a record of this version; `None` if there is none. `hint` says what to do about one that can't be
/// read.
pub fn read<T: DeserializeOwned>(path: &Path, version: u32, hint: &str) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.explain(|| format!("could not read {}", path.display()))?,
    };
    let damaged = |why: String| error!("{} can't be read: {why}", path.display()).hint(hint);
    let found: Versioned = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    if found.version != version {
        return Err(damaged(format!("its version is {}, not {version}", found.version)));
    }
    serde_json::from_slice(&text).map(Some).map_err(|e| damaged(e.to_string()))
}

/// Replaces a record atomically.
pub fn write(path: &Path, record: &impl Serialize) -> Result<()> {
    let new = path.with_extension("new");
    let text = serde_json::to_vec_pretty(record).expect("a record is plain data");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .explain(|| format!("could not write {}", path.display()))
}
