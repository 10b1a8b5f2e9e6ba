//! The initramfs of a machine, made when it is started: this program as `/init`, its shared libraries, and
//! the kernel modules that mounting the host's file tree takes. Nothing else needs to be installed.

use super::software::Software;
use crate::cpio::Archive;
use crate::elf;
use crate::error::{Explain, Result};
use crate::modules::Module;
use crate::state::directories::cluster_directory;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The initramfs file of a cluster, removed when it is dropped.
pub struct Initramfs(pub PathBuf);

impl Initramfs {
    /// Writes the file. The caller has the cluster's lock.
    pub fn write(cluster: &str, software: &Software) -> Result<Initramfs> {
        let path = cluster_directory(cluster)?.join("initramfs");
        write(&path, &software.kernel.modules)?;
        Ok(Initramfs(path))
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes an initramfs with these modules. Its mode lets everybody read it, because the hypervisor may run as
/// another user; its directory is private.
pub fn write(path: &Path, modules: &[Module]) -> Result<()> {
    let bytes = build(modules)?;
    fs::write(path, bytes)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
        .explain(|| format!("could not write {}", path.display()))
}

/// The archive's bytes.
pub fn build(modules: &[Module]) -> Result<Vec<u8>> {
    let program =
        fs::read("/proc/self/exe").explain(|| "reading this program's own file".into())?;
    let mut archive = Archive::new();
    for directory in ["dev", "proc", "sys", "modules", "lib64"] {
        archive.directory(directory, 0o755);
    }
    // Loaders look for libraries in one of these two.
    archive.symlink("lib", "lib64");
    archive.character("dev/console", 0o600, 5, 1);
    archive.file("init", 0o755, &elf::loaded_part(&program));
    if let Some(loader) = elf::interpreter(&program) {
        add_libraries(&mut archive, &loader)?;
    }
    for (number, module) in modules.iter().enumerate() {
        archive.file(
            &format!("modules/{number:03}-{}.ko", module.name),
            0o644,
            &module.bytes,
        );
    }
    Ok(archive.finish())
}

/// The shared libraries of this program are those that it has mapped.
fn add_libraries(archive: &mut Archive, loader: &str) -> Result<()> {
    let maps =
        fs::read_to_string("/proc/self/maps").explain(|| "reading /proc/self/maps".into())?;
    let own = fs::read_link("/proc/self/exe").unwrap_or_default();
    let loader_name = file_name(Path::new(loader));
    for (name, path) in mapped_libraries(&maps, &own) {
        if name != loader_name {
            let bytes = fs::read(&path).explain(|| format!("reading {}", path.display()))?;
            archive.file(&format!("lib64/{name}"), 0o755, &elf::loaded_part(&bytes));
            for link in links_to(&path) {
                archive.symlink(&format!("lib64/{link}"), &name);
            }
        }
    }
    let bytes = fs::read(loader).explain(|| format!("reading the program loader {loader}"))?;
    let path = loader.trim_start_matches('/');
    let mut parents: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
    parents.pop();
    for parent in parents.iter().rev() {
        if !matches!(parent.to_str(), Some("lib" | "lib64")) {
            archive.directory(&parent.to_string_lossy(), 0o755);
        }
    }
    archive.file(path, 0o755, &bytes);
    Ok(())
}

/// Symbolic links to a library, as libc.so.6 to libc-2.31.so.
fn links_to(library: &Path) -> Vec<String> {
    let directory = library.parent().unwrap_or(Path::new("/"));
    let leads_there = |path: &Path| {
        path.is_symlink() && path.canonicalize().is_ok_and(|target| target == library)
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| leads_there(path))
        .map(|p| file_name(&p))
        .collect()
}

/// File name and path of each library in /proc/PID/maps.
pub(crate) fn mapped_libraries(maps: &str, own: &Path) -> BTreeMap<String, PathBuf> {
    maps.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let rights = fields.nth(1)?;
            let path = Path::new(fields.nth(3)?.trim_start());
            let library = rights.contains('x') && path.is_absolute() && path != own;
            library.then(|| (file_name(path), path.to_path_buf()))
        })
        .collect()
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_other_mappings() {
        let maps = "\
55e0-55e1 r-xp 00001000 fe:01 42    /usr/bin/vshmem
7f00-7f01 r--p 00000000 fe:01 43    /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 r-xp 00001000 fe:01 43    /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 rw-p 00000000 00:00 0
7f03-7f04 r-xp 00000000 fe:01 44    /opt/with space/libx.so.1
7fff-7fff r-xp 00000000 00:00 0     [vdso]
";
        let found = mapped_libraries(maps, Path::new("/usr/bin/vshmem"));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["libc.so.6", "libx.so.1"]);
        assert_eq!(found["libx.so.1"], Path::new("/opt/with space/libx.so.1"));
    }

    #[test]
    fn links_to_a_library_are_found() {
        let root = std::env::temp_dir().join(format!("vshmem-links-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let root = root.canonicalize().unwrap();
        fs::write(root.join("libc-2.31.so"), "").unwrap();
        fs::write(root.join("other.so"), "").unwrap();
        std::os::unix::fs::symlink("libc-2.31.so", root.join("libc.so.6")).unwrap();
        std::os::unix::fs::symlink("other.so", root.join("other.so.1")).unwrap();
        assert_eq!(links_to(&root.join("libc-2.31.so")), ["libc.so.6"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_archive_holds_this_program() {
        let modules = [Module {
            name: "one".into(),
            bytes: vec![1, 2, 3],
        }];
        let bytes = build(&modules).unwrap();
        let find = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
        assert!(find("init\0") && find("modules/000-one.ko\0"));
    }
}
