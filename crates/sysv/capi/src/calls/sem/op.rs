//! `semop` and `semtimedop`.

use crate::calls::{duration, shortcut};
use crate::pools::caller::{adjuster, caller, known, Caller, SHARED};
use crate::pools::lend;
use crate::process::{page, raw, shortcuts};
use crate::thread::{addresses, permit};
use core::mem::MaybeUninit;
use core::time::Duration;
use libc::timespec;
use vshmem_ipc::sem::shortcut::{self as remembered, Performed, Shortcut};
use vshmem_ipc::sem::{self, Sembuf};
use vshmem_ipc::Errno;

/// Operations of a call that are copied to the stack before they are looked at, at the most, so that no other
/// thread changes them meanwhile. Few: the stack may be a signal handler's.
const COPIED: usize = 128;

/// A function for each `semop` that no shortcut can do.
pub type Semop = unsafe extern "C" fn(i32, *mut Sembuf, usize) -> i32;

/// `semop` by a shortcut, or else by `slow`.
///
/// # Safety
/// As [`op`], and as `slow` demands.
#[inline(always)]
pub unsafe fn op_or(id: i32, sops: *mut Sembuf, count: usize, slow: Semop) -> i32 {
    if count != 1 {
        // SAFETY: as the caller vouches.
        return unsafe { slow(id, sops, count) };
    }
    // SAFETY: as the caller vouches.
    match unsafe { try_shortcut(id, sops) } {
        Some(performed) => record_time(performed),
        // SAFETY: as the caller vouches.
        None => unsafe { semop_remembered(id, sops, slow) },
    }
}

/// One operation on a set that is remembered, which has to wait for a moment or is to be undone, or else by
/// `slow`. A function of its own, so that `semop` itself has nothing to save and restore.
///
/// # Safety
/// As [`op_or`].
#[inline(never)]
unsafe extern "C" fn semop_remembered(id: i32, sops: *mut Sembuf, slow: Semop) -> i32 {
    // SAFETY: as the caller vouches.
    if unsafe { try_remembered(id, sops) } {
        return 0;
    }
    // SAFETY: as the caller vouches.
    unsafe { slow(id, sops, 1) }
}

/// One operation by a shortcut, see [`Shortcut`]. `None`: not done.
///
/// # Safety
/// As [`op`].
#[inline(always)]
unsafe fn try_shortcut(id: i32, sops: *const Sembuf) -> Option<Performed> {
    if !addresses::readable_on_page(sops, size_of::<Sembuf>()) {
        return None;
    }
    // The program may change the operation at any time, so each part is read once: the others late, since
    // until then they would have to be kept.
    // SAFETY: found readable.
    let flg = unsafe { (&raw const (*sops).flg).read_unaligned() };
    if flg & sem::SEM_UNDO != 0 {
        return None;
    }
    let sets = &page::of_shortcuts().sets;
    let (words, are_of_one) = shortcuts::place(sets, id).look(shortcut::key(id))?;
    // SAFETY: found readable; words of shortcuts to sets in pools to which the process is known, so they are
    // mapped.
    unsafe {
        let num = (&raw const (*sops).num).read_unaligned();
        let op = || (&raw const (*sops).op).read_unaligned();
        remembered::op(words, are_of_one, id, num, op)
    }
}

/// Records the time of an operation that a shortcut has led to. A function of its own, which is jumped to, so
/// that nothing has to be saved and restored for its sake; for that the compiler must not know what it
/// returns.
#[inline(never)]
extern "C" fn record_time(performed: Performed) -> i32 {
    let now = raw::seconds();
    performed.at(now);
    permit::at(now);
    raw::opaque(0) as i32
}

/// One operation on a set that is remembered. True: done. It can't panic.
///
/// # Safety
/// As [`op`].
#[inline(always)]
unsafe fn try_remembered(id: i32, sops: *const Sembuf) -> bool {
    if !addresses::readable_on_page(sops, size_of::<Sembuf>()) {
        return false;
    }
    // SAFETY: found readable. Copied, since the program may change it at any time.
    let sop = unsafe { sops.read_unaligned() };
    let performed = if sop.is_plain() {
        // SAFETY: as the caller vouches.
        awaits_value(id, sop).then(|| unsafe { try_shortcut(id, sops) }).flatten()
    } else {
        try_undone(id, sop)
    };
    performed.is_some_and(|performed| record_time(performed) == 0)
}

/// Is the value of a semaphore of a set that is remembered enough, or will it be in a moment?
fn awaits_value(id: i32, sop: Sembuf) -> bool {
    let may_wait = sop.op < 0 && !sop.nowait();
    shortcut::find(|page| &page.sets, id).is_some_and(|words| {
        // SAFETY: as in `try_shortcut`; they are of one.
        let set = unsafe { Shortcut::of_words(words) };
        set.awaits_value(sop, |rounds| may_wait && shortcut::looks_again(rounds))
    })
}

/// One P or V with `SEM_UNDO` on a set that is remembered.
fn try_undone(id: i32, sop: Sembuf) -> Option<Performed> {
    let ctx = known().filter(|_| sop.op != 0)?;
    let words = shortcut::find(|page| &page.sets, id)?;
    // SAFETY: as in `try_shortcut`.
    unsafe { Shortcut::of_words(words) }.op_undone(&ctx, id, sop)
}

