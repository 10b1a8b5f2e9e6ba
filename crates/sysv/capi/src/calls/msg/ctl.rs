//! `msgget` and `msgctl`.

use crate::calls::abi::{self, Msginfo, Plain};
use crate::calls::reasons::{self, Asked};
use crate::calls::{again, check_ctl, clamp, cmd, fetch, store};
use crate::pools::caller::Caller;
use libc::msqid_ds;
use vshmem_ipc::{msg, Errno};

/// Command: `IPC_STAT` by index.
pub const MSG_STAT: i32 = 11;
/// Command: the usage of all queues together.
pub const MSG_INFO: i32 = 12;
/// Command: `MSG_STAT` without the question for read permission.
pub const MSG_STAT_ANY: i32 = 13;

/// `msgget` on a pool.
pub fn get(caller: &Caller, key: i32, flags: i32) -> Result<i32, Errno> {
    again(|| msg::get(&caller.ctx, key, flags))
        .map_err(|error| reasons::of_get(caller, key, &Asked::Queue, error))
}

/// The structure of C.
pub fn ds(s: &msg::MsgDs) -> msqid_ds {
    let mut ds = msqid_ds::blank();
    ds.msg_perm = abi::perm(&s.perm);
    ds.msg_stime = s.stime;
    ds.msg_rtime = s.rtime;
    ds.msg_ctime = s.ctime;
    ds.__msg_cbytes = s.cbytes;
    ds.msg_qnum = s.qnum;
    ds.msg_qbytes = s.qbytes;
    ds.msg_lspid = s.lspid;
    ds.msg_lrpid = s.lrpid;
    ds
}

/// `msgctl` on a pool; `buf` points to what the command needs.
pub fn ctl(caller: &Caller, id: i32, command: i32, buf: usize) -> Result<i32, Errno> {
    check_ctl(id, command)?;
    let c = &caller.ctx;
    match command {
        cmd::RMID => msg::remove(c, id).map(|()| 0),
        cmd::SET => {
            let new = fetch(buf as *const msqid_ds)?;
            let (uid, gid) = abi::owner(&new.msg_perm);
            msg::set(c, id, uid, gid, new.msg_perm.mode.into(), new.msg_qbytes).map(|()| 0)
        }
        cmd::STAT => store(buf as *mut msqid_ds, ds(&msg::stat(c, id)?)).map(|()| 0),
        MSG_STAT | MSG_STAT_ANY => {
            let (id, found) = msg::stat_index(c, id, command == MSG_STAT_ANY)?;
            store(buf as *mut msqid_ds, ds(&found)).map(|()| id)
        }
        cmd::INFO => store(buf as *mut Msginfo, limits(caller)).map(|()| msg::highest(c).max(0)),
        MSG_INFO => {
            let (highest, used) = msg::info(c);
            let msgpool = clamp(used.queues);
            let msgmap = clamp(used.messages);
            let msgtql = clamp(used.bytes);
            let info = Msginfo { msgpool, msgmap, msgtql, ..limits(caller) };
            store(buf as *mut Msginfo, info).map(|()| highest)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The pool's limits, and where Linux has constants without a meaning, the same constants.
pub fn limits(caller: &Caller) -> Msginfo {
    const KIB_OF_ALL_QUEUES: i32 = 32000 * 16384 / 1024;
    const QUEUE_BYTES: i32 = 16384;
    const SEGMENT_BYTES: i32 = 16;
    let l = caller.pool().limits();
    Msginfo {
        msgpool: KIB_OF_ALL_QUEUES,
        msgmap: QUEUE_BYTES,
        msgmax: clamp(l.msgmax.into()),
        msgmnb: clamp(l.msgmnb.into()),
        msgmni: clamp(l.msgmni.into()),
        msgssz: SEGMENT_BYTES,
        msgtql: QUEUE_BYTES,
        msgseg: u16::MAX,
        pad: 0,
    }
}
