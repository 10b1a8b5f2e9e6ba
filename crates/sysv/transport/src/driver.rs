//! A driver's device file. It maps a pool write-back, and lets threads sleep on words of it and ring other
//! kernels. `kmod/vshmem_ioctl.h` specifies the calls, for any driver.

use core::time::Duration;

use crate::descriptor::Descriptor;
use crate::error::OpenError;
use crate::sys::{self, Errno, Outcome};

/// The interface that this file knows.
const ABI: u32 = 1;
const HAS_DOORBELL: u32 = 1;
const IS_CACHED: u32 = 2;
const HAS_REMAINS: u32 = 4;
/// `VSHMEM_REMAINS`.
const REMAINS: u64 = 1 << 62;
/// Most that [`Wake`] takes.
const ALL: u32 = 0x7fff_ffff;

/// `struct vshmem_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    abi: u32,
    flags: u32,
    size: u64,
    member: i32,
    vectors: u32,
    pci: [u8; 24],
}

/// `struct vshmem_wait`.
#[repr(C)]
struct Wait {
    offset: u64,
    expected: u32,
    flags: u32,
    deadline: i64,
}

/// `struct vshmem_wake`.
#[repr(C)]
struct Wake {
    offset: u64,
    count: u32,
    flags: u32,
}

/// `struct vshmem_ring`.
#[repr(C)]
struct Ring {
    peer: u32,
    vector: u16,
    device: u16,
}

/// A request's number, as `_IOR` (2) and `_IOW` (1) make it.
const fn request<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | 0xd7 << 8 | number
}
const INFO: u32 = request::<Info>(2, 0);
const WAIT: u32 = request::<Wait>(1, 1);
const WAKE: u32 = request::<Wake>(1, 2);
const RING: u32 = request::<Ring>(1, 3);
/// Fills in `struct vshmem_identity`.
const IDENTITY: u32 = request::<[u8; 16]>(2, 4);

/// The driver, as its device file describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    /// Bytes of the pool.
    pub size: u64,
    /// Mappings are write-back.
    pub cached: bool,
    /// Mappings can outlive the device, and then show zeros.
    pub remains: bool,
    /// The number by which others ring this kernel, if the device has a doorbell.
    pub peer: Option<u16>,
    /// The identity of this kernel among all that use the pool.
    pub identity: [u8; 16],
}

/// The end of a sleep in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Woken, or the word had changed already.
    Woken,
    /// The time was up.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

impl Driver {
    /// Asks an open file whether it is one of the driver's.
    pub fn ask(fd: i32) -> Result<Driver, OpenError> {
        let (mut info, mut identity) = (Info::default(), [0; 16]);
        // SAFETY: the request fills in one `struct vshmem_info`.
        match unsafe { sys::control(fd, INFO, &mut info) } {
            Ok(_) => {}
            Err(Errno(libc::ENODEV)) => return Err(OpenError::NotFound),
            Err(_) => return Err(OpenError::NotAFile),
        }
        // SAFETY: the request fills in one `struct vshmem_identity`.
        match unsafe { sys::control(fd, IDENTITY, &mut identity) } {
            Ok(_) => Driver::of(&info, identity).ok_or(OpenError::OtherDriver),
            // An older one: this kernel might take another for itself.
            Err(_) => Err(OpenError::OtherDriver),
        }
    }

    /// The offset in the driver's file at which the pool is mapped: one whose mappings don't raise SIGBUS
    /// when the device goes away, if the driver has it; else 0.
    pub fn beginning(&self) -> u64 {
        if self.remains {
            REMAINS
        } else {
            0
        }
    }

    fn of(info: &Info, identity: [u8; 16]) -> Option<Driver> {
        (info.abi == ABI).then(|| Driver {
            size: info.size,
            cached: info.flags & IS_CACHED != 0,
            remains: info.flags & HAS_REMAINS != 0,
            peer: u16::try_from(info.member).ok().filter(|_| info.flags & HAS_DOORBELL != 0),
            identity,
        })
    }
}

/// Sleeps while the word at `offset` is `expected`. `None`: there is no sleeping here, as the program has
/// closed the descriptor and it can't be had again, or the device is gone.
pub(crate) fn sleep(
    descriptor: &Descriptor,
    offset: u64,
    expected: u32,
    timeout: Option<Duration>,
) -> Option<Slept> {
    let mut wait = Wait { offset, expected, flags: 0, deadline: timeout.map_or(-1, deadline) };
    let file = descriptor.get()?;
    // SAFETY: the request only reads its structure.
    let (outcome, handled) = unsafe { sys::control_asleep(file.fd(), WAIT, &mut wait) };
    match outcome {
        Ok(_) | Err(Errno(libc::EAGAIN)) => Some(Slept::Woken),
        Err(Errno(libc::ETIMEDOUT)) if handled => Some(Slept::Interrupted),
        Err(Errno(libc::ETIMEDOUT)) => Some(Slept::TimedOut),
        Err(Errno(libc::EINTR)) => Some(Slept::Interrupted),
        Err(_) => None,
    }
}

