//! The driver for the machines' kernel, if this host has one: installed by DKMS, beside this program, or
//! built into the user's cache by `kmod/build.sh`.

use crate::boot::modules::{modinfo, read_module, Module};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use vshmem_base::directories::cache_directory;
use vshmem_base::error::{error, Result};

/// A choice of the driver that machines load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// A driver that is found, if any.
    Auto,
    /// None.
    None,
    /// This file.
    File(PathBuf),
}

/// A driver for the machines' kernel.
pub struct Driver {
    /// The path at which it was found.
    pub path: PathBuf,
    /// Loaded after the other modules.
    pub module: Module,
}

/// The version of the driver's interface that the library needs (`vshmem_calls` in the driver's source).
const CALLS: &str = "2";
/// The directory in the cache with a directory for each kernel that `kmod/build.sh` has built for.
const BUILT: &str = "kmod/modules";
/// File name endings of modules, compressed or not.
const ENDINGS: [&str; 4] = ["", ".xz", ".zst", ".gz"];

/// The chosen driver of this name for a kernel of this version.
pub fn find(choice: &Choice, name: &str, version: &str) -> Result<Option<Driver>> {
    match choice {
        Choice::None => Ok(None),
        Choice::File(path) => open(path, name, version).map(Some),
        // An unreadable driver, or one for another kernel, counts as none.
        Choice::Auto => {
            Ok(candidates(name, version).into_iter().find_map(|path| open(&path, name, version).ok()))
        }
    }
}

/// The chosen drivers of this name for any kernel, each with the kernel's version.
pub fn all(choice: &Choice, name: &str) -> Vec<(String, Module)> {
    let versions = match choice {
        Choice::None => vec![],
        Choice::File(path) => {
            read_module(path).ok().and_then(|bytes| built_for(&bytes)).into_iter().collect()
        }
        Choice::Auto => {
            let directories =
                [Some("/lib/modules".into()), library(), cache().map(|cache| cache.join(BUILT))];
            let found =
                directories.into_iter().flatten().flat_map(|it| fs::read_dir(it).into_iter().flatten());
            let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            names.collect::<BTreeSet<_>>().into_iter().collect()
        }
    };
    let of = |version: String| find(choice, name, &version).ok()?.map(|driver| (version, driver.module));
    versions.into_iter().filter_map(of).collect()
}

fn open(path: &Path, name: &str, version: &str) -> Result<Driver> {
    let bytes = read_module(path)?;
    if modinfo(&bytes, "vshmem_calls=").as_deref() != Some(CALLS) {
        return Err(error!("{} is a driver of another version than this program", path.display())
            .hint(format!("Build one of this version: kmod/build.sh {version}")));
    }
    match built_for(&bytes) {
        Some(found) if found == version => {
            Ok(Driver { path: path.into(), module: Module { name: name.into(), bytes } })
        }
        found => Err(error!(
            "{} is a module for {}, and the machines' kernel is {version}",
            path.display(),
            found.as_deref().unwrap_or("no kernel of Linux")
        )
        .hint(format!("Build one for it: kmod/build.sh {version}"))),
    }
}

/// The version of the kernel that a module was built for.
fn built_for(module: &[u8]) -> Option<String> {
    let magic = modinfo(module, "vermagic=")?;
    magic.split(' ').next().map(str::to_owned)
}

/// Paths of drivers that may exist, the best first.
fn candidates(name: &str, version: &str) -> Vec<PathBuf> {
    let installed = Path::new("/lib/modules").join(version);
    let mut directories = ["updates/dkms", "updates", "extra"].map(|part| installed.join(part)).to_vec();
    if let Some(library) = library() {
        directories.extend([library.join(version), library]);
    }
    let mut out: Vec<PathBuf> = directories
        .iter()
        .flat_map(|directory| ENDINGS.map(|ending| directory.join(format!("{name}.ko{ending}"))))
        .filter(|path| path.is_file())
        .collect();
    out.extend(built(name, version));
    out
}

/// The directory of drivers in this program's installation.
fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("lib/vshmem"))
}

/// The directory in which `kmod/build.sh` builds.
fn cache() -> Option<PathBuf> {
    std::env::var_os("VSHMEM_CACHE").map(PathBuf::from).or_else(|| cache_directory().ok())
}

/// Drivers that `kmod/build.sh` has built, the newest first.
fn built(name: &str, version: &str) -> Vec<PathBuf> {
    let directory = cache().unwrap_or_default().join(BUILT).join(version);
    let mut found: Vec<(SystemTime, PathBuf)> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join(format!("{name}.ko")))
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::modules::testing::module_file;
    use vshmem_guest::settings::DRIVER;

    #[test]
    fn a_driver_of_another_kernel_is_refused() {
        let path = std::env::temp_dir().join(format!("vshmem-driver-{}.ko", std::process::id()));
        let info = "license=GPL\0vermagic=6.1.0-56-amd64 SMP preempt mod_unload \0name=vshmem\0";
        let of_this_version = format!("{info}vshmem_calls={CALLS}\0");
        fs::write(&path, module_file(of_this_version.as_bytes())).unwrap();
        let chosen = Choice::File(path.clone());
        let driver = find(&chosen, DRIVER, "6.1.0-56-amd64").unwrap().unwrap();
        assert_eq!((driver.path, driver.module.name.as_str()), (path.clone(), "vshmem"));
        let all: Vec<String> = all(&chosen, DRIVER).into_iter().map(|(version, _)| version).collect();
        assert_eq!(all, ["6.1.0-56-amd64"]);
        let refused = find(&chosen, DRIVER, "6.1.0-5").err().unwrap().to_string();
        assert!(refused.contains("6.1.0-56-amd64"), "{refused}");
        for older in [info.to_owned(), format!("{info}vshmem_calls=1\0")] {
            fs::write(&path, module_file(older.as_bytes())).unwrap();
            let refused = find(&chosen, DRIVER, "6.1.0-56-amd64").err().unwrap();
            assert!(refused.to_string().contains("another version"), "{refused}");
        }
        fs::write(&path, "no module").unwrap();
        assert!(find(&chosen, DRIVER, "6.1.0-56-amd64").is_err());
        fs::remove_file(&path).unwrap();
        assert!(find(&chosen, DRIVER, "6.1.0-56-amd64").is_err());
        assert!(find(&Choice::None, DRIVER, "6.1.0-56-amd64").unwrap().is_none());
        assert!(find(&Choice::Auto, DRIVER, "0.0-no-such-kernel").unwrap().is_none());
    }
}
