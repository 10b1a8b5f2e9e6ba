//! The toolstack `xl`, which creates domains.

use super::config::Config;
use super::namespace::MountNamespace;
use crate::running::xen_domain::{destroy, Domain, PROGRAM};
use crate::shared::log::tail;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use vshmem_base::error::{error, Error, Explain, Result};

/// Whether xl is on the PATH.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(PROGRAM).is_file())
}

/// Creates a domain. Its configuration and log are in the machine's directory.
pub fn create(config: &Config, directory: &Path) -> Result<Domain> {
    // Left by a command that was killed before it could write the record.
    if let Some(left) = id_of(&config.name) {
        destroy(left);
    }
    let (file, log) = (directory.join("domain.cfg"), directory.join("xl.log"));
    fs::write(&file, config.text()?).explain(|| format!("could not write {}", file.display()))?;
    let output = File::create(&log).explain(|| format!("could not make {}", log.display()))?;
    let copy = output.try_clone().explain(|| "could not copy a descriptor".into())?;
    let namespace = MountNamespace::at(&config.root, config.shares)?;
    let mut command = Command::new(PROGRAM);
    command.arg("create").arg(&file).current_dir("/");
    command.stdin(Stdio::null()).stdout(output).stderr(copy);
    let prepare = move || {
        // In a session of its own, it outlives the terminal, and is not interrupted half-way.
        let _ = rustix::process::setsid();
        namespace.enter()
    };
    // SAFETY: the closure allocates, which glibc permits in a forked child, and takes no other lock.
    unsafe { command.pre_exec(prepare) };
    let done = command.status().map_err(|e| {
        error!("could not start {PROGRAM} for {}: {e}", config.name)
            .hint("It needs a mount namespace of its own.")
    })?;
    let id = id_of(&config.name).filter(|_| done.success());
    let domain = id.ok_or_else(|| refused(&config.name, &log))?;
    Ok(Domain { domain, uuid: config.uuid.into() })
}

fn refused(name: &str, log: &Path) -> Error {
    let said = tail(log);
    error!("xl could not create the domain {name}:{said}")
        .hint("It needs free memory (xl info), and the package qemu-system-xen; see also /var/log/xen.")
}

/// The domain that has this name.
fn id_of(name: &str) -> Option<u16> {
    let mut command = Command::new(PROGRAM);
    command.args(["domid", name]).stderr(Stdio::null());
    let said = command.stdin(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&said.stdout).trim().parse().ok()
}
