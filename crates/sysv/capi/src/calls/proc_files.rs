//! The files of `/proc` in which Linux tells its IPC objects and their limits, as they are of a pool:
//! proc(5), and for the formats ipc/shm.c, ipc/sem.c, ipc/msg.c and ipc/ipc_sysctl.c of Linux.

use crate::calls::{again, msg, sem, shm};
use crate::pools::caller::Caller;
use core::fmt::{Result, Write};
use libc::ipc_perm;
use vshmem_ipc::{msg as queues, sem as sets, shm as segments, Errno};

/// The beginning of the names of all of them.
pub const COMMON: &[u8] = b"/proc/sys";

/// A file that has a pool's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// `/proc/sysvipc/shm`: the segments.
    Segments,
    /// `/proc/sysvipc/sem`: the sets of semaphores.
    Sets,
    /// `/proc/sysvipc/msg`: the queues.
    Queues,
    /// `/proc/sys/kernel/...`: a limit.
    Limit(Limit),
}

/// A limit that `/proc/sys/kernel` has a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of a segment.
    Shmmax,
    /// Pages of all segments.
    Shmall,
    /// Segments.
    Shmmni,
    /// Four limits of semaphores.
    Sem,
    /// Bytes of a message.
    Msgmax,
    /// Bytes of a queue.
    Msgmnb,
    /// Queues.
    Msgmni,
}

impl File {
    /// The file of this path.
    pub fn named(path: &[u8]) -> Option<File> {
        Some(match path.strip_prefix(COMMON)? {
            b"vipc/shm" => File::Segments,
            b"vipc/sem" => File::Sets,
            b"vipc/msg" => File::Queues,
            b"/kernel/shmmax" => File::Limit(Limit::Shmmax),
            b"/kernel/shmall" => File::Limit(Limit::Shmall),
            b"/kernel/shmmni" => File::Limit(Limit::Shmmni),
            b"/kernel/sem" => File::Limit(Limit::Sem),
            b"/kernel/msgmax" => File::Limit(Limit::Msgmax),
            b"/kernel/msgmnb" => File::Limit(Limit::Msgmnb),
            b"/kernel/msgmni" => File::Limit(Limit::Msgmni),
            _ => return None,
        })
    }

    /// Writes the first line, where there are others.
    pub fn write_head(self, out: &mut impl Write) -> Result {
        out.write_str(match self {
            File::Segments => {
                "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
                 atime      dtime      ctime                   rss                  swap\n"
            }
            File::Sets => {
                "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"
            }
            File::Queues => {
                "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      \
                 stime      rtime      ctime\n"
            }
            File::Limit(_) => "",
        })
    }

    /// Writes what it says of the pool. It fails, too, if the caller's budget is spent.
    pub fn write_body(self, caller: &Caller, out: &mut impl Write) -> Result {
        let c = &caller.ctx;
        match self {
            File::Segments => each(caller, segments::highest(c), |index| segment(caller, index, out)),
            File::Sets => each(caller, sets::highest(c), |index| set(caller, index, out)),
            File::Queues => each(caller, queues::highest(c), |index| queue(caller, index, out)),
            File::Limit(limit) => limit.write(caller, out),
        }
    }
}

/// A row for each index, each of which may cost as much as a call does.
fn each(caller: &Caller, highest: i32, mut row: impl FnMut(i32) -> Result) -> Result {
    for index in 0..=highest {
        caller.ctx.budget.refill();
        row(index)?;
        if caller.ctx.budget.is_spent() {
            return Err(core::fmt::Error);
        }
    }
    Ok(())
}

/// What a look-up found; nothing where no object has the index, or no more.
fn at<T>(look: impl Fn() -> core::result::Result<T, Errno>) -> Option<T> {
    again(look).ok()
}

fn segment(caller: &Caller, index: i32, out: &mut impl Write) -> Result {
    let Some((id, found)) = at(|| segments::stat_index(&caller.ctx, index, true)) else { return Ok(()) };
    let ds = shm::ds(&found);
    identity(&ds.shm_perm, id, out)?;
    write!(out, " {:>21} {:>5} {:>5}  {:>5}", ds.shm_segsz, ds.shm_cpid, ds.shm_lpid, ds.shm_nattch)?;
    users(&ds.shm_perm, out)?;
    write!(out, " {:>10} {:>10} {:>10}", ds.shm_atime, ds.shm_dtime, ds.shm_ctime)?;
    let taken = found.size.checked_next_multiple_of(caller.pool().segment_align()).unwrap_or(found.size);
    writeln!(out, " {taken:>21} {:>21}", 0)
}

fn set(caller: &Caller, index: i32, out: &mut impl Write) -> Result {
    let Some((id, found)) = at(|| sets::stat_index(&caller.ctx, index, true)) else { return Ok(()) };
    let ds = sem::ds(&found);
    identity(&ds.sem_perm, id, out)?;
    write!(out, " {:>10}", ds.sem_nsems)?;
    users(&ds.sem_perm, out)?;
    writeln!(out, " {:>10} {:>10}", ds.sem_otime, ds.sem_ctime)
}

fn queue(caller: &Caller, index: i32, out: &mut impl Write) -> Result {
    let Some((id, found)) = at(|| queues::stat_index(&caller.ctx, index, true)) else { return Ok(()) };
    let ds = msg::ds(&found);
    identity(&ds.msg_perm, id, out)?;
    write!(out, "  {:>10} {:>10} {:>5} {:>5}", ds.__msg_cbytes, ds.msg_qnum, ds.msg_lspid, ds.msg_lrpid)?;
    users(&ds.msg_perm, out)?;
    writeln!(out, " {:>10} {:>10} {:>10}", ds.msg_stime, ds.msg_rtime, ds.msg_ctime)
}

fn identity(perm: &ipc_perm, id: i32, out: &mut impl Write) -> Result {
    write!(out, "{:>10} {id:>10}  {:>4o}", perm.__key, perm.mode)
}

fn users(perm: &ipc_perm, out: &mut impl Write) -> Result {
    write!(out, " {:>5} {:>5} {:>5} {:>5}", perm.uid, perm.gid, perm.cuid, perm.cgid)
}

impl Limit {
    fn write(self, caller: &Caller, out: &mut impl Write) -> Result {
        match self {
            Limit::Shmmax => writeln!(out, "{}", shm::limits(caller).shmmax),
            Limit::Shmall => writeln!(out, "{}", shm::limits(caller).shmall),
            Limit::Shmmni => writeln!(out, "{}", shm::limits(caller).shmmni),
            Limit::Sem => {
                let of = sem::limits(caller);
                writeln!(out, "{}\t{}\t{}\t{}", of.semmsl, of.semmns, of.semopm, of.semmni)
            }
            Limit::Msgmax => writeln!(out, "{}", msg::limits(caller).msgmax),
            Limit::Msgmnb => writeln!(out, "{}", msg::limits(caller).msgmnb),
            Limit::Msgmni => writeln!(out, "{}", msg::limits(caller).msgmni),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole() {
        assert_eq!(File::named(b"/proc/sysvipc/shm"), Some(File::Segments));
        assert_eq!(File::named(b"/proc/sys/kernel/sem"), Some(File::Limit(Limit::Sem)));
        for other in [&b"/proc/sysvipc/shm2"[..], b"/proc/sysvipc", b"/proc/sys", b"", b"shm"] {
            assert_eq!(File::named(other), None);
        }
    }
}
