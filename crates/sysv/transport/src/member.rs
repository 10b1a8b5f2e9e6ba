//! The identity of this kernel as a member of a pool.
//!
//! Two kernels that took each other for one would take each other's processes for dead, as each has liveness
//! locks of its own. So a kernel has an identity that neither its programs nor a copy of the machine can
//! choose, and that is tied to the file that the liveness locks are on:
//!
//! * A kernel that has the pool as a file is the *host*: a file's memory belongs to one kernel. All its
//!   containers are one member, whatever boot id they are shown.
//! * A driver draws an identity when it takes the pool's device: anew in each boot, and in each copy of a
//!   machine.
//! * Without a driver there is `resource2`. The first process that joins by it draws an identity, and the
//!   kernel keeps it as the time of the file's last change, for as long as the device is there. Which file
//!   that is counts, too, since a device may be seen through several mounts of sysfs, each of which has locks
//!   of its own.
//!
//! The boot id is none of this: a bind mount may show any to some programs of a machine, and copies of a
//! machine have the same.

use crate::descriptor::{Descriptor, Owned};
use crate::error::JoinError;
use crate::sys::{self, Errno};
use vshmem_pool::tuning::{MARKING_LOOKS, MARKING_NAP_NS};
use vshmem_pool::Pool;

/// The host's identity.
const HOST: [u8; 16] = *b"vshmem: the host";
/// The byte of a pool's file that a process locks to mark it, or to make its kernel's entry. No pool is this
/// long, and no liveness lock is here.
const MARKING: i64 = 1 << 61;
/// A marked file was changed in this second or later, in 2106; its low 32 bits, and the nanoseconds, were
/// drawn at random.
const MARK: i64 = 1 << 32;
/// The identity of this kernel among others.
pub(crate) enum Kernel {
    /// The identity.
    Known([u8; 16]),
    /// The device's file tells it.
    ByFile,
}

impl Kernel {
    /// The kernel that has pools as files.
    pub const HOST: Kernel = Kernel::Known(HOST);

    /// Finds its entry among the members of the pool that has this descriptor, or makes one: one process at a
    /// time, since two could take two entries, and each its own, as if they were of two kernels. A process
    /// that can't have the lock, or not in time, makes one without it.
    pub fn join(self, descriptor: &Descriptor, pool: &Pool) -> Result<u16, JoinError> {
        let identity = match self {
            Kernel::Known(identity) => identity,
            Kernel::ByFile => identity_by_file(descriptor)?,
        };
        if let Some(found) = pool.find_member(identity) {
            return Ok(found);
        }
        let file = descriptor.open_anew();
        let _alone = file.as_ref().and_then(|file| Alone::wait(file).ok());
        enter(pool, identity)
    }

    /// The kernel's entry, if it has one.
    pub fn find(self, descriptor: &Descriptor, pool: &Pool) -> Option<u16> {
        let identity = match self {
            Kernel::Known(identity) => identity,
            Kernel::ByFile => marked(&sys::fstat(descriptor.get()?.fd()).ok()?)?,
        };
        pool.find_member(identity)
    }
}

fn enter(pool: &Pool, identity: [u8; 16]) -> Result<u16, JoinError> {
    let name = sys::host_name();
    let len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    pool.join(identity, &name[..len]).map_err(|vshmem_pool::JoinError::Full| JoinError::Full)
}

/// The identity that a device's file is marked with. A file without a mark gets one, from one process at a
/// time.
fn identity_by_file(descriptor: &Descriptor) -> Result<[u8; 16], JoinError> {
    // A description of our own: the kept one may be a child's, too.
    let file = descriptor.open_anew().ok_or(JoinError::Descriptors)?;
    // Before waiting for another process, which may keep the lock.
    if let Some(identity) = marked(&sys::fstat(file.fd())?) {
        return Ok(identity);
    }
    let _alone = Alone::wait(&file)?;
    if let Some(identity) = marked(&sys::fstat(file.fd())?) {
        return Ok(identity);
    }
    // A copy of a machine may draw the same for a while, but at another time.
    let drawn = sys::random() ^ sys::time(libc::CLOCK_REALTIME).as_nanos() as u64;
    let changed = MARK | drawn as u32 as i64;
    sys::set_change(file.fd(), changed, (drawn >> 32) as i64 % 1_000_000_000)?;
    marked(&sys::fstat(file.fd())?).ok_or(JoinError::Unmarked)
}

/// The identity of the kernel that has a pool by a file with this status, if the file is marked.
fn marked(stat: &libc::stat) -> Option<[u8; 16]> {
    (stat.st_mtime & !0xffff_ffff == MARK).then(|| {
        let changed = (stat.st_mtime as u64 & 0xffff_ffff) << 32 | stat.st_mtime_nsec as u64;
        // Numbers of mounts are small, and those of files may differ in any bit.
        let file = stat.st_ino ^ stat.st_dev.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (u128::from(file) << 64 | u128::from(changed)).to_le_bytes()
    })
}

/// No other process of this kernel marks the file, or makes an entry, now. The lock ends with this, whatever
/// children have inherited its file.
struct Alone<'f>(&'f Owned);

