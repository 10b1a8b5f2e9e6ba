//! `semget`, `semop`, `semtimedop`, `semctl`.

use super::shortcut;
use super::{again, check_ctl, clamp, cmd, duration, fetch, is_new, store};
use crate::calls::abi::{self, Plain};
use crate::pools::sizes::{self, SETS};
use crate::pools::state::{self, Caller};
use crate::process::{page, raw, shortcuts};
use crate::thread::{addresses, permit};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::time::Duration;
use libc::{semid_ds, seminfo, timespec};
use vshmem_ipc::sem::shortcut::{op_guessed, Performed, Shortcut};
use vshmem_ipc::sem::{self, Sembuf};
use vshmem_ipc::Errno;
use vshmem_pool::Ctx;

const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
/// Like `IPC_STAT`, by index.
pub const SEM_STAT: i32 = 18;
/// Usage of all sets together.
pub const SEM_INFO: i32 = 19;
/// Like `SEM_STAT`, without asking for read permission.
pub const SEM_STAT_ANY: i32 = 20;

/// Operations that are copied to the stack before they are looked at, so that no other thread changes them
/// meanwhile. Few: the stack may be a signal handler's.
const COPIED: usize = 128;

/// `semget` on a pool.
pub fn get(caller: &Caller, key: i32, count: i32, flags: i32) -> Result<i32, Errno> {
    let id = again(|| sem::get(&caller.ctx, key, count, flags))?;
    let found = if is_new(key, flags) { Ok(count as usize) } else { sem::nsems(&caller.ctx, id) };
    // What is gone again had no size: whatever was known of the id before counts no more.
    let found = found.unwrap_or(0);
    SETS.got(caller.pool_index(), id, count as u64, found as u64);
    Ok(id)
}

/// A `semop` of one's own kind.
pub type Semop = unsafe extern "C" fn(i32, *mut Sembuf, usize) -> i32;

/// `semop` where nothing stands in the way, or else by `slow`.
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

/// One operation on a set that is remembered, where a guess has failed or there is something to undo, or else
/// by `slow`. A function of its own, so that `semop` itself has nothing to save and restore.
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

/// `semop` with one operation that nothing stands in the way of, on a set that is remembered: see
/// [`Shortcut`]. `None` says nothing.
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
    let page = page::of_shortcuts();
    let (words, are_of_one) = shortcuts::place(&page.sets, id).look(shortcut::key(id))?;
    // SAFETY: found readable; words of shortcuts to sets in pools to which the process is known, so they are
    // mapped.
    unsafe {
        let num = (&raw const (*sops).num).read_unaligned();
        let op = || (&raw const (*sops).op).read_unaligned();
        op_guessed(words, are_of_one, id, num, op, &page.guesses)
    }
}

/// Finishes what a shortcut has led to. A function of its own, which is jumped to, so that nothing has to be
/// saved and restored for its sake; for that the compiler must not know what it returns.
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
    if sop.is_plain() {
        return try_loaded(id, sop);
    }
    sop.op != 0 && state::known().is_some_and(|ctx| try_undone(&ctx, id, sop))
}

/// The same on a set that is remembered, where a guess has failed.
#[inline(always)]
fn try_loaded(id: i32, sop: Sembuf) -> bool {
    let Some(words) = shortcut::find(|page| &page.sets, id) else {
        return false;
    };
    // SAFETY: as in `try_shortcut`; they are of one.
    let set = unsafe { Shortcut::of_words(words) };
    let may_wait = sop.op < 0 && !sop.nowait();
    let may = |rounds| may_wait && shortcut::looks_again(rounds);
    let performed = set.op(id, sop, &page::of_shortcuts().guesses, may);
    performed.is_some_and(|performed| record_time(performed) == 0)
}

/// The same with `SEM_UNDO`, on a set that is remembered.
fn try_undone(ctx: &Ctx, id: i32, sop: Sembuf) -> bool {
    let Some(words) = shortcut::find(|page| &page.sets, id) else {
        return false;
    };
    // SAFETY: as in `try_shortcut`.
    let performed = unsafe { Shortcut::of_words(words) }.op_undone(ctx, id, sop);
    performed.is_some_and(|performed| record_time(performed) == 0)
}

/// The next operation on the set takes a shortcut.
#[cold]
#[inline(never)]
fn remember(id: i32) {
    shortcut::remember(
        |page| &page.sets,
        id,
        |ctx, _| Shortcut::to(ctx, id).map(|(shortcut, granted)| (shortcut.words(), granted)),
    );
}