/// Wakes threads of this kernel that sleep on the word at `offset`; returns how many. `None`: that can't be
/// done.
pub(crate) fn wake(descriptor: &Descriptor, offset: u64, count: u32) -> Option<u32> {
    let mut wake = Wake { offset, count: count.min(ALL), flags: 0 };
    let woken = call(descriptor, WAKE, &mut wake)?.ok()?;
    Some(u32::try_from(woken).unwrap_or(u32::MAX))
}

/// Has the kernel with this number look at the words that its threads sleep on. False if that can't be done.
pub(crate) fn ring(descriptor: &Descriptor, peer: u16) -> bool {
    // Somebody is to be woken, so the descriptor is not asked first what it is: only this very device's file
    // takes the request.
    let (number, identity) = descriptor.unchecked();
    let device = u16::try_from(identity.minor() + 1).unwrap_or(0);
    let mut ring = Ring { peer: peer.into(), vector: 0, device };
    // SAFETY: the request only reads its structure, and no other file knows it.
    if device != 0 && unsafe { sys::control(number, RING, &mut ring) }.is_ok() {
        return true;
    }
    ring.device = 0;
    call(descriptor, RING, &mut ring).is_some_and(|outcome| outcome.is_ok())
}

/// A request on the descriptor, if it can be had. In the worst case another thread puts another file in its
/// place at this very moment, which refuses a request that it does not know.
fn call<T>(descriptor: &Descriptor, request: u32, argument: &mut T) -> Option<Outcome<usize>> {
    let file = descriptor.get()?;
    // SAFETY: each request is made with its own structure, which it only reads.
    Some(unsafe { sys::control(file.fd(), request, argument) })
}

/// The time of the monotonic clock after so long.
fn deadline(timeout: Duration) -> i64 {
    let end = sys::time(libc::CLOCK_MONOTONIC).saturating_add(timeout);
    i64::try_from(end.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::{Identity, Owned};
    use crate::pool_ref::Path;

    /// As a C compiler computes them from `kmod/vshmem_ioctl.h`.
    #[test]
    fn requests_have_the_headers_numbers() {
        assert_eq!(
            [INFO, WAIT, WAKE, RING, IDENTITY],
            [0x8030_d700, 0x4018_d701, 0x4010_d702, 0x4008_d703, 0x8010_d704]
        );
    }

    #[test]
    fn a_driver_of_another_interface_is_refused() {
        let info = |abi, flags, member| Info { abi, flags, member, size: 1 << 20, ..Info::default() };
        assert_eq!(Driver::of(&info(2, 3, 1), [0; 16]), None);
        let both = Driver::of(&info(ABI, HAS_DOORBELL | IS_CACHED, 7), [0; 16]).expect("this interface");
        assert_eq!((both.cached, both.peer, both.size), (true, Some(7), 1 << 20));
        let plain = Driver::of(&info(ABI, 0, -1), [0; 16]).expect("this interface");
        assert_eq!((plain.cached, plain.peer), (false, None));
        assert_eq!((plain.beginning(), both.beginning()), (0, 0), "an older driver");
        let newer = Driver::of(&info(ABI, HAS_REMAINS | IS_CACHED, -1), [0; 16]).expect("this interface");
        assert_eq!(newer.beginning(), REMAINS);
    }

    /// A file that is not the driver's refuses everything, and nothing happens to it.
    #[test]
    fn other_files_refuse() {
        let fd = Owned::new(sys::open(c"/dev/null", libc::O_RDWR, 0).expect("/dev/null"));
        assert_eq!(Driver::ask(fd.fd()), Err(OpenError::NotAFile));
        let identity = Identity::of(&sys::fstat(fd.fd()).expect("its status"));
        let descriptor = Descriptor::keep(&fd, identity, &Path::new());
        assert_eq!(sleep(&descriptor, 0, 0, Some(Duration::ZERO)), None);
        assert_eq!(wake(&descriptor, 0, 1), None);
        assert!(!ring(&descriptor, 0));
        descriptor.close();
    }
}
