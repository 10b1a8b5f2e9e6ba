//! The path of libvshmem.so, which redirects a program's System V calls to the pool.

use crate::error::{error, Result};
use std::path::{Path, PathBuf};

const NAMES: [&str; 2] = ["libvshmem.so", "libvshmem.so.1"];

/// The library: `VSHMEM_LIB`, else one beside this program or where it is installed relative to it.
pub fn find() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("VSHMEM_LIB").map(PathBuf::from) {
        return given.canonicalize().map_err(|e| {
            error!("VSHMEM_LIB is set to {}: {e}", given.display())
                .hint("Set it to the path of libvshmem.so, or unset it.")
        });
    }
    let program = std::env::current_exe().unwrap_or_default();
    let directory = program.parent().unwrap_or(Path::new("/"));
    candidates(directory).into_iter().find(|path| path.is_file()).ok_or_else(|| {
        error!("libvshmem.so is neither beside {} nor in ../lib", program.display())
            .hint("Build or install it (make, make install), or set VSHMEM_LIB to its path.")
    })
}

fn candidates(directory: &Path) -> Vec<PathBuf> {
    let triple = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    let directories = ["", "../lib", "../lib64", &triple];
    let files = |relative: &str| {
        let found = directory.join(relative);
        NAMES.map(|name| found.join(name))
    };
    directories.iter().flat_map(|relative| files(relative)).filter_map(|p| p.canonicalize().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_is_found_beside_the_program_and_in_lib() {
        let root = std::env::temp_dir().join(format!("vshmem-library-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("lib")).unwrap();
        assert!(candidates(&root.join("bin")).is_empty());
        let installed = root.join("lib/libvshmem.so.1");
        fs::write(&installed, "").unwrap();
        assert_eq!(candidates(&root.join("bin")), [installed.canonicalize().unwrap()]);
        let beside = root.join("bin/libvshmem.so");
        fs::write(&beside, "").unwrap();
        assert_eq!(candidates(&root.join("bin"))[0], beside.canonicalize().unwrap());
        fs::remove_dir_all(&root).unwrap();
    }
}
