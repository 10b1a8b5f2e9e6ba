//! `msgsnd`.

use super::{remember, TEXT_AT};
use crate::calls::shortcut;
use crate::pools::caller::Caller;
use crate::process::raw;
use crate::thread::{addresses, permit};
use core::ffi::c_void;
use vshmem_ipc::msg::shortcut::Shortcut;
use vshmem_ipc::msg::{self, Outgoing};
use vshmem_ipc::Errno;

/// A function for each `msgsnd` that no shortcut can do.
pub type Msgsnd = unsafe extern "C" fn(i32, *const c_void, usize, i32) -> i32;

/// `msgsnd` by a shortcut, or else by `slow`.
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

/// `msgsnd` by a shortcut, see [`Shortcut`]. False: not done.
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
