//! `msgrcv`.

use super::{remember, TEXT_AT};
use crate::calls::shortcut;
use crate::pools::caller::Caller;
use crate::process::raw;
use crate::thread::{addresses, permit};
use core::ffi::c_void;
use vshmem_ipc::msg::shortcut::Shortcut;
use vshmem_ipc::{msg, Errno};

/// A function for each `msgrcv` that no shortcut can do.
pub type Msgrcv = unsafe extern "C" fn(i32, *mut c_void, usize, i64, i32) -> isize;

/// `msgrcv` by a shortcut, or else by `slow`.
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

/// `msgrcv` from a queue that is remembered, of a message that comes in a moment, or else by `slow`. A
/// function of its own, so that `msgrcv` itself has nothing to save and restore.
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

/// `msgrcv` by a shortcut, see [`Shortcut`]. `None`: not done.
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

/// `msgrcv` into a buffer that is not all there. The message may be shorter than the room that the program
/// claims to have; if it isn't, it is lost, as with the kernel.
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

/// A buffer of the library's own between two pages without access: where the program's memory ends, it must
/// not seem to go on.
struct Buffer {
    mapping: *mut u8,
    bytes: usize,
    text: *mut u8,
}

impl Buffer {
    fn new(len: usize) -> Option<Buffer> {
        let page = page_size();
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

/// The machine's page size.
fn page_size() -> usize {
    // SAFETY: asks libc, which knows it from the start.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
