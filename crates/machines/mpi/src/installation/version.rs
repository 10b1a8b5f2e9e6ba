//! The versions of MPI and UCX, as their own libraries or programs tell them.

use crate::files::Files;
use crate::launcher::Launcher;
use crate::versions::Version;
use std::ffi::{c_char, c_int, c_void, CStr, CString, OsStr};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vshmem_base::error::{error, Result};

/// The hidden command of `vshmem` that prints what [`library_version`] returns.
const COMMAND: &str = "library-version";
/// Bytes of the text of `MPI_Get_library_version`: MPICH's `MPI_MAX_LIBRARY_VERSION_STRING`, the largest.
const MOST_TEXT: usize = 8192;

/// The version of MPI: by its library where that can be loaded here, else by its launcher.
pub fn mpi_version(files: &Files, library: &Path, launcher: &Launcher) -> Option<Version> {
    by_library(files, library).or_else(|| {
        let printed = files.output(&[launcher.file.as_os_str(), "--version".as_ref()])?;
        Version::in_text(&String::from_utf8_lossy(&printed))
    })
}

/// The version of UCX: by its library where that can be loaded here, else by `ucx_info` of the same library,
/// else by the texts in the library's file.
pub fn ucx_version(files: &Files, loader: &Path, library: &Path) -> Option<Version> {
    by_library(files, library)
        .or_else(|| {
            let info = ucx_info(files, loader, library)?;
            Version::in_text(&String::from_utf8_lossy(&files.output(&[&info, "-v".as_ref()])?))
        })
        .or_else(|| Version::in_file(&files.read(library)?, UCX_MAJOR))
}

/// The major version that all of UCX's releases have had.
const UCX_MAJOR: u16 = 1;

/// The version that a library of this host says. It is loaded by a process of its own: it may be any file of
/// the user's.
fn by_library(files: &Files, library: &Path) -> Option<Version> {
    let Files::Host { .. } = files else { return None };
    let own = std::env::current_exe().ok()?;
    let printed = files.output(&[own.as_os_str(), COMMAND.as_ref(), library.as_os_str()])?;
    Version::in_text(&String::from_utf8_lossy(&printed))
}

/// The program `ucx_info` in `bin` of the directory that UCX is installed in, if it loads this library.
fn ucx_info(files: &Files, loader: &Path, library: &Path) -> Option<Box<OsStr>> {
    let mut places = library.ancestors().skip(1).map(|directory| directory.join("bin/ucx_info"));
    let info = places.find(|file| files.locate(file.as_os_str()).is_some())?;
    let is_its_own = files.libraries(loader, &info)?.iter().any(|it| it == library);
    is_its_own.then(|| info.into_os_string().into_boxed_os_str())
}

/// Loads a library of MPI or of UCX into this process, and returns the text of its `MPI_Get_library_version`
/// or `ucp_get_version_string`. Both may be called before anything is initialized (MPI 4.1, 11.2.1).
///
/// # Errors
/// It can't be loaded, or is neither.
pub fn library_version(file: &Path) -> Result<String> {
    type OfMpi = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    type OfUcx = unsafe extern "C" fn() -> *const c_char;
    let name = CString::new(file.as_os_str().as_bytes())
        .map_err(|_| error!("{} has a zero byte in its name", file.display()))?;
    // SAFETY: the name is a C string. The library does as much when it is loaded as in each rank.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
    if handle.is_null() {
        return Err(error!("{} can't be loaded", file.display()));
    }
    // SAFETY: the handle is open, and the name a C string.
    let symbol = |name: &CStr| Some(unsafe { libc::dlsym(handle, name.as_ptr()) }).filter(|it| !it.is_null());
    if let Some(function) = symbol(c"MPI_Get_library_version") {
        let mut text = [0u8; MOST_TEXT];
        let mut length = 0;
        // SAFETY: MPI's function of this type, and a buffer of the size that it demands.
        unsafe { transmute::<*mut c_void, OfMpi>(function)(text.as_mut_ptr().cast(), &mut length) };
        let length = usize::try_from(length).unwrap_or(0).min(MOST_TEXT);
        return Ok(String::from_utf8_lossy(&text[..length]).into_owned());
    }
    let function = symbol(c"ucp_get_version_string")
        .ok_or_else(|| error!("{} is no library of MPI or UCX", file.display()))?;
    // SAFETY: UCX's function of this type.
    let text = unsafe { transmute::<*mut c_void, OfUcx>(function)() };
    if text.is_null() {
        return Err(error!("{} does not say its version", file.display()));
    }
    // SAFETY: it is a C string that lives as long as the library, which stays loaded.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_say_no_version() {
        let why = library_version("/no/such".as_ref()).unwrap_err().to_string();
        assert_eq!(why, "/no/such can't be loaded");
        let why = library_version("libc.so.6".as_ref()).unwrap_err().to_string();
        assert_eq!(why, "libc.so.6 is no library of MPI or UCX");
    }
}
