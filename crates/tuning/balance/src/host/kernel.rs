//! The kernel's own NUMA balancing, which moves pages and threads for reasons of its own.

use std::fs;
use std::io;
use std::path::Path;

/// The file by which it is turned on and off.
pub const FILE: &str = "/proc/sys/kernel/numa_balancing";

/// Its setting; `None` if it is off, or this kernel has none.
pub fn setting(file: &Path) -> Option<String> {
    let is = fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    (!is.is_empty() && is != "0").then_some(is)
}

/// Changes its setting.
///
/// # Errors
/// This user must not.
pub fn set(file: &Path, to: &str) -> io::Result<()> {
    fs::write(file, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_unless_it_is_0() {
        let file = std::env::temp_dir().join(format!("vshmem-balancing-{}", std::process::id()));
        assert_eq!(setting(&file), None);
        for (text, is) in [("0\n", None), ("1\n", Some("1")), ("3\n", Some("3"))] {
            set(&file, text).unwrap();
            assert_eq!(setting(&file).as_deref(), is);
        }
        fs::remove_file(&file).unwrap();
    }
}
