//! The kernel's own NUMA balancing, which moves pages and threads for reasons of its own.

use std::fs;
use std::io;
use std::path::Path;

/// Where it is turned on and off.
pub const FILE: &str = "/proc/sys/kernel/numa_balancing";

/// Turns it off. Returns what to write there to turn it on again; `None` if it was off, or this kernel has
/// none.
///
/// # Errors
/// It is on, and this user must not turn it off.
pub fn off(file: &Path) -> io::Result<Option<String>> {
    let was = fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    if was.is_empty() || was == "0" {
        return Ok(None);
    }
    fs::write(file, "0")?;
    Ok(Some(was))
}

/// Has it as it was.
pub fn restore(file: &Path, was: &str) -> io::Result<()> {
    fs::write(file, was)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_for_a_while() {
        let file = std::env::temp_dir().join(format!("vshmem-balancing-{}", std::process::id()));
        assert_eq!(off(&file).unwrap(), None);
        for (text, was) in [("0\n", None), ("1\n", Some("1")), ("3\n", Some("3"))] {
            fs::write(&file, text).unwrap();
            assert_eq!(off(&file).unwrap().as_deref(), was);
            assert_eq!(fs::read_to_string(&file).unwrap().trim(), "0");
            if let Some(was) = was {
                restore(&file, was).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), was);
            }
        }
        fs::remove_file(&file).unwrap();
    }
}
