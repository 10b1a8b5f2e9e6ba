//! The initramfs of a machine, made when it is started: this program as `/init`, its shared libraries, and
//! the kernel modules that mounting the host's file tree takes. Nothing else needs to be installed.

use crate::boot::modules::Module;
use cpio::newc::{trailer, Builder, ModeFileType};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use vshmem_base::elf;
use vshmem_base::error::{Explain, Result};

/// Writes an initramfs. Its mode lets everybody read it, because the hypervisor may run as another user; its
/// directory is private.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
        .explain(|| format!("could not write {}", path.display()))
}

/// A cpio archive in the "newc" format, which Linux unpacks as an initramfs
/// (Documentation/driver-api/early-userspace/buffer-format.rst of Linux).
#[derive(Default)]
pub struct Archive(Vec<u8>);

impl Archive {
    /// Adds an entry of this type. Parents must have been added before it.
    fn add(&mut self, kind: ModeFileType, name: &str, mode: u32, data: &[u8]) {
        self.write(kind, Builder::new(name).mode(mode), data);
    }

    /// Adds a directory.
    pub fn directory(&mut self, name: &str) {
        self.add(ModeFileType::Directory, name, 0o755, &[]);
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.add(ModeFileType::Regular, name, mode, data);
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, name: &str, target: &str) {
        self.add(ModeFileType::Symlink, name, 0o777, target.as_bytes());
    }

    /// Its bytes.
    pub fn end(self) -> Vec<u8> {
        trailer(self.0).expect("a vector takes it")
    }

    fn write(&mut self, kind: ModeFileType, entry: Builder, data: &[u8]) {
        let size = u32::try_from(data.len()).expect("a file in an initramfs is below 4 GiB");
        let mut writer = entry.set_mode_file_type(kind).write(&mut self.0, size);
        let written = writer.write_all(data).and_then(|()| writer.finish());
        written.expect("a vector takes it");
    }
}

/// The bytes of an archive with these modules.
pub fn build<'a>(modules: impl Iterator<Item = &'a Module>) -> Result<Vec<u8>> {
    Ok(archive(modules)?.end())
}

/// An archive with this program and these modules.
pub fn archive<'a>(modules: impl Iterator<Item = &'a Module>) -> Result<Archive> {
    let program = fs::read("/proc/self/exe").explain(|| "reading this program's own file".into())?;
    let mut archive = Archive::default();
    for directory in ["dev", "proc", "sys", "modules", "lib64"] {
        archive.directory(directory);
    }
    // Loaders look for libraries in one of these two.
    archive.symlink("lib", "lib64");
    let console = Builder::new("dev/console").mode(0o600).rdev_major(5).rdev_minor(1);
    archive.write(ModeFileType::Char, console, &[]);
    archive.file("init", 0o755, &elf::loaded_part(&program));
    if let Some(loader) = elf::interpreter(&program) {
        add_libraries(&mut archive, &loader, &program)?;
    }
    for (number, module) in modules.enumerate() {
        archive.file(&format!("modules/{number:03}-{}.ko", module.name), 0o644, &module.bytes);
    }
    Ok(archive)
}

