//! Look-up of a pool by its name: from the name to the mapping. A local pool that doesn't exist yet is made.

use crate::process::config::{config, PoolName};
use crate::process::raw::{self, syscall};
use crate::thread::last_error::explain;
use core::ffi::CStr;
use core::fmt::Display;
use vshmem_ipc::Errno;
use vshmem_pool::{Limits, Mem, Params, Pool, DEFAULT_POOL};
use vshmem_transport::{CreateError, Handle, OpenError, Origin, PoolRef, Text};

/// Bytes of the smallest pool that is made without being asked for a size, however small the file system is.
const LEAST: u64 = 64 << 20;
/// Permissions of a pool that is made at first use: the user's own.
const OWN: u32 = 0o600;
/// Times that a pool may vanish between being made and being opened.
const ATTEMPTS: u32 = 16;

fn refused(name: &PoolName, error: impl Display, errno: i32) -> Errno {
    explain(format_args!("pool {name}: {error}"));
    Errno(errno)
}

/// Opens the pool of that name or path, and makes it if it is a local one that doesn't exist.
pub fn open(name: &PoolName) -> Result<(Handle, Pool), Errno> {
    let reference = resolve(name)?;
    for _ in 0..ATTEMPTS {
        match vshmem_transport::open(&reference) {
            Ok(handle) => return check(name, handle),
            Err(OpenError::NotFound) if reference.is_local() => {
                match make(&reference, config().pool_size.unwrap_or(0), OWN) {
                    Ok(()) | Err(CreateError::Exists) => {}
                    Err(error) => return Err(refused(name, error, error.errno())),
                }
            }
            Err(error) => return Err(refused(name, error, error.errno())),
        }
    }
    Err(refused(name, "it vanishes as soon as it is made; see what removes it", libc::EIO))
}

/// Opens the pool of that name or path, which must exist.
pub fn open_existing(name: &PoolName) -> Result<(Handle, Pool), Errno> {
    let reference = resolve(name)?;
    match vshmem_transport::open(&reference) {
        Ok(handle) => check(name, handle),
        Err(error) => Err(refused(name, error, error.errno())),
    }
}

/// Makes a local pool.
pub fn create(name: &PoolName, size: u64, mode: u32) -> Result<(), Errno> {
    let reference =
        vshmem_transport::resolve_new(name.bytes()).map_err(|error| refused(name, error, error.errno()))?;
    make(&reference, size, mode).map_err(|error| refused(name, error, error.errno()))
}

fn resolve(name: &PoolName) -> Result<PoolRef, Errno> {
    vshmem_transport::resolve(name.bytes()).map_err(|error| refused(name, error, error.errno()))
}

fn check(name: &PoolName, handle: Handle) -> Result<(Handle, Pool), Errno> {
    match Pool::open(handle.mem()) {
        Ok(pool) => Ok((handle, pool)),
        Err(error) => {
            // SAFETY: nobody else knows of the mapping.
            unsafe { handle.close() };
            Err(refused(name, error, libc::EINVAL))
        }
    }
}

/// Makes a pool of this size, or with 0 of [`default_size`]: a smaller one where files may not be as large.
fn make(reference: &PoolRef, size: u64, mode: u32) -> Result<(), CreateError> {
    if size != 0 {
        return make_of(reference, size, mode);
    }
    match make_of(reference, default_size(reference, u64::MAX), mode) {
        Err(CreateError::FileLimit) => make_of(reference, default_size(reference, largest_file()), mode),
        outcome => outcome,
    }
}

fn make_of(reference: &PoolRef, size: u64, mode: u32) -> Result<(), CreateError> {
    let params = Params {
        limits: kernel_limits(),
        align: vshmem_transport::page_size_for(reference)?,
        uuid: vshmem_transport::random_uuid(),
    };
    vshmem_transport::create_resolved(reference, size, mode, &mut |mem: Mem| {
        Pool::format(mem, &params).is_ok()
    })
}

