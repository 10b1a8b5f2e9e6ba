//! Opening a pool's file: what memory it has, and mapping all of it.

use vshmem_pool::layout::PAGE;
use vshmem_pool::Mem;

use super::{Backing, Handle};
use crate::descriptor::{Descriptor, Identity, Owned};
use crate::driver::Driver;
use crate::error::OpenError;
use crate::head;
use crate::mapping;
use crate::pool_ref::Path;
use crate::reserve;
use crate::sys;

/// `f_type` of file systems, from `linux/magic.h`.
mod magic {
    pub const SYSFS: u64 = 0x6265_6572;
    pub const TMPFS: u64 = 0x0102_1994;
    /// File systems whose files other machines see without sharing their memory.
    pub const NOT_COHERENT: [u64; 9] = [
        0x0102_1997, // 9p
        0x6573_5546, // FUSE, virtiofs
        0x6969,      // NFS
        0x517b,      // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x00c3_6400, // Ceph
        0x5346_414f, // AFS
        0x0bd0_0bd0, // Lustre
    ];
}

/// The file of a pool: its memory, driver and length.
struct Offer {
    backing: Backing,
    driver: Option<Driver>,
    /// The offset in the file at which the pool begins.
    begins: u64,
    /// The pool's length.
    size: Option<u64>,
    page_size: u64,
    /// The memory is that of a file on tmpfs.
    is_tmpfs: bool,
}

impl Handle {
    /// Maps the whole of an open file and keeps its descriptor under a high number.
    pub(crate) fn set_up(file: &Owned, path: &Path) -> Result<Handle, OpenError> {
        let stat = sys::fstat(file.fd())?;
        let kind = sys::fstatfs(file.fd())?.f_type as u64;
        if magic::NOT_COHERENT.contains(&(kind & 0xffff_ffff)) {
            return Err(OpenError::NotCoherent);
        }
        let driver = match stat.st_mode & libc::S_IFMT {
            libc::S_IFCHR => Some(Driver::ask(file.fd())?),
            _ => None,
        };
        let backing = match driver.is_some() || kind == magic::SYSFS {
            true => Backing::Device,
            false => Backing::File,
        };
        let len = u64::try_from(stat.st_size).ok();
        let begins = match (backing, len) {
            (Backing::File, Some(len)) => head::length(file.fd(), len),
            _ => 0,
        };
        let offer = Offer {
            backing,
            driver,
            begins,
            size: driver.map_or(len.map(|len| len - begins), |driver| Some(driver.size)),
            page_size: mapping::page_size_of(file.fd()),
            // Devices in /dev are on one, too.
            is_tmpfs: backing == Backing::File && kind & 0xffff_ffff == magic::TMPFS,
        };
        Handle::map_whole(file, path, &stat, &offer)
    }

    /// Maps the whole of a DAX device, which has this length and is mapped in pages of that size.
    pub(crate) fn set_up_dax(
        file: &Owned,
        path: &Path,
        size: u64,
        page_size: u64,
    ) -> Result<Handle, OpenError> {
        let (backing, driver, begins) = (Backing::Dax, None, 0);
        let offer = Offer { backing, driver, begins, size: Some(size), page_size, is_tmpfs: false };
        Handle::map_whole(file, path, &sys::fstat(file.fd())?, &offer)
    }

    fn map_whole(file: &Owned, path: &Path, stat: &libc::stat, offer: &Offer) -> Result<Handle, OpenError> {
        let Offer { backing, driver, begins, size, page_size, is_tmpfs } = *offer;
        let len = checked_length(size, page_size)?;
        // What a program attaches is mapped without it: there an access to what is gone raises SIGBUS.
        let beginning = driver.map_or(begins, |driver| driver.beginning());
        let (base, mapped) = match backing {
            Backing::File => mapping::as_far_as_fits(file, beginning, len)?,
            Backing::Device | Backing::Dax => (mapping::whole(file.fd(), beginning, len)?, len),
        };
        // SAFETY: so many bytes were mapped at `base` for reading and writing, aligned to pages. They stay
        // mapped until `close`, whose caller vouches that nobody uses them.
        let mem = unsafe { Mem::new(base.cast(), mapped) }.beginning_of(len);
        let mem = match backing {
            Backing::Device | Backing::Dax => mem,
            Backing::File => match reserve::sparse(mapped) {
                Ok(sparse) => {
                    sys::memcheck::hide(base as usize, mapped);
                    // The kernel is asked about its first word.
                    sys::memcheck::show(base as usize, PAGE as usize);
                    mem.sparse(sparse)
                }
                Err(error) => {
                    // SAFETY: nobody else knows of the mapping.
                    unsafe { sys::unmap(base as usize, mapped) };
                    return Err(error.into());
                }
            },
        };
        Ok(Handle {
            mem,
            descriptor: Descriptor::keep(file, Identity::of(stat), path),
            backing,
            driver,
            begins,
            page_size,
            // SAFETY: the pool's first word is mapped.
            can_futex: unsafe { sys::futex_works(base.cast()) },
            is_tmpfs,
        })
    }
}

/// The length of a pool's file, if it can be that of a pool.
fn checked_length(size: Option<u64>, page_size: u64) -> Result<usize, OpenError> {
    let size = size.ok_or(OpenError::TooSmall)?;
    if size < vshmem_pool::MIN_POOL {
        return Err(OpenError::TooSmall);
    }
    if size % page_size != 0 {
        return Err(OpenError::Uneven);
    }
    if size >= crate::LIVENESS_BASE {
        return Err(OpenError::TooLarge);
    }
    usize::try_from(size).map_err(|_| OpenError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_pools() {
        let page = sys::page_size();
        assert_eq!(checked_length(None, page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(Some(0), page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(Some((1 << 20) - 1), page), Err(OpenError::TooSmall));
        assert_eq!(checked_length(Some(1 << 20), page), Ok(1 << 20));
        assert_eq!(checked_length(Some((1 << 20) + 1), page), Err(OpenError::Uneven));
        assert_eq!(checked_length(Some(3 << 20), 2 << 20), Err(OpenError::Uneven));
        assert_eq!(checked_length(Some(1 << 61), page), Err(OpenError::TooLarge));
    }
}