/// Remembers a set: the next operation on it takes a shortcut.
#[cold]
#[inline(never)]
fn remember(id: i32) {
    shortcut::remember(
        |page| &page.sets,
        id,
        |ctx, _| Shortcut::to(ctx, id).map(|(shortcut, granted)| (shortcut.words(), granted)),
    );
}

/// `semop` on the pool that calls go to.
///
/// # Safety
/// The operations stay mapped during the call; an address that never was good is EFAULT.
#[inline(always)]
pub unsafe fn op(id: i32, sops: *const Sembuf, count: usize) -> Result<i32, Errno> {
    match adjuster() {
        Ok(caller) => timed(&caller, id, sops, count, None),
        // SAFETY: as the caller vouches.
        Err(SHARED) => unsafe { op_by_list(id, sops, count, core::ptr::null()) },
        Err(error) => Err(error),
    }
}

#[inline(always)]
fn timed(
    caller: &Caller,
    id: i32,
    sops: *const Sembuf,
    count: usize,
    timeout: Option<Duration>,
) -> Result<i32, Errno> {
    if count == 1 {
        addresses::readable(sops, size_of::<Sembuf>())?;
        let mut copy = MaybeUninit::<Sembuf>::uninit();
        // SAFETY: found readable. Copied, since the program may change it at any time; and copied in one go,
        // since a processor is slow to load at once what was just stored in parts.
        let one = unsafe {
            core::ptr::copy_nonoverlapping(sops.cast::<u8>(), copy.as_mut_ptr().cast(), size_of::<Sembuf>());
            copy.assume_init_ref()
        };
        let done = sem::op(&caller.ctx, id, core::slice::from_ref(one), timeout);
        if done.is_ok() && one.op != 0 {
            remember(id);
        }
        return done.map(|()| 0).map_err(|error| caller.excuse(error));
    }
    several(caller, id, sops, count, timeout)
}

#[inline(never)]
fn several(
    caller: &Caller,
    id: i32,
    sops: *const Sembuf,
    count: usize,
    timeout: Option<Duration>,
) -> Result<i32, Errno> {
    let count = count as u32 as usize; // what the kernel makes of a size_t here
    if count < 1 {
        return Err(Errno::EINVAL);
    }
    if count > caller.pool().limits().semopm as usize {
        return Err(Errno::E2BIG);
    }
    addresses::readable(sops, count * size_of::<Sembuf>())?;
    let mut copy = [const { MaybeUninit::<Sembuf>::uninit() }; COPIED];
    let sops = if count <= COPIED {
        // SAFETY: found readable; the copy has room for COPIED.
        unsafe {
            core::ptr::copy_nonoverlapping(
                sops.cast::<u8>(),
                copy.as_mut_ptr().cast(),
                count * size_of::<Sembuf>(),
            )
        };
        copy.as_ptr().cast()
    } else {
        sops
    };
    // SAFETY: `count` initialised operations, in the copy or in memory that was found readable.
    let sops = unsafe { core::slice::from_raw_parts(sops, count) };
    let done = sem::op(&caller.ctx, id, sops, timeout);
    done.map(|()| 0).map_err(|error| caller.excuse(error))
}

/// `semtimedop` on the pool that calls go to.
///
/// # Safety
/// As [`op`], for `timeout` as well.
pub unsafe fn timed_op(
    id: i32,
    sops: *const Sembuf,
    count: usize,
    timeout: *const timespec,
) -> Result<i32, Errno> {
    match adjuster() {
        // SAFETY: as the caller vouches.
        Ok(caller) => timed(&caller, id, sops, count, unsafe { span(&caller, sops, count, timeout) }?),
        // SAFETY: as the caller vouches.
        Err(SHARED) => unsafe { op_by_list(id, sops, count, timeout) },
        Err(error) => Err(error),
    }
}

/// `semop` or, with a time, `semtimedop` by a process whose `SEM_UNDO` adjustments are of a list that it
/// shares.
///
/// # Safety
/// As [`timed_op`].
#[cold]
#[inline(never)]
unsafe fn op_by_list(
    id: i32,
    sops: *const Sembuf,
    count: usize,
    timeout: *const timespec,
) -> Result<i32, Errno> {
    let caller = caller()?;
    // SAFETY: as the caller vouches.
    let done = several(&caller, id, sops, count, unsafe { span(&caller, sops, count, timeout) }?);
    lend::hand_over(&caller, id);
    done
}

/// The time that `semtimedop` has.
///
/// # Safety
/// As [`timed_op`].
unsafe fn span(
    caller: &Caller,
    sops: *const Sembuf,
    count: usize,
    timeout: *const timespec,
) -> Result<Option<Duration>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    addresses::readable(timeout, size_of::<timespec>())?;
    // SAFETY: found readable.
    let t = unsafe { timeout.read_unaligned() };
    // As the kernel does, the number of operations is judged first.
    if count as u32 == 0 {
        return Err(Errno::EINVAL);
    }
    if count as u32 > caller.pool().limits().semopm {
        return Err(Errno::E2BIG);
    }
    addresses::readable(sops, count as u32 as usize * size_of::<Sembuf>())?;
    duration(t).map(Some)
}
