//! `msgget`, `msgsnd`, `msgrcv`, `msgctl`.

use super::shortcut;
use super::{again, check_ctl, clamp, cmd, fetch, store};
use crate::calls::abi::{self, Msginfo, Plain};
use crate::pools::state::Caller;
use crate::process::raw;
use crate::thread::{addresses, permit};
use core::ffi::c_void;
use libc::msqid_ds;
use vshmem_ipc::msg::shortcut::Shortcut;
use vshmem_ipc::msg::Outgoing;
use vshmem_ipc::{msg, Errno};

/// Like `IPC_STAT`, by index.
pub const MSG_STAT: i32 = 11;
/// Usage of all queues together.
pub const MSG_INFO: i32 = 12;
/// Like `MSG_STAT`, without asking for read permission.
pub const MSG_STAT_ANY: i32 = 13;

/// A message in the program's memory: its type, then its text.
const TEXT_AT: usize = size_of::<i64>();

/// `msgget` on a pool.
pub fn get(caller: &Caller, key: i32, flags: i32) -> Result<i32, Errno> {
    again(|| msg::get(&caller.ctx, key, flags))
}

/// A `msgsnd` of one's own kind.
pub type Msgsnd = unsafe extern "C" fn(i32, *const c_void, usize, i32) -> i32;

/// `msgsnd` where nothing stands in the way, or else by `slow`.
///
/// # Safety
/// As [`send`], and as `slow` demands.
#[inline(always)]
pub unsafe fn send_or(id: i32, message: *const c_void, size: usize, flags: i32, slow: Msgsnd) -> i32 {
    // SAFETY: as the caller vouches.
    if unsafe { try_send(id, message.cast(), size) } {
        return 0;
    }
    // SAFETY: as the caller vouches.
    unsafe { slow(id, message, size, flags) }
}

/// A `msgrcv` of one's own kind.
pub type Msgrcv = unsafe extern "C" fn(i32, *mut c_void, usize, i64, i32) -> isize;

/// `msgrcv` where nothing stands in the way, or else by `slow`.
///
/// # Safety
/// As [`receive`], and as `slow` demands.
#[inline(always)]
pub unsafe fn receive_or(
    id: i32,
    message: *mut c_void,
    size: usize,
    mtype: i64,
    flags: i32,
    slow: Msgrcv,
) -> isize {
    // SAFETY: as the caller vouches.
    if let Some(length) = unsafe { try_receive(id, message.cast(), size, mtype, flags, raw::seconds()) } {
        return length;
    }
    // SAFETY: as the caller vouches.
    unsafe { msgrcv_awaited(id, message, size, mtype, flags, slow) }
}

/// `msgrcv` from a queue that is remembered, of a message that comes in a moment, or else by `slow`. A function
/// of its own, so that `msgrcv` itself has nothing to save and restore.
///
/// # Safety
/// As [`receive_or`].
#[inline(never)]
unsafe extern "C" fn msgrcv_awaited(
    id: i32,
    message: *mut c_void,
    size: usize,
    mtype: i64,
    flags: i32,
    slow: Msgrcv,
) -> isize {
    // A waiter has the time to look at the clock before.
    let now = raw::seconds();
    if flags & libc::IPC_NOWAIT == 0 && awaits_message(id) {
        // SAFETY: as the caller vouches.
        if let Some(length) = unsafe { try_receive(id, message.cast(), size, mtype, flags, now) } {
            return length;
        }
    }
    // SAFETY: as the caller vouches.
    unsafe { slow(id, message, size, mtype, flags) }
}

/// Is there a message in a queue that is remembered, or does one come in a moment?
fn awaits_message(id: i32) -> bool {
    shortcut::find(|page| &page.queues, id).is_some_and(|words| {
        // SAFETY: as in `try_receive`.
        unsafe { Shortcut::of_words(words) }.awaits_message(shortcut::looks_again)
    })
}

/// `msgsnd` where nothing stands in the way, to a queue that is remembered: see [`Shortcut`]. False says
/// nothing.
///
/// # Safety
/// As [`send`].
#[inline(always)]
unsafe fn try_send(id: i32, message: *const u8, size: usize) -> bool {
    let now = raw::seconds();
    // SAFETY: words of a shortcut to a queue in a pool to which the process is known, so it is mapped; type
    // and text are found readable.
    unsafe {
        let Some(words) = shortcut::find(|page| &page.queues, id) else {
            return false;
        };
        let queue = Shortcut::of_words(words);
        if size > queue.most() || !addresses::readable_on_page(message, TEXT_AT + size) {
            return false;
        }
        let kind = message.cast::<i64>().read_unaligned();
        let text = message.add(TEXT_AT);
        let done = queue.send(id, Outgoing { kind, text, len: size }, now);
        if done {
            permit::at(now);
        }
        done
    }
}

/// The next message takes a shortcut.
#[cold]
#[inline(never)]
fn remember(id: i32) {
    shortcut::remember(
        |page| &page.queues,
        id,
        |ctx, stays| Shortcut::to(ctx, id, stays).map(|(shortcut, granted)| (shortcut.words(), granted)),
    );
}

