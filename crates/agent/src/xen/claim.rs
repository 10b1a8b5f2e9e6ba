//! How a process comes to serve a pool of this domain's: one that it makes, or one that a process before it has left. Two never serve
//! the same pool: who does holds a lock of its device file, which goes with the process.

use super::care::Care;
use super::device::Device;
use super::owner::{Fits, Own};
use crate::error::{Error, Explain, Result};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use vshmem_pool::{Params, Pool};

/// How often a pool is tried again that vanishes while it is taken over, and how long is waited in between.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The right to serve a pool, for as long as it lives.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

/// What comes of trying to have it.
#[derive(Debug)]
pub enum Taken {
    /// This process has it now.
    Ours(Claim),
    /// Another one has it.
    Served,
    /// There is no such pool.
    NoPool,
}

impl Claim {
    /// Takes it, unless another process has it.
    pub fn of(pool: &str) -> Result<Taken> {
        let path = Path::new("/dev/vshmem-xen").join(pool);
        let file = match File::open(&path) {
            Ok(file) => file,
            // The latter: its file is there for a moment longer than it is.
            Err(e) if is_gone(&e) => return Ok(Taken::NoPool),
            Err(e) => return Err(e).explain(|| format!("could not open {}", path.display())),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Taken::Served),
            Err(e) => return Err(e).explain(|| format!("could not lock {}", path.display())),
        }
        // Who had it before may have removed it, and somebody else made one.
        let ours = file.metadata().map(|meta| meta.ino()).ok();
        let there = fs::metadata(&path).map(|meta| meta.ino()).ok();
        let is_it = there.is_some() && ours == there && File::open(&path).is_ok();
        Ok(match is_it {
            true => Taken::Ours(Claim { _locked: file }),
            false => Taken::NoPool,
        })
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [libc::ENOENT, libc::ENODEV, libc::ENXIO];
    error.raw_os_error().is_some_and(|it| gone.contains(&it))
}

/// Makes a pool, or takes over the one that is there, and takes a process's part in it.
pub fn take(how: &Own, fits: Fits, device: &Device, own_id: u16) -> Result<(Claim, Care)> {
    let pool = &how.pool;
    for _ in 0..TRIES {
        let new = device.create(pool, how.size)?;
        let claim = match Claim::of(pool)? {
            Taken::Ours(claim) => claim,
            Taken::Served => {
                return Err(Error::new(format!(
                    "the pool {pool} is served by another process: choose another name, or end that one"
                )))
            }
            Taken::NoPool => {
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let opened = open(how, fits);
        if opened.is_err() && new {
            device.remove(pool, own_id)?;
        }
        return Ok((claim, opened?));
    }
    Err(Error::new(format!(
        "the pool {pool} comes and goes: something else makes and removes it"
    )))
}

/// Opens the pool. Makes an empty one of the memory, unless it holds one: a process before this one has made it.
fn open(how: &Own, fits: Fits) -> Result<Care> {
    let name = &how.pool;
    let reference = vshmem_port::resolve(name.as_bytes()).explain_pool(name)?;
    let handle = vshmem_port::open(&reference).explain_pool(name)?;
    let memory = handle.mem();
    let there = memory.len() as u64;
    if there != how.size {
        // SAFETY: nobody else knows of the mapping.
        unsafe { handle.close() };
        return Err(Error::new(format!(
            "there is a pool {name} of {there} bytes already, which a process has left that was killed: \
             give that size, or remove it by `vshmem xen withdraw {name}`"
        )));
    }
    if Pool::open(memory).is_err() {
        let limits = how.limits;
        Pool::format(memory, &Params { limits }).explain_pool(name)?;
        let made = Pool::open(memory).explain_pool(name)?;
        fits(*made.limits()).explain_pool(name)?;
    }
    Care::of(handle, name)
}

/// Errors of other rooms, with the pool's name.
trait ExplainPool<T> {
    fn explain_pool(self, pool: &str) -> Result<T>;
}

impl<T, E: std::fmt::Display> ExplainPool<T> for std::result::Result<T, E> {
    fn explain_pool(self, pool: &str) -> Result<T> {
        self.map_err(|e| Error::new(format!("the pool {pool}: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_told_from_what_fails() {
        for gone in [libc::ENOENT, libc::ENODEV] {
            assert!(is_gone(&io::Error::from_raw_os_error(gone)));
        }
        assert!(!is_gone(&io::Error::from_raw_os_error(libc::EACCES)));
        let none = Claim::of("there-is-no-such-pool");
        assert!(matches!(none, Ok(Taken::NoPool)), "{none:?}");
    }
}
