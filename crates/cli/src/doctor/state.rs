//! The files that store earlier values of the settings that the doctor changes.

use std::path::PathBuf;
use vshmem_base::{
    directories::{private_directory, runtime_path},
    user::Identity,
    Result,
};

/// The directory of root's files, until the next boot.
const OF_ROOT: &str = "/run/vshmem-doctor";

fn directory() -> PathBuf {
    match Identity::current().uid {
        // In spite of root's environment: the settings are the kernel's.
        0 => OF_ROOT.into(),
        _ => runtime_path(),
    }
}

/// Makes the directory of these files.
pub fn prepare() -> Result<()> {
    private_directory(&directory())
}

/// The file of values before `--fix`; it may not exist.
pub fn of_fix() -> PathBuf {
    directory().join("doctor.json")
}

/// The file of values before the daemon's gain is measured; it may not exist.
pub fn of_proof() -> PathBuf {
    directory().join("doctor-proof.json")
}