/// `msgsnd` on a pool.
///
/// # Safety
/// The message stays mapped during the call; an address that never was good is EFAULT.
#[inline(always)]
pub unsafe fn send(
    caller: &Caller,
    id: i32,
    message: *const u8,
    size: usize,
    flags: i32,
) -> Result<i32, Errno> {
    // A message that is too long is refused by the upper half, which does not look at its text then.
    let whole = size <= caller.pool().limits().msgmax as usize;
    addresses::readable(message, if whole { TEXT_AT + size } else { TEXT_AT }).or_else(|fault| {
        // The type is read, and both are judged, before the text.
        addresses::readable(message, TEXT_AT)?;
        // SAFETY: found readable.
        let mtype = unsafe { message.cast::<i64>().read_unaligned() };
        Err(if mtype < 1 { Errno::EINVAL } else { fault })
    })?;
    // SAFETY: the type was found readable, and so was the text unless it is refused for its length.
    unsafe {
        let mtype = message.cast::<i64>().read_unaligned();
        msg::send(&caller.ctx, id, mtype, message.add(TEXT_AT), size, flags)
            .map_err(|error| caller.excuse(error))?;
    }
    remember(id);
    Ok(0)
}

/// `msgrcv` where nothing stands in the way, from a queue that is remembered: see [`Shortcut`]. `None` says
/// nothing.
///
/// # Safety
/// As [`receive`].
#[inline(always)]
unsafe fn try_receive(
    id: i32,
    message: *mut u8,
    capacity: usize,
    mtype: i64,
    flags: i32,
    now: i64,
) -> Option<isize> {
    // SAFETY: words of a shortcut to a queue in a pool to which the process is known, so it is mapped; as
    // much as a message can have is found writable.
    unsafe {
        let queue = Shortcut::of_words(shortcut::find(|page| &page.queues, id)?);
        let longest = queue.most().min(capacity);
        let is_length = capacity <= isize::MAX as usize;
        if !is_length || !queue.stays() || !addresses::writable_on_page(message, TEXT_AT + longest) {
            return None;
        }
        let (length, got) = queue.receive(id, message.add(TEXT_AT), longest, mtype, flags, now)?;
        message.cast::<i64>().write_unaligned(got);
        permit::at(now);
        Some(length as isize)
    }
}

/// `msgrcv` on a pool.
///
/// # Safety
/// The room for the message stays mapped during the call; an address that never was good is EFAULT.
#[inline(always)]
pub unsafe fn receive(
    caller: &Caller,
    id: i32,
    message: *mut u8,
    capacity: usize,
    mtype: i64,
    flags: i32,
) -> Result<isize, Errno> {
    if (capacity as isize) < 0 {
        return Err(Errno::EINVAL);
    }
    let longest = (caller.pool().limits().msgmax as usize).min(capacity);
    if addresses::writable(message, TEXT_AT + longest).is_err() {
        return receive_indirectly(caller, id, message, capacity, mtype, flags);
    }
    // SAFETY: as much as a message can have was found writable.
    unsafe {
        let text = message.wrapping_add(TEXT_AT);
        let received = msg::receive(&caller.ctx, id, text, capacity, mtype, flags);
        // A text that was copied while the pool went is zeros.
        let (length, got) = caller.unless_revoked(received)?;
        message.cast::<i64>().write_unaligned(got);
        if !caller.may_go() {
            remember(id);
        }
        Ok(length as isize)
    }
}

/// For a buffer that is not all there. The message may be shorter than the room that the program claims to
/// have; if it isn't, it is lost, as with the kernel.
#[cold]
fn receive_indirectly(
    caller: &Caller,
    id: i32,
    message: *mut u8,
    capacity: usize,
    mtype: i64,
    flags: i32,
) -> Result<isize, Errno> {
    let len = (caller.pool().limits().msgmax as usize).min(capacity);
    // For a copy, Linux reads the room before anything else.
    if flags & (msg::MSG_COPY | msg::MSG_EXCEPT | libc::IPC_NOWAIT) == msg::MSG_COPY | libc::IPC_NOWAIT {
        addresses::surely_readable(message, len)?;
    }
    let Some(buffer) = Buffer::new(len) else {
        return Err(Errno::ENOMEM);
    };
    // SAFETY: the buffer has room for any message of this pool up to the capacity; the program's memory is
    // checked before it is written.
    unsafe {
        let received = msg::receive(&caller.ctx, id, buffer.text, capacity, mtype, flags);
        let (length, got) = caller.unless_revoked(received)?;
        addresses::surely_writable(message, TEXT_AT + length)?;
        message.cast::<i64>().write_unaligned(got);
        core::ptr::copy_nonoverlapping(buffer.text, message.add(TEXT_AT), length);
        Ok(length as isize)
    }
}

/// Memory of our own between two pages that nobody can access: where the program's memory ends, it must not
/// seem to go on.
struct Buffer {
    mapping: *mut u8,
    bytes: usize,
    text: *mut u8,
}

impl Buffer {
    fn new(len: usize) -> Option<Buffer> {
        let page = crate::pools::state::page_size();
        let bytes = len.next_multiple_of(page) + 2 * page;
        let mapping = raw::map_private(bytes);
        if mapping.is_null() {
            return None;
        }
        // SAFETY: the first and the last page of our own mapping.
        unsafe {
            for guard in [mapping, mapping.add(bytes - page)] {
                raw::syscall!(libc::SYS_mprotect, guard, page, libc::PROT_NONE);
            }
            let text = mapping.add(page);
            Some(Buffer { mapping, bytes, text })
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used for the last time.
        unsafe { raw::unmap(self.mapping, self.bytes) };
    }
}

fn ds(s: &msg::MsgDs) -> msqid_ds {
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
fn limits(caller: &Caller) -> Msginfo {
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
