//! The kernel modules that a machine needs, in the order of loading, without `depmod`: a kernel package that
//! was only unpacked has no modules.dep, but each module names its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vshmem_base::elf;
use vshmem_base::error::{error, Explain, Result};

/// A module ready to be loaded.
#[derive(Debug)]
pub struct Module {
    /// Name as in `lsmod`.
    pub name: String,
    /// The uncompressed file.
    pub bytes: Vec<u8>,
}

/// One line of the list of wanted modules.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name as in `lsmod`.
    pub name: String,
    /// May be missing from the kernel.
    pub optional: bool,
    /// Only for machines whose root is a disk.
    pub for_disk: bool,
}

/// Reads a list of wanted modules: one a line, `#` starts a comment, `?` marks an optional one, `+` one for
/// machines whose root is a disk.
pub fn parse_wanted(text: &str) -> Vec<Wanted> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
        .map(|line| {
            let name = normal(line.trim_start_matches(['?', '+']).trim());
            let for_disk = line.starts_with('+');
            Wanted { name, optional: for_disk || line.starts_with('?'), for_disk }
        })
        .collect()
}

/// The modules of one kernel.
pub struct Library {
    directory: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

impl Library {
    /// Reads a kernel's module directory, `/lib/modules/VERSION`.
    pub fn open(directory: &Path) -> Result<Library> {
        let mut files = BTreeMap::new();
        walk(&directory.join("kernel"), &mut files)
            .explain(|| format!("could not read the kernel modules in {}", directory.display()))?;
        let list = fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
        let builtin = list.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Library { directory: directory.into(), files, builtin })
    }

    /// The first wanted module that the kernel has neither as a file nor built in.
    pub fn missing<'a>(&self, wanted: &'a [Wanted]) -> Option<&'a str> {
        wanted.iter().filter(|w| !w.optional).map(|w| w.name.as_str()).find(|name| !self.has(name))
    }

    /// True if the kernel has the module of this name, as a file or built in.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.builtin.contains(name)
    }

    /// The wanted modules and their dependencies, in the order of loading: those that all machines load, and
    /// further ones for those whose root is a disk.
    pub fn resolve(&self, wanted: &[Wanted]) -> Result<(Vec<Module>, Vec<Module>)> {
        let mut done = BTreeSet::new();
        let (of_disk, of_all): (Vec<&Wanted>, Vec<&Wanted>) = wanted.iter().partition(|it| it.for_disk);
        Ok((self.ordered(&of_all, &mut done)?, self.ordered(&of_disk, &mut done)?))
    }

    fn ordered(&self, wanted: &[&Wanted], done: &mut BTreeSet<String>) -> Result<Vec<Module>> {
        let mut out = Vec::new();
        for want in wanted {
            if !want.optional || self.files.contains_key(&want.name) {
                self.visit(&want.name, done, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Adds a module after its dependencies.
    fn visit(&self, name: &str, done: &mut BTreeSet<String>, out: &mut Vec<Module>) -> Result<()> {
        // Marked before its dependencies are visited, so that cycles end.
        if self.builtin.contains(name) || !done.insert(name.into()) {
            return Ok(());
        }
        let path = self.files.get(name);
        let none = || error!("the kernel in {} has no module {name}", self.directory.display());
        let bytes = read_module(path.ok_or_else(none)?)?;
        for dependency in dependencies(&bytes) {
            self.visit(&dependency, done, out)?;
        }
        out.push(Module { name: name.into(), bytes });
        Ok(())
    }
}

/// An entry of a module's .modinfo section, by its name with `=`.
pub fn modinfo(module: &[u8], name: &str) -> Option<String> {
    let info = elf::section(module, ".modinfo")?;
    let value = info.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(name.as_bytes()))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The dependencies that a module names.
pub fn dependencies(module: &[u8]) -> Vec<String> {
    let list = modinfo(module, "depends=").unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty()).map(normal).collect()
}

/// `virtio-rng` and `virtio_rng` are the same module.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// `drivers/net/virtio_net.ko.xz` is the module `virtio_net`.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (stem, ending) = file.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".zst" | ".gz").then(|| normal(stem))
}

fn walk(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            walk(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// Reads a module, decompressed if need be.
pub fn read_module(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            return fs::read(path).explain(|| format!("could not read the kernel module {}", path.display()))
        }
    };
    let out = Command::new(program).arg("-dc").arg(path).output().map_err(|e| {
        error!("could not start {program} to unpack {}: {e}", path.display())
            .hint(format!("Install {program}, for instance: sudo apt-get install xz-utils zstd gzip"))
    })?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr).trim().to_string();
        return Err(error!("{program} could not unpack {}: {why}", path.display()));
    }
    Ok(out.stdout)
}

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests {
    use super::testing::module_file;
    use super::*;

    #[test]
    fn the_list_is_read() {
        let list = parse_wanted("# comment\nvirtio-pci\n\n?virtio_net # later\n  9p\n+erofs\n");
        let name = |name: &str, optional| Wanted { name: name.into(), optional, for_disk: name == "erofs" };
        let all =
            [name("virtio_pci", false), name("virtio_net", true), name("9p", false), name("erofs", true)];
        assert_eq!(list, all);
    }

    #[test]
    fn names_come_from_files() {
        let name = |path: &str| module_name(Path::new(path));
        assert_eq!(name("kernel/drivers/char/virtio-rng.ko").as_deref(), Some("virtio_rng"));
        assert_eq!(name("a/9p.ko.zst").as_deref(), Some("9p"));
        assert_eq!(name("a/modules.order"), None);
        assert_eq!(name("a/x.ko.bak"), None);
    }

    #[test]
    fn dependencies_are_read_from_the_module() {
        let module = module_file(b"license=GPL\0depends=9pnet,netfs\0name=9p\0");
        assert_eq!(dependencies(&module), ["9pnet", "netfs"]);
        assert!(dependencies(&module_file(b"depends=\0")).is_empty());
        assert!(dependencies(b"not a module").is_empty());
    }

    #[test]
    fn modules_are_ordered_after_what_they_need() {
        let root = std::env::temp_dir().join(format!("vshmem-modules-{}", std::process::id()));
        let kernel = root.join("kernel/deep");
        fs::create_dir_all(&kernel).unwrap();
        let files =
            [("top.ko", "middle,built-in"), ("middle.ko", "base"), ("base.ko", "top"), ("fs.ko", "sum,base")];
        for (file, depends) in files.into_iter().chain([("sum.ko", "")]) {
            let info = format!("depends={depends}\0");
            fs::write(kernel.join(file), module_file(info.as_bytes())).unwrap();
        }
        fs::write(root.join("modules.builtin"), "kernel/x/built_in.ko\n").unwrap();
        let library = Library::open(&root).unwrap();
        let wanted = parse_wanted("+fs\ntop\n?absent\nbuilt_in\n+absent\n");
        assert_eq!(library.missing(&wanted), None);
        let (all, of_disk) = library.resolve(&wanted).unwrap();
        let names = |modules: Vec<Module>| modules.into_iter().map(|m| m.name).collect::<Vec<_>>();
        assert_eq!(names(all), ["base", "middle", "top"]);
        assert_eq!(names(of_disk), ["sum", "fs"]);
        assert!(library.has("built_in") && !library.has("absent"));
        let absent = parse_wanted("absent");
        assert_eq!(library.missing(&absent), Some("absent"));
        assert!(library.resolve(&absent).unwrap_err().to_string().contains("no module absent"));
        fs::remove_dir_all(&root).unwrap();
    }
}
