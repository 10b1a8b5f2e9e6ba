//! The control file of the driver vshmem_xen.ko, `/dev/vshmem-xen-control`; `kmod/xen/vshmem_xen_ioctl.h`
//! specifies the calls.

use rustix::fs::{flock, FlockOperation};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use vshmem_base::error::{error, Explain, Result};
use vshmem_transport::NAME_MAX;

/// Most pages of references that a pool can have.
pub const MAX_LISTS: usize = 64;

/// A name with zeros behind it, up to the next multiple of 4.
type Name = [u8; NAME_MAX + 4];

/// `struct vshmem_xen_create`.
#[repr(C)]
struct Create {
    name: Name,
    own_id: u32,
    size: u64,
}

/// `struct vshmem_xen_grant`.
#[repr(C)]
struct Grant {
    name: Name,
    domain: u32,
    port: u32,
    count: u32,
    refs: [u32; MAX_LISTS],
}

/// `struct vshmem_xen_attach`.
#[repr(C)]
struct Attach {
    name: Name,
    own_id: u32,
    owner: u32,
    port: u32,
    size: u64,
    count: u32,
    refs: [u32; MAX_LISTS],
}

/// `struct vshmem_xen_name`.
#[repr(C)]
struct Named {
    name: Name,
    domain: u32,
}

/// A request's number, as `_IOW` (1) and `_IOWR` (3) make it.
const fn request<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | 0xd8 << 8 | number
}

const CREATE: u32 = request::<Create>(1, 0);
const GRANT: u32 = request::<Grant>(3, 1);
const ATTACH: u32 = request::<Attach>(1, 2);
const REVOKE: u32 = request::<Named>(1, 3);
const REMOVE: u32 = request::<Named>(1, 4);
const GRANTED: u32 = request::<Named>(3, 5);
const CLAIM: u32 = request::<Named>(1, 6);

/// The domain that GRANTED returns if there is no further one.
const NO_DOMAIN: u32 = 0x7ff0;

/// The information by which another domain maps a pool that is granted to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantInfo {
    /// Bytes of the pool.
    pub size: u64,
    /// The event channel.
    pub port: u32,
    /// Grant references of the pages that hold the references of the pool's pages.
    pub refs: Vec<u32>,
}

/// The outcome of claiming a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// This process serves it, as long as the control file is open.
    Acquired,
    /// Another process serves it.
    Busy,
    /// There is no such pool.
    NoPool,
}

/// The driver's control file.
#[derive(Debug)]
pub struct Device {
    file: File,
    own_id: u16,
}

impl Device {
    /// Opens the control file, for the domain with this id.
    pub fn open(own_id: u16) -> Result<Device> {
        let path = "/dev/vshmem-xen-control";
        let mut options = File::options();
        let file =
            options.read(true).write(true).open(path).explain(|| {
                format!("{path} could not be opened: load the driver vshmem_xen.ko, and be root")
            })?;
        Ok(Device { file, own_id })
    }

