//! The kernel of machines: an installed one, else one from the cache, else one that is downloaded as a
//! package and unpacked without root.

use crate::boot::modules::{Library, Module, Wanted};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vshmem_base::directories::cache_directory;
use vshmem_base::error::{error, Error, Explain, Result};

/// A kernel, and the modules that machines load.
pub struct Kernel {
    /// The bootable image.
    pub image: PathBuf,
    /// Its version, as in `uname -r`.
    pub version: String,
    /// Its modules, in the order of loading.
    pub modules: Vec<Module>,
    /// Further modules, with which it has its root as a disk; none if it lacks them.
    pub disk: Option<Vec<Module>>,
}

/// Names of kernel packages in Debian and Ubuntu. Debian's cloud kernel lacks 9p.
const PACKAGES: [&str; 2] = ["linux-image-amd64", "linux-image-generic"];
/// Modules without which a root can't be a disk.
const DISK: [&str; 2] = ["virtio_blk", "erofs"];

/// Finds a kernel that has the wanted modules.
pub fn find(given: Option<&Path>, wanted: &[Wanted], report: &mut dyn FnMut(&str)) -> Result<Kernel> {
    if let Some(image) = given {
        return open(image, wanted);
    }
    for image in installed_images() {
        if let Ok(kernel) = open(&image, wanted) {
            return Ok(kernel);
        }
    }
    let cache = cache_directory()?.join("kernels");
    for image in images_in(&cache) {
        if let Ok(kernel) = open(&image, wanted) {
            return Ok(kernel);
        }
    }
    download(&cache, wanted, report)
}

/// Opens an image and finds its modules.
fn open(image: &Path, wanted: &[Wanted]) -> Result<Kernel> {
    let mut head = vec![0; 64 * 1024];
    let len = fs::File::open(image)
        .and_then(|mut file| std::io::Read::read(&mut file, &mut head))
        .explain(|| format!("could not read the kernel {}", image.display()))?;
    let version =
        image_version(&head[..len]).ok_or_else(|| error!("{} is not a kernel for a PC", image.display()))?;
    let parent = image.parent().unwrap_or(Path::new("/"));
    let directories = [
        parent.join("modules"),
        parent.to_path_buf(),
        parent.join("../lib/modules").join(&version),
        PathBuf::from("/lib/modules").join(&version),
    ];
    let Some(directory) = directories.iter().find(|directory| directory.join("kernel").is_dir()) else {
        return Err(error!("there are no modules for the kernel {}", image.display())
            .hint(format!("They are looked for in /lib/modules/{version} and beside the image.")));
    };
    let library = Library::open(directory)?;
    if let Some(name) = library.missing(wanted) {
        return Err(error!("the kernel {} has no module {name}, which a machine needs", image.display()));
    }
    let (modules, disk) = library.resolve(wanted)?;
    let disk = Some(disk).filter(|_| DISK.into_iter().all(|name| library.has(name)));
    Ok(Kernel { image: image.into(), version, modules, disk })
}

/// The version in a bzImage's header (Documentation/arch/x86/boot.rst of Linux).
pub fn image_version(head: &[u8]) -> Option<String> {
    if head.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes(head.get(0x20e..0x210)?.try_into().ok()?);
    let text = head.get(usize::from(pointer) + 0x200..)?;
    let end = text.iter().position(|&b| b == b' ' || b == 0)?;
    let version = std::str::from_utf8(&text[..end]).ok()?;
    let fine = !version.is_empty() && !version.contains('/') && !version.starts_with('.');
    fine.then(|| version.into())
}

/// Images of installed kernels, newest version first.
fn installed_images() -> Vec<PathBuf> {
    let mut images: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir("/boot").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("vmlinuz-") {
            images.push(entry.path());
        }
    }
    images.extend(images_in(Path::new("/lib/modules")));
    newest_first(&mut images);
    images
}

/// DIRECTORY/VERSION/vmlinuz, newest version first.
fn images_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut images: Vec<PathBuf> =
        entries.map(|entry| entry.path().join("vmlinuz")).filter(|path| path.is_file()).collect();
    newest_first(&mut images);
    images
}

fn newest_first(images: &mut [PathBuf]) {
    images.sort_by_key(|path| std::cmp::Reverse(version_key(&path.to_string_lossy())));
}

/// The numbers in a name, to compare versions: 6.10 is newer than 6.9.
fn version_key(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn download(cache: &Path, wanted: &[Wanted], report: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let packages = packages()?;
    report(&format!("downloading the package {}", packages[0]));
    fs::create_dir_all(cache).explain(|| format!("could not make {}", cache.display()))?;
    let work = cache.join(format!(".new-{}", std::process::id()));
    let result = unpack_and_cache(cache, &work, &packages, wanted, report);
    let _ = fs::remove_dir_all(&work);
    result
}

/// The kernel's package and, if its modules have a package of their own, that one.
fn packages() -> Result<Vec<String>> {
    let none = || {
        Error::new("no kernel was found that the machines could run").hint(format!(
            "Install one, for instance: sudo apt-get install {}. If apt has no lists of packages \
             yet: sudo apt-get update. Or name one with --kernel.",
            PACKAGES[0]
        ))
    };
    let image = PACKAGES.iter().find_map(|meta| dependency(meta, "linux-image-")).ok_or_else(none)?;
    let modules = dependency(&image, "linux-modules-");
    Ok([Some(image), modules].into_iter().flatten().collect())
}

/// The first dependency of `package` whose name is `prefix` and a version.
fn dependency(package: &str, prefix: &str) -> Option<String> {
    let out = Command::new("apt-cache")
        .args(["show", "--no-all-versions", package])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    dependency_in(&String::from_utf8_lossy(&out.stdout), prefix)
}

/// The package with this prefix that a kernel package's description depends on.
pub fn dependency_in(description: &str, prefix: &str) -> Option<String> {
    let depends = description.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    depends.split([',', '|']).find_map(|item| {
        let name = item.split_whitespace().next()?;
        let version = name.strip_prefix(prefix)?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| name.into())
    })
}

