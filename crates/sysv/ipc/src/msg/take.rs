//! Taking a message out of a queue whose lock is held.

use super::choose::{choose, Wanted};
use super::done;
use super::end::{self, At};
use super::mark::State;
use super::queue::Slow;
use super::ring::Ring;
use super::scan::{self, Item};
use super::waiter::wake_senders;
use super::MSG_NOERROR;
use crate::{pid_word, Ctx, Errno};

/// The program's buffer, where a message goes.
#[derive(Clone, Copy)]
pub struct Incoming {
    /// Buffer for the text.
    pub text: *mut u8,
    /// The buffer's size.
    pub cap: usize,
    /// Cut the text if it is too long.
    pub cut: bool,
}

impl Incoming {
    /// The buffer that the arguments of `msgrcv` describe.
    #[inline(always)]
    pub fn new(text: *mut u8, cap: usize, flg: i32) -> Incoming {
        let cut = flg & MSG_NOERROR != 0;
        Incoming { text, cap, cut }
    }

    /// Bytes of a message of `len` that are copied: the buffer was found writable for what a message can
    /// have, not for what a mark says that somebody scribbled.
    #[inline(always)]
    pub fn part_of(&self, c: &Ctx, len: usize) -> usize {
        len.min(self.cap).min(c.pool.limits().msgmax as usize)
    }
}

/// Bytes copied, and type.
pub type Received = (usize, i64);

/// The receiving end after a message.
pub fn after(head: At, cells: u32, len: usize) -> At {
    At {
        pos: head.pos.wrapping_add(cells),
        bytes: head.bytes.wrapping_add(len as u32),
        msgs: head.msgs.wrapping_add(1),
        owner: 0,
        step: 0,
        slow: head.slow,
    }
}

/// Takes the message that is wanted, if it is there, under the lock.
///
/// # Safety
/// As for [`super::receive()`].
pub unsafe fn take(slow: &Slow, into: Incoming, wanted: Wanted) -> Result<Option<Received>, Errno> {
    let Some(ring) = slow.queue.ring(slow.c) else {
        return Ok(None);
    };
    let Some(item) = choose(slow, &ring, wanted) else {
        return Ok(None);
    };
    let len = item.mark.len as usize;
    if len > into.cap {
        match wanted {
            _ if !into.cut => return Err(Errno::E2BIG),
            // A copy is never cut.
            Wanted::Number(_) => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    let kind = ring.kind(item.pos);
    let n = into.part_of(slow.c, len);
    // SAFETY: the lock is held and both ends are frozen; the caller vouches for the buffer.
    unsafe { ring.read(item.pos, len, into.text, n) };
    if !matches!(wanted, Wanted::Number(_)) {
        consume(slow, &ring, item)?;
        wake_senders(slow)?;
    }
    Ok(Some((n, kind)))
}

/// Takes a message out of the queue and counts it as received.
fn consume(slow: &Slow, ring: &Ring, item: Item) -> Result<(), Errno> {
    let (c, entry) = (slow.c, slow.queue.entry);
    let head = slow.queue.head();
    // The head itself stays until the used-up cells at it are freed.
    let counted = after(head, 0, item.mark.len as usize);
    let mut txn = slow.guard.txn();
    txn.set(ring.mark_offset(item.pos), done::consumed(ring, item.pos, item.cells).word())?;
    end::put(&mut txn, &entry.receive, counted)?;
    txn.put(&entry.receive.time, c.kernel.now() as u64)?;
    txn.put(&entry.receive.pid, pid_word(c))?;
    txn.commit()?;
    scan::advance(slow, ring);
    Ok(())
}

/// A message that was handed to the caller.
pub fn assigned(slow: &Slow, pos: u32) -> Option<(Ring, Item)> {
    let ring = slow.queue.ring(slow.c)?;
    let owner = slow.c.me.slot as u16 + 1;
    let is_it = |i: Item| i.pos == pos && i.mark.state == State::Assigned && i.mark.owner == owner;
    Some((ring, scan::find(slow, &ring, is_it)?))
}

/// Takes a message that was handed to the caller.
///
/// # Safety
/// As for [`super::receive()`].
pub unsafe fn take_assigned(slow: &Slow, into: Incoming, pos: u32) -> Result<Received, Errno> {
    let (ring, item) = assigned(slow, pos).ok_or(scan::DAMAGED)?;
    let len = item.mark.len as usize;
    let n = into.part_of(slow.c, len);
    let kind = ring.kind(pos);
    // SAFETY: the message is the caller's; the caller vouches for the buffer.
    unsafe { ring.read(pos, len, into.text, n) };
    let mut txn = slow.guard.txn();
    let used = done::consumed(&ring, pos, item.cells);
    txn.set(ring.mark_offset(pos), used.word())?;
    txn.commit()?;
    scan::advance(slow, &ring);
    Ok((n, kind))
}