/// Adds the libraries that this program is linked with, and those that these are linked with, from where they
/// are mapped. Others are mapped, too, once a name of a user was looked up.
fn add_libraries(archive: &mut Archive, loader: &str, program: &[u8]) -> Result<()> {
    let maps = fs::read_to_string("/proc/self/maps").explain(|| "reading /proc/self/maps".into())?;
    let own = fs::read_link("/proc/self/exe").unwrap_or_default();
    let mut mapped = mapped_libraries(&maps, &own);
    mapped.remove(&file_name(Path::new(loader)));
    let mut libraries = Vec::new();
    for (name, path) in mapped {
        let bytes = fs::read(&path).explain(|| format!("reading {}", path.display()))?;
        libraries.push((elf::soname(&bytes).unwrap_or_else(|| name.clone()), name, path, bytes));
    }
    let mut needed = elf::needed(program);
    // By directory, which may have thousands.
    let mut links = BTreeMap::new();
    while let Some(soname) = needed.pop() {
        let Some(at) = libraries.iter().position(|library| library.0 == soname) else { continue };
        let (_, name, path, bytes) = libraries.remove(at);
        needed.extend(elf::needed(&bytes));
        archive.file(&format!("lib64/{name}"), 0o755, &elf::loaded_part(&bytes));
        let file = fs::metadata(&path).explain(|| format!("reading {}", path.display()))?;
        let directory = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let links = links.entry(directory).or_insert_with_key(|directory| links_in(directory));
        for link in links.get(&(file.dev(), file.ino())).into_iter().flatten() {
            archive.symlink(&format!("lib64/{link}"), &name);
        }
    }
    let bytes = fs::read(loader).explain(|| format!("reading the program loader {loader}"))?;
    let path = loader.trim_start_matches('/');
    let mut parents: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
    parents.pop();
    for parent in parents.iter().rev() {
        if !matches!(parent.to_str(), Some("lib" | "lib64")) {
            archive.directory(&parent.to_string_lossy());
        }
    }
    archive.file(path, 0o755, &bytes);
    Ok(())
}

/// The symbolic links in a directory, as libc.so.6 to libc-2.31.so: their names, by device and inode of the
/// file.
fn links_in(directory: &Path) -> BTreeMap<(u64, u64), Vec<String>> {
    let mut links: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            let path = entry.path();
            if let Ok(target) = fs::metadata(&path) {
                links.entry((target.dev(), target.ino())).or_default().push(file_name(&path));
            }
        }
    }
    links
}

/// File name and path of each library in /proc/PID/maps.
pub fn mapped_libraries(maps: &str, own: &Path) -> BTreeMap<String, PathBuf> {
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
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;
    use std::io::Read;
    use std::process::{Command, Stdio};

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
        let library = fs::metadata(root.join("libc-2.31.so")).unwrap();
        assert_eq!(links_in(&root)[&(library.dev(), library.ino())], ["libc.so.6"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_archive_holds_this_program() {
        let modules = [Module { name: "one".into(), bytes: vec![1, 2, 3] }];
        let bytes = build(modules.iter()).unwrap();
        let mut entries = BTreeMap::new();
        let mut rest = &bytes[..];
        loop {
            let mut reader = Reader::new(rest).unwrap();
            let entry = reader.entry().clone();
            if entry.is_trailer() {
                break;
            }
            let mut data = Vec::new();
            reader.read_to_end(&mut data).unwrap();
            entries.insert(entry.name().to_owned(), (entry.mode(), data));
            rest = reader.finish().unwrap();
        }
        assert_eq!(entries["init"].0, 0o100_755);
        assert_eq!(entries["modules/000-one.ko"], (0o100_644, vec![1, 2, 3]));
        assert_eq!(entries["lib"], (0o120_777, b"lib64".to_vec()));
        assert_eq!(entries["dev/console"], (0o020_600, vec![]));
        assert_eq!(entries["lib64"], (0o040_755, vec![]));
    }

    #[test]
    fn busybox_or_cpio_lists_it() {
        let bytes = build([].iter()).unwrap();
        for (program, args) in [("cpio", &["-it"][..]), ("busybox", &["cpio", "-t"][..])] {
            let child = Command::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = child else { continue };
            let mut input = child.stdin.take().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    input.write_all(&bytes).unwrap();
                    drop(input);
                });
                let out = child.wait_with_output().unwrap();
                assert!(out.status.success(), "{program} refused the archive");
                let text = String::from_utf8(out.stdout).unwrap();
                assert!(text.starts_with("dev\nproc\nsys\nmodules\nlib64\nlib\n"));
                assert!(text.lines().any(|name| name == "init"));
            });
        }
    }
}
