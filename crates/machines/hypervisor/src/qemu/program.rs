//! QEMU's program, and starting it.

use super::options::{arguments, Beginning, MachineSpec};
use crate::shared::file_tree::FileTree;
use crate::shared::sandbox::{self, PROGRAM};
use crate::shared::{logs, passed, root_server};
use std::path::{Path, PathBuf};
use std::process::Command;
use vshmem_base::error::{error, Error, Result};
use vshmem_base::process::Process;
use vshmem_placement::pages::Pages;
use vshmem_session::share::{self, Share};

/// The launcher's name on command lines.
pub const NAME: &str = "qemu";

/// The longest command line that a kernel takes.
const MAX_LENGTH: usize = 2047;

/// The path of QEMU. An error unless it is installed; called before anything is downloaded or made.
pub fn installed() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM));
    let found = files.find_map(|file| file.canonicalize().ok().filter(|file| file.is_file()));
    found.ok_or_else(|| {
        error!("there is no {PROGRAM} on the PATH")
            .hint("Install QEMU, for instance: sudo apt-get install qemu-system-x86")
    })
}

/// The version of QEMU, as far as it matters: 7.2.
pub fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_once("version ")?.1.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Directories that QEMU itself needs, if it is not installed in the system's.
fn own_files(program: &Path) -> Vec<Share> {
    let directory = program.parent().unwrap_or(Path::new("/"));
    let data = directory.with_file_name("share").join("qemu");
    let parts = [directory.to_path_buf(), data].into_iter();
    let missing = |path: &PathBuf| path.is_dir() && !share::is_visible(&[], path);
    let share = |path| Share { path, writable: false };
    parts.filter(missing).map(share).collect()
}

/// An error unless a kernel takes so many parameters.
pub fn check_parameters(parameters: &str) -> Result<()> {
    match parameters.len() > MAX_LENGTH {
        false => Ok(()),
        true => Err(Error::new("what machines are told is too long for a kernel's command line")
            .hint("Share fewer directories, or give pools shorter names.")),
    }
}

/// Starts a machine's QEMU, which outlives this process if it is kept.
pub fn start(spec: &MachineSpec<'_>) -> Result<(Process, sandbox::KillGuard)> {
    let program = installed()?;
    let (arguments, descriptors) = arguments(spec);
    if let Some(kernel) = &spec.kernel {
        check_parameters(&kernel.parameters)?;
    }
    sandbox::start(&sandbox::SandboxSpec {
        name: spec.title.clone(),
        own: FileTree::of(&own_files(&program))?,
        shared: match spec.beginning {
            Beginning::Template(_) => FileTree::only(&[])?,
            _ if spec.disks.is_some() || spec.settings.slim => FileTree::only(&spec.settings.shares)?,
            _ if spec.root.is_some() => FileTree::only(&root_server::live(&spec.settings.shares))?,
            _ => FileTree::of(&spec.settings.shares)?,
        },
        program,
        called: sandbox::PROGRAM.into(),
        arguments,
        descriptors: descriptors.0,
        devices: spec.devices.to_vec(),
        memlock: passed::locked(
            spec.devices,
            spec.memory,
            spec.pools.iter().map(|pool| pool.size),
            spec.ports,
        ),
        user: spec.user,
        directory: spec.directory.into(),
        log: logs::qemu(spec.directory),
        sockets: spec.root.as_ref().map(|root| root.sockets.clone()),
        again: false,
        small_pages: spec.backing.pages == Some(Pages::Small),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(parse_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\n"), Some((7, 2)));
        assert_eq!(parse_version("QEMU emulator version 10.0\n"), Some((10, 0)));
        assert_eq!(parse_version("QEMU"), None);
    }
}
