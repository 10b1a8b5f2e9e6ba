//! The user's directories: one for what lives until the host shuts down, with a directory for each cluster,
//! and a cache.

use crate::error::{error, Error, Explain, Result};
use crate::user::uid;
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The id of this host's boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().into()
}

/// The path of the user's runtime directory, which may not exist.
pub fn runtime_path() -> PathBuf {
    let set = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usable = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid());
    match set.filter(usable) {
        Some(base) => base.join("vshmem"),
        None => PathBuf::from(format!("/tmp/vshmem-{}", uid())),
    }
}

/// The user's directory for what lives until the host shuts down. It is made if need be.
pub fn runtime_directory() -> Result<PathBuf> {
    let directory = runtime_path();
    private_directory(&directory)?;
    Ok(directory)
}

/// The user's cache directory.
pub fn cache_directory() -> Result<PathBuf> {
    let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = set.or_else(|| Some(home?.join(".cache"))).ok_or_else(|| {
        Error::new("there is no place for downloaded kernels: neither XDG_CACHE_HOME nor HOME is set")
            .hint("Set HOME to a directory that you can write to.")
    })?;
    let directory = base.join("vshmem");
    fs::create_dir_all(&directory).explain(|| format!("could not make {}", directory.display()))?;
    Ok(directory)
}

/// Makes a directory that only its owner can enter, or checks an existing one.
pub fn private_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => (),
        Err(e) => return Err(error!("could not make {}: {e}", path.display())),
    }
    let meta = fs::symlink_metadata(path).explain(|| format!("could not look at {}", path.display()))?;
    if is_private(&meta) {
        return Ok(());
    }
    Err(error!("{} is not a directory that only you can enter, so it is not used", path.display())
        .hint("Remove it, or set XDG_RUNTIME_DIR to a private directory of yours."))
}

/// Makes a directory of this mode, with which others can enter it and only this user can change it, or checks
/// an existing one and gives it this mode.
pub fn open_directory(path: &Path, mode: u32) -> Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => {
            return Err(why).explain(|| format!("could not make {}", path.display()))
        }
        _ => (),
    }
    let meta = fs::symlink_metadata(path).explain(|| format!("could not look at {}", path.display()))?;
    if !meta.is_dir() || meta.uid() != uid() || meta.mode() & 0o022 != 0 {
        return Err(error!("{} is no directory that only you can change, so it is not used", path.display())
            .hint("Remove it."));
    }
    match meta.mode() & 0o777 == mode {
        true => Ok(()),
        false => fs::set_permissions(path, Permissions::from_mode(mode))
            .explain(|| format!("could not change the mode of {}", path.display())),
    }
}

/// Whether it is a directory that only this user can enter.
pub fn is_private(meta: &fs::Metadata) -> bool {
    meta.is_dir() && meta.uid() == uid() && meta.mode() & 0o077 == 0
}

/// Refuses names that can't be a part of a path or of a kernel's command line, and those that commands would
/// take for an option.
pub fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= 24 && name.chars().all(fine) && !name.starts_with('-') {
        return Ok(());
    }
    Err(error!("{name:?} can't be a cluster's name")
        .code(2)
        .hint("A name has 1 to 24 letters, digits, '-' and '_', and does not begin with '-'."))
}

/// The names of the directories in this one.
pub fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| check_name(name).is_ok())
        .collect();
    names.sort();
    Ok(names)
}

/// The directory of a cluster's record and sockets.
pub fn cluster_directory(name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(runtime_directory()?.join(name))
}

/// The names of all clusters that have a record.
pub fn cluster_names() -> Result<Vec<String>> {
    let directory = runtime_directory()?;
    let names = names_in(&directory).explain(|| format!("reading {}", directory.display()))?;
    if names.is_empty() {
        // Looking leaves nothing behind. This fails if anything else is in the directory.
        let _ = fs::remove_dir(&directory);
    }
    Ok(names)
}

/// The socket of one of a machine's channels.
pub fn channel_socket(directory: &Path, channel: usize) -> PathBuf {
    directory.join(format!("channel{channel}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "a b", "a,b", "ümlaut", "-x", "-", &"x".repeat(25)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["default", "my-cluster_2", "_x-"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let path = std::env::temp_dir().join(format!("vshmem-state-{}", std::process::id()));
        private_directory(&path).unwrap();
        private_directory(&path).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, open).unwrap();
        assert!(private_directory(&path).is_err());
        fs::remove_dir(&path).unwrap();
    }
}
