//! The machine's own directories.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use vshmem_base::error::{Explain, Result};

/// The machine's own directories: almost nothing of the host's is visible there.
const OWN: [(&str, u32); 19] = [
    ("dev", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/local", 0o755),
    ("var/log", 0o755),
    ("var/mail", 0o1777),
    ("var/opt", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];

/// Makes the directories that programs expect, owned by root. Those that exist stay as they are.
pub fn skeleton(upper: &Path) -> std::io::Result<()> {
    fs::create_dir_all(upper)?;
    for (name, mode) in OWN {
        let directory = upper.join(name);
        if !directory.exists() {
            fs::create_dir(&directory)?;
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode))?;
        }
    }
    symlink("/run", upper.join("var/run"))?;
    symlink("/run/lock", upper.join("var/lock"))
}

/// Makes a directory and its parents.
pub fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).explain(|| format!("could not make {}", path.display()))
}