fn unpack_and_cache(
    cache: &Path,
    work: &Path,
    packages: &[String],
    wanted: &[Wanted],
    report: &mut dyn FnMut(&str),
) -> Result<Kernel> {
    let tree = work.join("tree");
    fs::create_dir_all(&tree).explain(|| format!("could not make {}", tree.display()))?;
    let mut fetch = Command::new("apt-get");
    fetch.args(["download", "-q"]).args(packages).current_dir(work);
    run(&mut fetch, "downloading the kernel")?;
    report("unpacking it");
    for entry in fs::read_dir(work).explain(|| format!("reading {}", work.display()))?.flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(entry.path()).arg(&tree).current_dir(work);
            run(&mut unpack, "unpacking the kernel")?;
        }
    }
    let image = fs::read_dir(tree.join("boot"))
        .explain(|| "the package has no /boot".into())?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("/vmlinuz-"))
        .ok_or_else(|| Error::new("the package has no kernel in /boot"))?;
    if !tree.join("lib").exists() {
        // Newer packages only have files in /usr/lib.
        let _ = std::os::unix::fs::symlink("usr/lib", tree.join("lib"));
    }
    let kernel = open(&image, wanted)?;
    cache_kernel(cache, work, kernel)
}

/// Puts the image and the wanted modules into the cache.
fn cache_kernel(cache: &Path, work: &Path, kernel: Kernel) -> Result<Kernel> {
    let new = work.join("keep");
    let kept = cache.join(&kernel.version);
    let store = || -> std::io::Result<()> {
        fs::create_dir_all(new.join("kernel"))?;
        fs::copy(&kernel.image, new.join("vmlinuz"))?;
        let builtin = kernel
            .image
            .parent()
            .map(|boot| boot.join("../lib/modules").join(&kernel.version).join("modules.builtin"));
        fs::copy(builtin.unwrap_or_default(), new.join("modules.builtin"))?;
        for module in kernel.modules.iter().chain(kernel.disk.iter().flatten()) {
            fs::write(new.join("kernel").join(format!("{}.ko", module.name)), &module.bytes)?;
        }
        let _ = fs::remove_dir_all(&kept);
        fs::rename(&new, &kept)
    };
    store().explain(|| format!("could not keep the kernel in {}", kept.display()))?;
    Ok(Kernel { image: kept.join("vmlinuz"), ..kernel })
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| {
        error!("{what} needs {program}, which could not be started: {e}")
            .hint("Install a kernel by hand instead, or name one with --kernel.")
    })?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let why = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    let cache = command.get_current_dir().and_then(Path::parent);
    Err(error!("{what} failed: {why}").hint(what_helps(why, cache)))
}

/// The hint for a download or unpacking that has failed for this reason; all of it is in the cache.
fn what_helps(why: &str, cache: Option<&Path>) -> String {
    match cache.filter(|_| why.contains("No space left")) {
        Some(cache) => format!(
            "Make room for a kernel in {}, or have XDG_CACHE_HOME name a directory elsewhere; or name a kernel with \
             --kernel.",
            cache.display()
        ),
        None => "Try again later, install a kernel by hand, or name one with --kernel.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_where_a_download_fails_for_it() {
        let cache = Some(Path::new("/home/me/.cache/vshmem/kernels"));
        let apt = "Error writing to file - write (28: No space left on device)";
        assert!(what_helps(apt, cache).contains("room for a kernel in /home/me/.cache/vshmem/kernels"));
        assert!(what_helps("Temporary failure resolving", cache).starts_with("Try again later"));
    }

    #[test]
    fn a_version_is_read_from_the_image() {
        let mut head = vec![0; 0x600];
        head[0x202..0x206].copy_from_slice(b"HdrS");
        head[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        head[0x300..0x315].copy_from_slice(b"6.1.0-56-amd64 (debia");
        assert_eq!(image_version(&head).as_deref(), Some("6.1.0-56-amd64"));
        head[0x300..0x302].copy_from_slice(b"..");
        assert_eq!(image_version(&head), None);
        head[0x20e..0x210].copy_from_slice(&0xffffu16.to_le_bytes());
        assert_eq!(image_version(&head), None);
        assert_eq!(image_version(b"not a kernel"), None);
    }

    #[test]
    fn newer_kernels_come_first() {
        let mut images: Vec<PathBuf> =
            ["/b/vmlinuz-6.9.1", "/b/vmlinuz-6.10.0", "/b/vmlinuz-5.15"].map(Into::into).into();
        newest_first(&mut images);
        assert_eq!(images[0], Path::new("/b/vmlinuz-6.10.0"));
        assert_eq!(images[2], Path::new("/b/vmlinuz-5.15"));
    }

    #[test]
    fn the_real_package_is_found_behind_the_empty_one() {
        let debian = "Package: linux-image-amd64\nDepends: linux-image-6.1.0-56-amd64 (= 6.1.1)\n";
        assert_eq!(dependency_in(debian, "linux-image-").as_deref(), Some("linux-image-6.1.0-56-amd64"));
        let ubuntu = "Depends: kmod, linux-base (>= 4.5), linux-modules-6.8.0-31-generic\n";
        assert_eq!(
            dependency_in(ubuntu, "linux-modules-").as_deref(),
            Some("linux-modules-6.8.0-31-generic")
        );
        assert_eq!(dependency_in("Depends: linux-image-generic\n", "linux-image-"), None);
        assert_eq!(dependency_in("", "linux-image-"), None);
    }
}
