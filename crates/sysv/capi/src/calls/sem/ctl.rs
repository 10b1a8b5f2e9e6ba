//! `semget` and `semctl`.

use crate::calls::abi::{self, Plain};
use crate::calls::reasons::{self, Asked};
use crate::calls::{again, check_ctl, clamp, cmd, fetch, is_new, store};
use crate::pools::caller::Caller;
use crate::pools::sizes::{self, SETS};
use crate::thread::addresses;
use core::cell::Cell;
use libc::{semid_ds, seminfo};
use vshmem_ipc::{sem, Errno};

const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
/// Command: `IPC_STAT` by index.
pub const SEM_STAT: i32 = 18;
/// Command: the usage of all sets together.
pub const SEM_INFO: i32 = 19;
/// Command: `SEM_STAT` without the question for read permission.
pub const SEM_STAT_ANY: i32 = 20;

/// `semget` on a pool.
pub fn get(caller: &Caller, key: i32, count: i32, flags: i32) -> Result<i32, Errno> {
    let id = match again(|| sem::get(&caller.ctx, key, count, flags)) {
        Ok(id) => id,
        Err(error) => {
            let asked = Asked::Set(count.try_into().unwrap_or(0));
            return Err(reasons::of_get(caller, key, &asked, error));
        }
    };
    let found = if is_new(key, flags) { Ok(count as usize) } else { sem::nsems(&caller.ctx, id) };
    // What is gone again had no size: whatever was known of the id before counts no more.
    let found = found.unwrap_or(0);
    SETS.got(caller.pool_index(), id, count as u64, found as u64);
    Ok(id)
}

/// The structure of C.
pub fn ds(s: &sem::SemDs) -> semid_ds {
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

/// The number of semaphores that the program has room for; none if it does not know how many there are.
struct Bounds {
    known: Option<u64>,
    exceeded: Cell<bool>,
}

impl Bounds {
    /// The bounds of a set; EIDRM if it is not as large as it was.
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
pub fn limits(caller: &Caller) -> seminfo {
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
