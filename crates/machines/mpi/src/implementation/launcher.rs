//! An MPI's launcher, and the daemon that it starts in other hosts.

use super::kind::Kind;
use crate::files::Files;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Error, Result};

/// What Hydra's program holds, and no other.
const HYDRA: &[u8] = b"HYDRA build";
/// The name of PRRTE's daemon.
pub const PRRTE: &str = "prted";

/// A launcher: `mpiexec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// Which MPI's it is.
    pub kind: Kind,
    /// The program.
    pub file: PathBuf,
    /// What it starts in other hosts.
    pub daemon: PathBuf,
}

impl Kind {
    /// Names of its launcher, from the surest.
    fn launchers(self) -> &'static [&'static str] {
        match self {
            Kind::Mpich => &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"],
            Kind::OpenMpi => &["mpiexec.openmpi", "orterun", "mpiexec"],
        }
    }

    /// Names of its daemon. Open MPI has the one up to version 4, and PRRTE's since 5.
    fn daemons(self) -> &'static [&'static str] {
        match self {
            Kind::Mpich => &["hydra_pmi_proxy"],
            Kind::OpenMpi => &["orted", PRRTE],
        }
    }
}

impl Launcher {
    /// The launcher of an MPI whose library this is: in `bin` of the directory that it is installed in.
    pub fn beside(files: &Files, kind: Kind, library: &Path) -> Result<Launcher> {
        let places = library.ancestors().skip(1).map(|directory| directory.join("bin"));
        let found = places.flat_map(|bin| kind.launchers().iter().map(move |name| bin.join(name)));
        found.into_iter().find_map(|file| Launcher::of(files, kind, &file)).ok_or_else(|| {
            error!("there is no launcher of {kind} that belongs to {}", library.display())
                .hint(format!("Install it ({}), or name it by --mpi.", package(kind)))
        })
    }

    /// The first launcher of this MPI in `PATH`.
    pub fn in_path(files: &Files, kind: Kind) -> Result<Launcher> {
        let found = kind.launchers().iter().filter_map(|name| files.locate(name.as_ref()));
        found.into_iter().find_map(|file| Launcher::of(files, kind, &file)).ok_or_else(|| {
            error!("there is no launcher of {kind} in PATH")
                .hint(format!("Install it ({}), or give --mpi its path.", package(kind)))
                .code(1)
        })
    }

    /// The launcher that this file is.
    pub fn read(files: &Files, file: &Path) -> Result<Launcher> {
        let found = files
            .locate(file.as_os_str())
            .ok_or_else(|| error!("--mpi {}: there is no such program", file.display()).code(1))?;
        let kinds = [Kind::Mpich, Kind::OpenMpi].into_iter();
        kinds.filter_map(|kind| Launcher::of(files, kind, &found)).next().ok_or_else(|| {
            Error::new(format!("--mpi {}: it is no mpiexec of MPICH or Open MPI", file.display())).code(1)
        })
    }

    /// This file, if it is a launcher of this MPI.
    fn of(files: &Files, kind: Kind, file: &Path) -> Option<Launcher> {
        let found = files.locate(file.as_os_str())?;
        // Open MPI takes the directory above `bin` for its own, which must not be that above the link /bin.
        let file = files.resolve(found.parent()?)?.join(found.file_name()?);
        let is_hydra = || {
            files.read(&file).is_some_and(|bytes| bytes.windows(HYDRA.len()).any(|window| window == HYDRA))
        };
        let daemons = kind.daemons().iter().map(|name| file.with_file_name(name));
        let daemon = files.first_program(daemons)?;
        let name = file.file_name()?.as_bytes();
        let has_name =
            ["mpiexec", "mpirun", "orterun", "oshrun"].iter().any(|it| name.starts_with(it.as_bytes()));
        let is_its_own = (kind == Kind::Mpich) == is_hydra();
        (has_name && is_its_own).then_some(Launcher { kind, file, daemon })
    }

    /// Where the library of its MPI may be, from the likeliest.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let root = self.file.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let names: &[&str] = match self.kind {
            Kind::Mpich => &["libmpich.so.12", "libmpi.so.12"],
            Kind::OpenMpi => &["libmpi.so.40"],
        };
        let triple = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        let directories = [triple.as_str(), "lib", "lib64"].map(|directory| root.join(directory));
        directories.iter().flat_map(|directory| names.iter().map(|name| directory.join(name))).collect()
    }
}

fn package(kind: Kind) -> &'static str {
    match kind {
        Kind::Mpich => "Debian's package is mpich",
        Kind::OpenMpi => "Debian's package is openmpi-bin",
    }
}
