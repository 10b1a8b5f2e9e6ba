//! The libraries that a program loads.

use crate::files::{script_interpreter, Files};
use crate::implementations::listed;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_base::elf::interpreter;
use vshmem_base::error::{error, Error, Result};

/// The most scripts of which each is interpreted by the next one, as in Linux.
const MOST_SCRIPTS: u32 = 4;

/// A script of Python's that loads MPI as a rank does, without starting it, and prints the libraries.
const MPI4PY: &str = "\
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
maps = open('/proc/self/maps')
print('\\n'.join(sorted({line.split(None, 5)[5].rstrip() for line in maps if '/' in line})))";

/// The program loader that this host's programs use, and so those of its machines.
pub fn loader(files: &Files) -> Result<PathBuf> {
    let sh = Path::new("/bin/sh");
    let bytes = files.read(sh).ok_or_else(|| Error::new("could not read /bin/sh"))?;
    interpreter(&bytes)
        .map(PathBuf::from)
        .ok_or_else(|| Error::new("/bin/sh is linked statically, so no program loader is known"))
}

/// The libraries that are loaded with the program of a command; those of MPI, if it is a script of Python's.
pub fn libraries_of(files: &Files, command: &OsStr) -> Result<Vec<PathBuf>> {
    let mut file = files.locate(command).ok_or_else(|| no_program(command, None))?;
    for _ in 0..MOST_SCRIPTS {
        // It may be a script that looks for the right one.
        if is_python(&file) {
            return of_python(files, &file);
        }
        let bytes = read(files, &file)?;
        if !bytes.starts_with(b"#!") {
            return of_machine_code(files, &file, &bytes);
        }
        let interpreter = script_interpreter(&bytes)
            .and_then(|next| files.locate(&next))
            .ok_or_else(|| error!("{} names no interpreter that can be run", file.display()))?;
        file = interpreter;
    }
    Err(error!("{} is a script of scripts", command.to_string_lossy()))
}

/// The error that there is no such program, here or in this host.
pub fn no_program(command: &OsStr, host: Option<&str>) -> Error {
    let place =
        host.map_or("that this user may run".into(), |host| format!("in {host} that may be run there"));
    error!("there is no program {} {place}", command.to_string_lossy())
        .hint("Give a path, as ./a.out, or a name that is found in PATH. Its file must be executable (chmod +x).")
        .code(127)
}

fn read(files: &Files, file: &Path) -> Result<Vec<u8>> {
    files.read(file).ok_or_else(|| error!("could not read {}", file.display()))
}

fn of_machine_code(files: &Files, file: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>> {
    let Some(loader) = interpreter(bytes) else {
        return Err(error!(
            "{} is linked statically, or is no program, so nothing can be preloaded into its ranks",
            file.display()
        )
        .hint("Link it dynamically.")
        .code(126));
    };
    files.libraries(loader.as_ref(), file).ok_or_else(|| {
        error!("{} can't be loaded here", file.display())
            .hint(format!("See what is missing: {loader} --list {}", file.display()))
            .code(126)
    })
}

fn is_python(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"))
}

fn of_python(files: &Files, python: &Path) -> Result<Vec<PathBuf>> {
    let printed = files.output(&[python.as_os_str(), "-c".as_ref(), MPI4PY.as_ref()]).ok_or_else(|| {
        error!("{} can't import mpi4py, so it can't be told which MPI the script uses", python.display())
            .hint(format!(
                "Install mpi4py, or name the MPI: {}, or --mpi with the path of an mpiexec.",
                listed(|it| format!("--mpi {}", it.option()), ", ")
            ))
            .code(1)
    })?;
    Ok(printed.split(|b| *b == b'\n').map(|line| OsStr::from_bytes(line).into()).collect())
}

/// The first of these files whose name is one of these, with the version behind it.
pub fn named<'a>(files: &'a [PathBuf], names: &[&str]) -> Option<&'a PathBuf> {
    let is_named = |file: &&PathBuf| {
        let own = file.file_name().unwrap_or_default().as_bytes();
        names.iter().any(|name| {
            own.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
        })
    };
    files.iter().find(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_by_name() {
        let all = ["/lib/libmpich.so.12".into(), "/lib/libmpi_abi.so.1".into(), "/lib/libmpi.so".into()];
        assert_eq!(named(&all, &["libmpi.so"]), Some(&all[2]));
        assert_eq!(named(&all, &["libmpi_abi.so", "libmpi.so"]), Some(&all[1]));
        assert_eq!(named(&all, &["libmp", "libmpich.so.1"]), None);
    }

    #[test]
    fn a_program_s_libraries_are_found() {
        let files = Files::host("/");
        let libraries = libraries_of(&files, "sh".as_ref()).unwrap();
        assert!(named(&libraries, &["libc.so"]).is_some(), "{libraries:?}");
        assert!(loader(&files).unwrap().is_file());
        let why = libraries_of(&files, "no-such-program".as_ref()).unwrap_err();
        assert!(why.to_string().starts_with("there is no program no-such-program"), "{why}");
    }
}