    /// Creates a pool of this domain's own memory. False: there is one of that name already.
    pub fn create(&self, pool: &str, size: u64) -> Result<bool> {
        let mut request = Create { name: name(pool)?, own_id: self.own_id.into(), size };
        match self.call(CREATE, &mut request) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            done => done.map(|()| true).explain(|| format!("the pool {pool} could not be made")),
        }
    }

    /// Grants a pool to another domain.
    pub fn grant(&self, pool: &str, size: u64, domain: u16) -> Result<GrantInfo> {
        let mut request =
            Grant { name: name(pool)?, domain: domain.into(), port: 0, count: 0, refs: [0; MAX_LISTS] };
        match self.call(GRANT, &mut request) {
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => Err(error!(
                "the pool {pool} can't be granted to domain {domain}, as this domain's grant table is full: make the pool \
                 smaller, or raise gnttab_max_frames on Xen's command line"
            )),
            done => {
                done.explain(|| format!("the pool {pool} can't be granted to domain {domain}"))?;
                let refs = request.refs.iter().take(request.count as usize);
                Ok(GrantInfo {
                    size,
                    port: request.port,
                    refs: refs.copied().collect(),
                })
            }
        }
    }

    /// Claims a pool of this domain: only this process serves it from now on.
    ///
    /// # Errors
    /// The pool is another domain's.
    pub fn claim(&self, pool: &str) -> Result<Claim> {
        let mut request = Named { name: name(pool)?, domain: 0 };
        let Err(error) = self.call(CLAIM, &mut request) else {
            return Ok(Claim::Acquired);
        };
        match error.raw_os_error() {
            Some(libc::EBUSY) => Ok(Claim::Busy),
            Some(libc::ENOENT) => Ok(Claim::NoPool),
            Some(libc::EPERM) => {
                Err(error!("the pool {pool} is another domain's, which alone can serve or withdraw it"))
            }
            _ => Err(error).explain(|| format!("the pool {pool} can't be served")),
        }
    }

    /// The domains that this domain's pool is granted to.
    pub fn granted(&self, pool: &str) -> Result<Vec<u16>> {
        let mut all = Vec::new();
        let mut request = Named { name: name(pool)?, domain: 0 };
        loop {
            self.call(GRANTED, &mut request)
                .explain(|| format!("the domains that have the pool {pool} can't be listed"))?;
            match u16::try_from(request.domain) {
                Ok(id) if request.domain < NO_DOMAIN => all.push(id),
                _ => return Ok(all),
            }
            request.domain += 1;
        }
    }

    /// Runs a function under a lock that all processes of this domain take which serve pools.
    pub fn locked<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let lock = |operation| flock(&self.file, operation).explain(|| "waiting for other processes".into());
        lock(FlockOperation::LockExclusive)?;
        let done = run();
        lock(FlockOperation::Unlock)?;
        done
    }

    /// Revokes a grant; there may be none.
    pub fn revoke(&self, pool: &str, domain: u16) -> Result<()> {
        self.call_by_name(REVOKE, pool, domain)
            .explain(|| format!("the pool {pool} can't be taken back from domain {domain}"))
    }

    /// Attaches another domain's pool. False: it is attached already.
    pub fn attach(&self, pool: &str, owner: u16, info: &GrantInfo) -> Result<bool> {
        let mut request = Attach {
            name: name(pool)?,
            own_id: self.own_id.into(),
            owner: owner.into(),
            port: info.port,
            size: info.size,
            count: info.refs.len() as u32,
            refs: [0; MAX_LISTS],
        };
        for (entry, reference) in request.refs.iter_mut().zip(&info.refs) {
            *entry = *reference;
        }
        let done = match self.call(ATTACH, &mut request) {
            Ok(()) => return Ok(true),
            Err(e) => e,
        };
        let why = match done.raw_os_error() {
            Some(libc::EEXIST) => return Ok(false),
            Some(libc::EBUSY) => "another domain's pool, or one of this domain, has that name here".into(),
            Some(libc::EACCES) => format!("domain {owner} has not granted it to this domain"),
            Some(libc::EOPNOTSUPP) => {
                "this is a PV domain, where processes can't share a mapping of another domain's \
                memory: set type=\"pvh\" or \"hvm\" in its configuration"
                    .into()
            }
            _ => done.to_string(),
        };
        Err(error!("the pool {pool} can't be attached: {why}"))
    }

    /// Removes a pool of this owner from this domain. There may be none, and another owner's of that name
    /// stays.
    pub fn remove(&self, pool: &str, owner: u16) -> Result<()> {
        match self.call_by_name(REMOVE, pool, owner) {
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => Ok(()),
            done => done.explain(|| format!("the pool {pool} can't be removed")),
        }
    }

    fn call_by_name(&self, number: u32, pool: &str, domain: u16) -> io::Result<()> {
        let mut request = Named { name: name(pool).map_err(io::Error::other)?, domain: domain.into() };
        match self.call(number, &mut request) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    fn call<T>(&self, number: u32, request: &mut T) -> io::Result<()> {
        let request: *mut T = request;
        // SAFETY: each number goes with its own structure, which is all that the driver reads and writes.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), number.into(), request) };
        match done {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// A name as the driver expects it.
fn name(pool: &str) -> Result<Name> {
    let mut name: Name = [0; NAME_MAX + 4];
    match name.get_mut(..pool.len()) {
        Some(bytes) if (1..=NAME_MAX).contains(&pool.len()) => bytes.copy_from_slice(pool.as_bytes()),
        _ => {
            return Err(error!(
                "{pool:?} is no name for a pool: use 1 to {NAME_MAX} letters, digits, dashes and underscores"
            ))
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a C compiler computes them from `kmod/xen/vshmem_xen_ioctl.h`.
    #[test]
    fn requests_have_the_headers_numbers() {
        assert_eq!(
            [CREATE, GRANT, ATTACH, REVOKE, REMOVE, GRANTED, CLAIM],
            [0x4050_d800, 0xc150_d801, 0x4160_d802, 0x4048_d803, 0x4048_d804, 0xc048_d805, 0x4048_d806]
        );
    }

    #[test]
    fn names_keep_room_for_their_end() {
        assert_eq!(name("work").expect("good")[..5], *b"work\0");
        assert!(name(&"a".repeat(NAME_MAX)).is_ok());
        assert!(name(&"a".repeat(NAME_MAX + 1)).is_err());
        assert!(name("").is_err());
    }
}
