//! The initramfs of a slim machine, which is all that it has: this program, the library, and busybox for a
//! shell if this host has it as one file.

use super::initramfs::{archive, Archive};
use crate::boot::modules::Module;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use vshmem_base::error::{Explain, Result};
use vshmem_base::{elf, library};
use vshmem_session::share::is_visible;

/// Modules that a slim machine can do without: it has no layer above another root.
const NEEDLESS: [&str; 1] = ["overlay"];
/// Paths of busybox in distributions.
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
/// The one user with a name.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n";
const GROUP: &str = "root:x:0:\n";
/// Names are looked up in files first: there may be nobody to ask.
const LOOKUPS: &str = "hosts: files dns\n";

/// The bytes of an archive for a slim machine, with those of these modules that it needs.
pub fn build(modules: &[Module]) -> Result<Vec<u8>> {
    let mut archive = archive(modules.iter().filter(|module| !NEEDLESS.contains(&module.name.as_str())))?;
    for directory in ["bin", "etc", "root", "sbin", "usr", "usr/bin"] {
        archive.directory(directory);
    }
    archive.file("etc/passwd", 0o644, PASSWD.as_bytes());
    archive.file("etc/group", 0o644, GROUP.as_bytes());
    archive.file("etc/nsswitch.conf", 0o644, LOOKUPS.as_bytes());
    add_busybox(&mut archive);
    add_own(&mut archive)?;
    Ok(archive.end())
}

/// Busybox, and its applets as links to it.
fn add_busybox(archive: &mut Archive) {
    let found = BUSYBOX.iter().find_map(|path| Some((path, fs::read(path).ok()?)));
    let Some((path, bytes)) = found.filter(|(_, bytes)| elf::interpreter(bytes).is_none()) else { return };
    archive.file("bin/busybox", 0o755, &bytes);
    let list = Command::new(path).arg("--list").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let names = list.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    for name in names.lines().filter(|name| *name != "busybox") {
        archive.symlink(&format!("bin/{name}"), "busybox");
    }
}

/// This program and the library where commands of the host call them, unless the host shares these places.
fn add_own(archive: &mut Archive) -> Result<()> {
    let program = std::env::current_exe().ok().and_then(|program| program.canonicalize().ok());
    if let Some(program) = program.filter(|program| is_visible(&[], program)) {
        add_parents(archive, &program);
        archive.symlink(&inside(&program), "/init");
    }
    if let Some(library) = library::find().ok().filter(|library| is_visible(&[], library)) {
        let bytes = fs::read(&library).explain(|| format!("reading {}", library.display()))?;
        add_parents(archive, &library);
        archive.file(&inside(&library), 0o755, &elf::loaded_part(&bytes));
    }
    Ok(())
}

/// A path without the slash at its begin.
fn inside(path: &Path) -> String {
    path.strip_prefix("/").unwrap_or(path).to_string_lossy().into_owned()
}

fn add_parents(archive: &mut Archive, path: &Path) {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|it| *it != Path::new("/")).collect();
    parents.reverse();
    for parent in parents {
        archive.directory(&inside(parent));
    }
}
