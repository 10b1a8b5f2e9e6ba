//! Where it is written down what was there before it was changed.

use std::path::PathBuf;
use vshmem_base::{
    directories::{private_directory, runtime_path},
    user::Identity,
    Result,
};

/// Where root's changes are written down, until the next boot.
const OF_ROOT: &str = "/run/vshmem-doctor";

fn directory() -> PathBuf {
    match Identity::current().uid {
        // Whatever root's environment is: the settings are the kernel's.
        0 => OF_ROOT.into(),
        _ => runtime_path(),
    }
}

/// Makes the directory of these files.
pub fn prepare() -> Result<()> {
    private_directory(&directory())
}

/// The file that says what was there before `--fix`; it may not exist.
pub fn of_fix() -> PathBuf {
    directory().join("doctor.json")
}

/// The same for what is changed while the daemon's gain is measured.
pub fn of_proof() -> PathBuf {
    directory().join("doctor-proof.json")
}