/// [`DEFAULT_POOL`], or the largest power of two that is no more than half of the file system that the pool
/// will be on, and than `most`. The file is sparse, so this promises nothing.
fn default_size(reference: &PoolRef, most: u64) -> u64 {
    let mut folder = Text::<{ vshmem_transport::PATH_MAX }>::new();
    let path = reference.path().to_bytes();
    let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    let _ = folder.push(match reference.origin() {
        // The user's own directory may have to be made yet.
        Origin::Name => vshmem_transport::local::DIRECTORY.to_bytes(),
        _ if end == 0 => b"/",
        _ => &path[..end],
    });
    // SAFETY: all zeros is a valid statfs; the kernel fills it.
    let (blocks, block) = unsafe {
        let mut stat: libc::statfs = core::mem::zeroed();
        match syscall!(libc::SYS_statfs, folder.c_str().as_ptr(), &raw mut stat) {
            0 => (stat.f_blocks, stat.f_bsize as u64),
            _ => (0, 0),
        }
    };
    let half = (blocks.saturating_mul(block) / 2).min(most);
    1 << half.clamp(LEAST, DEFAULT_POOL).ilog2()
}

/// The process's limit on the size of files.
pub fn largest_file() -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel fills in two words, the soft and the hard limit.
    unsafe { syscall!(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, 0usize, limit.as_mut_ptr()) };
    limit[0]
}

/// The running kernel's System V limits, so that a pool behaves as its kernel does.
fn kernel_limits() -> Limits {
    let mut limits = Limits::default();
    let small = |path: &CStr, old: &mut u32| {
        if let Some([value]) = numbers(path) {
            *old = value.min(i32::MAX as u64) as u32;
        }
    };
    let large = |path: &CStr, old: &mut u64| {
        if let Some([value]) = numbers(path) {
            *old = value;
        }
    };
    large(c"/proc/sys/kernel/shmmax", &mut limits.shmmax);
    large(c"/proc/sys/kernel/shmall", &mut limits.shmall);
    small(c"/proc/sys/kernel/shmmni", &mut limits.shmmni);
    small(c"/proc/sys/kernel/msgmax", &mut limits.msgmax);
    small(c"/proc/sys/kernel/msgmnb", &mut limits.msgmnb);
    small(c"/proc/sys/kernel/msgmni", &mut limits.msgmni);
    if let Some([semmsl, semmns, semopm, semmni]) = numbers(c"/proc/sys/kernel/sem") {
        let small = |value: u64| value.min(i32::MAX as u64) as u32;
        limits.semmsl = small(semmsl);
        limits.semmns = small(semmns);
        limits.semopm = small(semopm);
        limits.semmni = small(semmni);
    }
    limits
}

/// The numbers in a file of /proc/sys, if there are exactly as many.
fn numbers<const N: usize>(path: &CStr) -> Option<[u64; N]> {
    let mut buffer = [0; 128];
    let text = core::str::from_utf8(raw::read_file(path, &mut buffer)?).ok()?;
    let mut found = [0; N];
    let mut parts = text.split_ascii_whitespace();
    for place in &mut found {
        *place = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_kernels() {
        let limits = kernel_limits();
        let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
        assert_eq!(read("msgmax").trim(), limits.msgmax.to_string());
        assert_eq!(read("shmmni").trim(), limits.shmmni.to_string());
        let sem = read("sem");
        let sem: Vec<&str> = sem.split_whitespace().collect();
        assert_eq!(sem[2], limits.semopm.to_string());
    }

    #[test]
    fn the_default_fits_the_file_system_and_is_a_power_of_two() {
        let at = |path: &[u8]| default_size(&PoolRef::at(path).unwrap(), u64::MAX);
        assert!((LEAST..=DEFAULT_POOL).contains(&at(b"/dev/shm/x")));
        assert!(at(b"/dev/shm/x").is_power_of_two());
        assert_eq!(at(b"/nowhere/at/all"), LEAST);
        assert_eq!(default_size(&PoolRef::at(b"/dev/shm/x").unwrap(), 1), LEAST);
        let named = default_size(&PoolRef::named(b"default").unwrap(), u64::MAX);
        assert_eq!(named, at(b"/dev/shm/x"));
    }
}