impl Alone<'_> {
    fn wait(file: &Owned) -> Result<Alone<'_>, JoinError> {
        for _ in 0..MARKING_LOOKS {
            match set(file, libc::F_WRLCK) {
                Ok(()) => return Ok(Alone(file)),
                Err(Errno(libc::EAGAIN | libc::EACCES)) => sys::nap(MARKING_NAP_NS),
                Err(other) => return Err(other.into()),
            }
        }
        Err(JoinError::Busy)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let _ = set(self.0, libc::F_UNLCK);
    }
}

fn set(file: &Owned, kind: i32) -> Result<(), Errno> {
    let mut request = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: MARKING,
        l_len: 1,
        l_pid: 0,
    };
    sys::lock(file.fd(), libc::F_OFD_SETLK, &mut request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Identity;
    use crate::local::create_local;
    use crate::pool_ref::{Path, PoolRef};
    use crate::Handle;
    use std::format;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::thread;
    use std::vec::Vec;
    use vshmem_pool::Params;

    /// A pool, by its file.
    struct Place {
        reference: PoolRef,
        handle: Handle,
        pool: Pool,
    }

    impl Place {
        fn new(test: &str) -> Place {
            let path = format!("/dev/shm/vshmem-member-{}-{test}", std::process::id());
            let reference = PoolRef::at(path.as_bytes()).expect("a path");
            let format = &mut |mem| Pool::format(mem, &Params::default()).is_ok();
            create_local(reference.path(), 1 << 20, 0o600, format).expect("a new pool");
            let handle = crate::open(&reference).expect("just made");
            let pool = Pool::open(handle.mem()).expect("just formatted");
            Place { reference, handle, pool }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = sys::unlink(libc::AT_FDCWD, self.reference.path());
        }
    }

    /// A file that stands for that of a device in a machine's sysfs.
    fn device() -> Descriptor {
        let fd = Owned::new(sys::memory_file(c"device").expect("a memory file"));
        let identity = Identity::of(&sys::fstat(fd.fd()).expect("its status"));
        Descriptor::keep(&fd, identity, &Path::new())
    }

    #[test]
    fn who_has_the_file_is_one_member_whatever_its_boot_id() {
        let place = Place::new("host");
        assert_eq!(place.handle.find_member(&place.pool), None);
        let member = place.handle.join(&place.pool);
        assert_eq!(member, Ok(0));
        let other = crate::open(&place.reference).expect("a second mapping");
        assert_eq!(other.join(&place.pool), member);
        assert_eq!(other.find_member(&place.pool), Some(0));
        assert_eq!(place.pool.find_member(HOST), Some(0));
    }

    #[test]
    fn those_who_join_at_once_are_one_member() {
        for round in 0..100 {
            let place = Place::new(&format!("at-once-{round}"));
            let ready = AtomicU32::new(0);
            let join = || {
                let handle = crate::open(&place.reference).expect("another mapping");
                ready.fetch_add(1, SeqCst);
                while ready.load(SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                handle.join(&place.pool)
            };
            let all: Vec<_> = thread::scope(|scope| {
                let all: Vec<_> = (0..2).map(|_| scope.spawn(join)).collect();
                all.into_iter().map(|t| t.join().expect("no panic")).collect()
            });
            assert_eq!(all, [Ok(0); 2], "round {round}");
            assert!(place.pool.is_alone(0), "round {round}: an entry too many");
        }
    }

    #[test]
    fn each_device_is_marked_once() {
        let machines = [device(), device(), device()];
        let identity = |machine| identity_by_file(machine).expect("an identity");
        let all: Vec<_> = machines.iter().map(identity).collect();
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        let again: Vec<_> = machines.iter().map(identity).collect();
        assert_eq!(again, all);
    }

    #[test]
    fn what_is_drawn_counts_and_which_file_it_is() {
        let machine = device();
        let file = machine.get().expect("kept");
        let stat = || sys::fstat(file.fd()).expect("its status");
        assert_eq!(marked(&stat()), None, "a time like any other");
        identity_by_file(&machine).expect("an identity");
        let changes: [fn(&mut libc::stat); 5] = [
            |_| (),
            |stat| stat.st_mtime ^= 1 << 31,
            |stat| stat.st_mtime_nsec ^= 1,
            |stat| stat.st_ino += 1,
            |stat| stat.st_dev += 1,
        ];
        let all = changes.map(|change| {
            let mut stat = stat();
            change(&mut stat);
            marked(&stat).expect("it is marked")
        });
        for (i, id) in all.iter().enumerate() {
            assert!(!all[..i].contains(id), "{i}");
        }
    }

    #[test]
    fn those_who_come_at_once_find_one_mark() {
        for _ in 0..20 {
            let machine = device();
            let all: Vec<_> = thread::scope(|scope| {
                let mark = || identity_by_file(&machine);
                let all: Vec<_> = (0..4).map(|_| scope.spawn(mark)).collect();
                all.into_iter().map(|t| t.join().expect("no panic")).collect()
            });
            assert!(all[0].is_ok() && all.iter().all(|id| *id == all[0]));
        }
    }

    #[test]
    fn who_does_not_go_on_is_not_waited_for_for_ever() {
        let machine = device();
        let file = machine.open_anew().expect("another description");
        let alone = Alone::wait(&file).expect("nobody else");
        assert_eq!(identity_by_file(&machine), Err(JoinError::Busy));
        drop(alone);
        assert!(identity_by_file(&machine).is_ok());
    }
}
