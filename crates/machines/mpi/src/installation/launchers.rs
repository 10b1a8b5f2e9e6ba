//! The launchers that are installed on a host.

use crate::files::{contains, Files};
use crate::implementation::Implementation;
use crate::implementations::{listed, IMPLEMENTATIONS};
use crate::launcher::Launcher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Error, Result};

/// The launcher of an MPI whose library this is: in `bin` of the directory that it is installed in.
pub fn beside(files: &Files, implementation: &dyn Implementation, library: &Path) -> Result<Launcher> {
    let places = library.ancestors().skip(1).map(|directory| directory.join("bin"));
    let mut found = places.flat_map(|bin| implementation.launchers().iter().map(move |name| bin.join(name)));
    found.find_map(|file| launcher(files, implementation, &file)).ok_or_else(|| {
        let package = implementation.package();
        error!("there is no launcher of {implementation} that belongs to {}", library.display())
            .hint(format!("Install it (Debian's package is {package}), or name it by --mpi."))
    })
}

/// The first launcher of this MPI in `PATH`.
pub fn in_path(files: &Files, implementation: &dyn Implementation) -> Result<Launcher> {
    let mut found = implementation.launchers().iter().filter_map(|name| files.locate(name.as_ref()));
    found.find_map(|file| launcher(files, implementation, &file)).ok_or_else(|| {
        let package = implementation.package();
        error!("there is no launcher of {implementation} in PATH")
            .hint(format!("Install it (Debian's package is {package}), or give --mpi its path."))
            .code(1)
    })
}

/// The launcher that this file is, and its implementation.
pub fn read(files: &Files, file: &Path) -> Result<(&'static dyn Implementation, Launcher)> {
    let found = files
        .locate(file.as_os_str())
        .ok_or_else(|| error!("--mpi {}: there is no such program", file.display()).code(1))?;
    let mut all = IMPLEMENTATIONS.iter().copied();
    all.find_map(|it| Some((it, launcher(files, it, &found)?))).ok_or_else(|| {
        let names = listed(|it| it.to_string(), " or ");
        Error::new(format!("--mpi {}: it is no mpiexec of {names}", file.display())).code(1)
    })
}

/// This file, if it is a launcher of this MPI.
fn launcher(files: &Files, implementation: &dyn Implementation, file: &Path) -> Option<Launcher> {
    let found = files.locate(file.as_os_str())?;
    // Open MPI takes the directory above `bin` for its own, which must not be that above the link /bin.
    let file = files.resolve(found.parent()?)?.join(found.file_name()?);
    let daemons = implementation.daemons().iter().map(|name| file.with_file_name(name));
    let daemon = files.first_program(daemons)?;
    let name = file.file_name()?.as_bytes();
    let has_name = implementation.launcher_beginnings().iter().any(|it| name.starts_with(it.as_bytes()));
    (has_name && is_its_own(files, implementation, &file)).then_some(Launcher { file, daemon })
}

/// True for a file that has this implementation's mark; if there is none, for one that has no other's.
fn is_its_own(files: &Files, implementation: &dyn Implementation, file: &Path) -> bool {
    let bytes = files.read(file).unwrap_or_default();
    match implementation.launcher_mark() {
        Some(mark) => contains(&bytes, mark),
        None => {
            !IMPLEMENTATIONS.iter().filter_map(|it| it.launcher_mark()).any(|mark| contains(&bytes, mark))
        }
    }
}

/// Files that may be the library of a launcher's MPI, from the likeliest.
pub fn libraries(implementation: &dyn Implementation, launcher: &Launcher) -> Vec<PathBuf> {
    let root = launcher.file.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let names = implementation.library_files();
    let triple = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let directories = [triple.as_str(), "lib", "lib64"].map(|directory| root.join(directory));
    directories.iter().flat_map(|directory| names.iter().map(|name| directory.join(name))).collect()
}