/// `semop` on a pool.
///
/// # Safety
/// The operations stay mapped during the call; an address that never was good is EFAULT.
#[inline(always)]
pub unsafe fn op(caller: &Caller, id: i32, sops: *const Sembuf, count: usize) -> Result<i32, Errno> {
    timed(caller, id, sops, count, None)
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

/// `semtimedop` on a pool.
///
/// # Safety
/// As [`op`], and the same for `timeout`.
pub unsafe fn timed_op(
    caller: &Caller,
    id: i32,
    sops: *const Sembuf,
    count: usize,
    timeout: *const timespec,
) -> Result<i32, Errno> {
    if timeout.is_null() {
        return timed(caller, id, sops, count, None);
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
    timed(caller, id, sops, count, Some(duration(t)?))
}

fn ds(s: &sem::SemDs) -> semid_ds {
    let mut ds = semid_ds::blank();
    ds.sem_perm = abi::perm(&s.perm);
    ds.sem_otime = s.otime;
    ds.sem_ctime = s.ctime;
    ds.sem_nsems = s.nsems;
    ds
}

/// `semctl` on a pool; `arg` is the union as it lies in its register.
pub fn ctl(caller: &Caller, id: i32, num: i32, command: i32, arg: usize) -> Result<i32, Errno> {
    check_ctl(id, command)?;
    let c = &caller.ctx;
    match command {
        GETVAL => sem::getval(c, id, num),
        GETPID => sem::getpid(c, id, num),
        GETNCNT => sem::getncnt(c, id, num),
        GETZCNT => sem::getzcnt(c, id, num),
        SETVAL => sem::setval(c, id, num, arg as i32).map(|()| 0),
        GETALL => get_all(caller, id, arg as *mut u16),
        SETALL => set_all(caller, id, arg as *const u16),
        cmd::RMID => {
            sem::remove(c, id)?;
            SETS.forget(caller.pool_index(), id);
            Ok(0)
        }
        cmd::SET => {
            let new = fetch(arg as *const semid_ds)?.sem_perm;
            let (uid, gid) = abi::owner(&new);
            sem::set(c, id, uid, gid, new.mode.into()).map(|()| 0)
        }
        cmd::STAT => {
            let found = sem::stat(c, id)?;
            SETS.stated(caller.pool_index(), id, found.nsems)?;
            store(arg as *mut semid_ds, ds(&found))?;
            Ok(0)
        }
        SEM_STAT | SEM_STAT_ANY => {
            let (id, found) = sem::stat_index(c, id, command == SEM_STAT_ANY)?;
            SETS.listed(caller.pool_index(), id, found.nsems)?;
            store(arg as *mut semid_ds, ds(&found))?;
            Ok(id)
        }
        cmd::INFO => store(arg as *mut seminfo, limits(caller)).map(|()| sem::highest(c).max(0)),
        SEM_INFO => {
            let (highest, used) = sem::info(c);
            let semusz = clamp(used.sets);
            let semaem = clamp(used.semaphores);
            let info = seminfo { semusz, semaem, ..limits(caller) };
            store(arg as *mut seminfo, info).map(|()| highest)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Copies value by value; each page is asked about once. Never beyond the size that the program knows.
fn get_all(caller: &Caller, id: i32, to: *mut u16) -> Result<i32, Errno> {
    let mut checked = UNCHECKED;
    let bounds = Bounds::of(caller, id)?;
    sem::getall(&caller.ctx, id, &mut |index, value| {
        let place = to.wrapping_add(index);
        if bounds.excludes(index)
            || page_of(place) != checked && addresses::surely_writable(place, 2).is_err()
        {
            return false;
        }
        checked = page_of(place);
        // SAFETY: the page was found writable; a value that isn't aligned to 2 may reach into the next one,
        // which then is asked about with the next value.
        unsafe { place.write_unaligned(value) };
        true
    })
    .map_or_else(|error| Err(bounds.judge(error)), |()| Ok(0))
}

fn set_all(caller: &Caller, id: i32, from: *const u16) -> Result<i32, Errno> {
    let mut checked = UNCHECKED;
    let bounds = Bounds::of(caller, id)?;
    sem::setall(&caller.ctx, id, &mut |index| {
        let place = from.wrapping_add(index);
        if bounds.excludes(index) {
            return None;
        }
        if page_of(place) != checked {
            addresses::surely_readable(place, 2).ok()?;
        }
        checked = page_of(place);
        // SAFETY: the page was found readable.
        Some(unsafe { place.read_unaligned() })
    })
    .map_or_else(|error| Err(bounds.judge(error)), |()| Ok(0))
}

/// How many semaphores the program has room for; none if it does not know how many there are.
struct Bounds {
    known: Option<u64>,
    exceeded: Cell<bool>,
}

impl Bounds {
    /// Of a set; EIDRM if it is not as large as it was.
    fn of(caller: &Caller, id: i32) -> Result<Bounds, Errno> {
        if let Ok(count) = sem::nsems(&caller.ctx, id) {
            SETS.check(caller.pool_index(), id, count as u64)?;
        }
        Ok(Bounds { known: SETS.known(caller.pool_index(), id), exceeded: Cell::new(false) })
    }

    fn excludes(&self, index: usize) -> bool {
        let excluded = self.known.is_none_or(|known| index as u64 >= known);
        if excluded {
            self.exceeded.set(true);
        }
        excluded
    }

    /// The error that the program gets: a set that has grown is not the one that it knew.
    fn judge(&self, error: Errno) -> Errno {
        match (self.exceeded.get(), self.known) {
            (false, _) => error,
            (true, Some(_)) => sizes::changed(),
            (true, None) => sizes::unknown("semctl(IPC_STAT)"),
        }
    }
}

/// No page yet.
const UNCHECKED: usize = usize::MAX;

/// The page that a value's last byte lies in.
fn page_of(place: *const u16) -> usize {
    (place as usize).wrapping_add(1) / 4096
}

/// The pool's limits, and where Linux has constants without a meaning, the same constants.
fn limits(caller: &Caller) -> seminfo {
    const ALL_SEMAPHORES: i32 = 32000 * 32000;
    const OPERATIONS: i32 = 500;
    const UNDO_BYTES: i32 = 20;
    let l = caller.pool().limits();
    seminfo {
        semmap: ALL_SEMAPHORES,
        semmni: clamp(l.semmni.into()),
        semmns: clamp(l.semmns.into()),
        semmnu: ALL_SEMAPHORES,
        semmsl: clamp(l.semmsl.into()),
        semopm: clamp(l.semopm.into()),
        semume: OPERATIONS,
        semusz: UNDO_BYTES,
        semvmx: sem::SEMVMX,
        semaem: sem::SEMVMX,
    }
}
