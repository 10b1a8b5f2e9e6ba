//! The pool that the process shares with its peers. It is looked for once: with answers of two kinds UCX
//! would take a peer for local here and for remote there.

use crate::library::{Library, ProcessLives};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// The pool that this process's private segments lie in.
#[derive(Clone, Copy)]
pub struct Pool {
    /// The id that UCX takes for that of its system.
    pub system_id: u64,
    /// This kernel's number in the pool.
    member: u32,
    process_lives: ProcessLives,
}

/// A [`Pool::system_id`], or [`UNKNOWN`], or [`NONE`].
static SYSTEM_ID: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = 0;
const NONE: u64 = 1;

/// The pool's other fields, which are written before its id.
static MEMBER: AtomicU32 = AtomicU32::new(0);
static PROCESS_LIVES: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

impl Pool {
    /// The pool of this process; `None` if it has none, or one that has no UUID.
    pub fn of_process() -> Option<Pool> {
        match SYSTEM_ID.load(Acquire) {
            UNKNOWN => find(),
            NONE => None,
            system_id => Some(Pool {
                system_id,
                member: MEMBER.load(Relaxed),
                // SAFETY: the pointer was written before the id, and is such a function.
                process_lives: unsafe { transmute::<*mut c_void, ProcessLives>(PROCESS_LIVES.load(Relaxed)) },
            }),
        }
    }

    /// True if a process of the pool with that pid lives.
    pub fn has_process(&self, pid: c_int) -> bool {
        // SAFETY: takes any number.
        unsafe { (self.process_lives)(pid) == 1 }
    }

    /// A number for name spaces of this kernel, given those that the kernel has for them: the same for all of
    /// its processes in the same name spaces, and for no process of another kernel.
    pub fn namespace(&self, inodes: [u64; 2]) -> u64 {
        inodes.into_iter().fold(mix(self.member.into()), |number, inode| mix(number ^ inode))
    }
}

#[cold]
fn find() -> Option<Pool> {
    let errno = errno();
    let found = Library::find().filter(Library::takes_private).and_then(|library| {
        let system_id = system_id_of(library.uuid()?);
        Some(Pool { system_id, member: library.member()?, process_lives: library.process_lives })
    });
    set_errno(errno);
    if let Some(pool) = found {
        // Another thread that is here writes the same values.
        MEMBER.store(pool.member, Relaxed);
        PROCESS_LIVES.store(pool.process_lives as *mut c_void, Relaxed);
    }
    let answer = found.map_or(NONE, |pool| pool.system_id);
    match SYSTEM_ID.compare_exchange(UNKNOWN, answer, AcqRel, Acquire) {
        Ok(_) => found,
        // Another thread had its answer first, and UCX has it.
        Err(_) => Pool::of_process(),
    }
}

/// A number that tells a pool from others, and from what UCX makes of a boot id.
fn system_id_of(uuid: u128) -> u64 {
    // UCX keeps a flag of its own in the highest bit.
    (mix(mix(uuid as u64) ^ (uuid >> 64) as u64) >> 1).max(NONE + 1)
}

/// A number in which each bit depends on each of the other's: one for one (the last step of splitmix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn errno() -> c_int {
    // SAFETY: libc's location of errno is valid in every thread.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn pools_are_told_apart_by_each_bit_of_their_uuids() {
        let uuid = 0x0001_0203_0405_4607_8809_0a0b_0c0d_0e0f_u128;
        let others = (0..128).map(|bit| system_id_of(uuid ^ 1 << bit));
        let all: BTreeSet<u64> = others.chain([system_id_of(uuid)]).collect();
        assert_eq!(all.len(), 129);
        assert!(all.iter().all(|id| id >> 63 == 0 && *id > NONE));
        // The halves are not exchanged, nor is it what UCX would make of such a boot id.
        let halves = [uuid as u64, (uuid >> 64) as u64];
        assert!(!all.contains(&system_id_of(uuid.rotate_left(64))));
        assert!(!all.contains(&(halves[0] ^ halves[1])));
    }

    #[test]
    fn name_spaces_are_those_of_one_kernel() {
        unsafe extern "C" fn nobody(_: c_int) -> c_int {
            0
        }
        let first = 0xf000_0000_u64 - 8;
        let (mut all, mut halves) = (BTreeSet::new(), BTreeSet::new());
        for member in 0..64 {
            let pool = Pool { system_id: 5, member, process_lives: nobody };
            for inode in first..first + 16 {
                assert!(all.insert(pool.namespace([inode, first])));
                // UCX may keep the lower half.
                assert!(halves.insert(pool.namespace([inode, first]) as u32));
                assert!(inode == first || all.insert(pool.namespace([first, inode])));
            }
        }
        assert_eq!(all.len(), 64 * 31);
    }

    #[test]
    fn without_libvshmem_there_is_no_pool() {
        assert!(Pool::of_process().is_none() && Pool::of_process().is_none());
        assert_eq!(SYSTEM_ID.load(Relaxed), NONE);
    }
}
