//! `shmget` and `shmctl`.

use super::pages;
use crate::calls::abi::{self, Plain, ShmInfo, Shminfo};
use crate::calls::reasons::{self, Asked};
use crate::calls::{again, check_ctl, cmd, fetch, is_new, store};
use crate::pools::caller::Caller;
use crate::pools::sizes::SEGMENTS;
use crate::thread::last_error::expect_failure;
use libc::shmid_ds;
use vshmem_ipc::shm::SHM_HUGETLB;
use vshmem_ipc::{shm, Errno};

const SHM_LOCK: i32 = 11;
const SHM_UNLOCK: i32 = 12;
/// Command: `IPC_STAT` by index.
pub const SHM_STAT: i32 = 13;
/// Command: the usage of all segments together.
pub const SHM_INFO: i32 = 14;
/// Command: `SHM_STAT` without the question for read permission.
pub const SHM_STAT_ANY: i32 = 15;

/// `shmget` on a pool.
pub fn get(caller: &Caller, key: i32, size: usize, flags: i32) -> Result<i32, Errno> {
    let id = match again(|| shm::get(&caller.ctx, key, size, flags)) {
        Ok(id) => id,
        // Who can't have huge pages asks for others.
        Err(error) if flags & SHM_HUGETLB != 0 => {
            expect_failure();
            return Err(error);
        }
        Err(error) => return Err(reasons::of_get(caller, key, &Asked::Segment(size as u64), error)),
    };
    let found = if is_new(key, flags) { Some(size as u64) } else { shm::size(&caller.ctx, id) };
    // As in `semget`.
    let found = pages(found.unwrap_or(0));
    SEGMENTS.got(caller.pool_index(), id, pages(size as u64), found);
    Ok(id)
}

/// The structure of C.
pub fn ds(s: &shm::ShmDs) -> shmid_ds {
    let mut ds = shmid_ds::blank();
    ds.shm_perm = abi::perm(&s.perm);
    ds.shm_segsz = s.size as usize;
    ds.shm_atime = s.atime;
    ds.shm_dtime = s.dtime;
    ds.shm_ctime = s.ctime;
    ds.shm_cpid = s.cpid;
    ds.shm_lpid = s.lpid;
    ds.shm_nattch = s.nattch;
    ds
}

/// `shmctl` on a pool; `buf` points to what the command needs.
pub fn ctl(caller: &Caller, id: i32, command: i32, buf: usize) -> Result<i32, Errno> {
    check_ctl(id, command)?;
    let c = &caller.ctx;
    match command {
        cmd::RMID => shm::remove(c, id).map(|()| 0),
        cmd::SET => {
            let new = fetch(buf as *const shmid_ds)?.shm_perm;
            let (uid, gid) = abi::owner(&new);
            shm::set(c, id, uid, gid, new.mode.into()).map(|()| 0)
        }
        cmd::STAT => {
            let found = shm::stat(c, id)?;
            SEGMENTS.stated(caller.pool_index(), id, pages(found.size))?;
            store(buf as *mut shmid_ds, ds(&found))?;
            Ok(0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let (id, found) = shm::stat_index(c, id, command == SHM_STAT_ANY)?;
            SEGMENTS.listed(caller.pool_index(), id, pages(found.size))?;
            store(buf as *mut shmid_ds, ds(&found))?;
            Ok(id)
        }
        SHM_LOCK | SHM_UNLOCK => shm::lock(c, id, command == SHM_LOCK).map(|()| 0),
        cmd::INFO => {
            store(buf as *mut Shminfo, limits(caller))?;
            Ok(shm::highest(c).max(0))
        }
        SHM_INFO => {
            let (highest, used) = shm::info(c);
            store(buf as *mut ShmInfo, usage(&used))?;
            Ok(highest)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The pool's limits.
pub fn limits(caller: &Caller) -> Shminfo {
    let l = caller.pool().limits();
    Shminfo {
        shmmax: l.shmmax,
        shmmin: 1,
        shmmni: l.shmmni.into(),
        shmseg: l.shmmni.into(),
        shmall: l.shmall,
        ..Shminfo::blank()
    }
}

fn usage(u: &shm::ShmInfo) -> ShmInfo {
    ShmInfo { used_ids: u.used_ids as i32, tot: u.total, rss: u.taken, ..ShmInfo::blank() }
}
