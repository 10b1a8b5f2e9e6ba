//! Shortcuts to queues: a process remembers a queue, so that its next message need not find and judge it
//! again, as sets ([`crate::sem::shortcut`]).

use super::done;
use super::end::{self, At};
use super::name::{is_receiver_named, is_sender_named};
use super::queue::Queue;
use super::ring::{cells_for, Ring};
use super::send::{after, finish, Outgoing, Sender};
use super::space::is_due_for_sweep;
use super::take::{self, Received};
use super::{MSG_COPY, MSG_EXCEPT};
use crate::perm::{self, Granted};
use crate::{pid_word, Ctx};
use vshmem_pool::atomic::AtomicU32;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Msg, HEAD_DYING, MSGMAX_MOST};

/// A queue to which the caller may send and from which it may receive, as it was found.
#[derive(Clone, Copy)]
pub struct Shortcut {
    entry: &'static Msg,
    ring: Ring,
    /// The word by which the process says that the queue may hold something of it.
    touched: &'static AtomicU32,
    /// The value of `touched` that stands for the queue.
    reference: u32,
    sender: Sender,
    mode: u32,
    /// Bytes of the longest message.
    most: u32,
    /// The user that made the queue: what stays granted is granted to the maker, or to all.
    cuid: u32,
    /// The pool can't be taken away.
    stays: bool,
}

/// Modes that a shortcut can say. An entry with another has been written by no library.
const MODES: u32 = 0x7fff;

/// Words of a [`Shortcut`].
pub const WORDS: usize = 8;

impl Shortcut {
    /// A shortcut to a queue that the caller may use, and who else may, as long as it leads there. `stays`:
    /// the pool can't be taken away.
    pub fn to(c: &Ctx, id: i32, stays: bool) -> Option<(Shortcut, Granted)> {
        let queue = Queue::find(c, id).ok()?;
        let mode = queue.entry.head.mode.load(Relaxed);
        let cuid = queue.entry.head.cuid.load(Relaxed);
        let granted = perm::stays_granted(c, cuid, mode, perm::READ | perm::WRITE)?;
        let ring = queue.ring(c)?;
        let reference = queue.reference();
        c.pool.touch(c.me, reference);
        let process = c.pool.proc(c.me.slot)?; // unpaid
        let touched = process.touched.iter().find(|touched| touched.load(Relaxed) == reference)?;
        let sender = Sender { owner: c.me.slot as u16 + 1, pid: pid_word(c) };
        let most = c.pool.limits().msgmax.min(MSGMAX_MOST);
        Some((
            Shortcut { entry: queue.entry, ring, touched, reference, sender, mode, most, cuid, stays },
            granted,
        ))
    }

    /// The shortcut as words, which [`Shortcut::of_words`] reads.
    pub fn words(&self) -> [u64; WORDS] {
        let entry = core::ptr::from_ref(self.entry).expose_provenance() as u64;
        let touched = core::ptr::from_ref(self.touched).expose_provenance() as u64;
        let [base, at, cells] = self.ring.words();
        let sizes = u64::from(self.most) << 32 | cells;
        let rest = u64::from(self.cuid) << 32
            | u64::from(self.mode & MODES) << 17
            | u64::from(self.stays) << 16
            | u64::from(self.sender.owner);
        [entry, base, at, touched, sizes, rest, self.sender.pid, self.reference.into()]
    }

    /// The shortcut that words are.
    ///
    /// # Safety
    /// They are those of one shortcut, made in this process, whose pool is still mapped.
    #[inline(always)]
    pub unsafe fn of_words(
        [entry, base, at, touched, sizes, rest, pid, reference]: [u64; WORDS],
    ) -> Shortcut {
        // SAFETY: addresses of references, and a ring that was checked, as the caller vouches.
        unsafe {
            Shortcut {
                entry: &*core::ptr::with_exposed_provenance(entry as usize),
                ring: Ring::of_words([base, at, sizes & 0xffff_ffff]),
                touched: &*core::ptr::with_exposed_provenance(touched as usize),
                reference: reference as u32,
                sender: Sender { owner: rest as u16, pid },
                mode: (rest >> 17) as u32 & MODES,
                cuid: (rest >> 32) as u32,
                most: (sizes >> 32) as u32,
                stays: rest & 1 << 16 != 0,
            }
        }
    }

    /// Bytes of the longest message.
    #[inline(always)]
    pub fn most(&self) -> usize {
        self.most as usize
    }

    /// Is a message that is received here what was there, since the pool can't be taken away?
    #[inline(always)]
    pub fn stays(&self) -> bool {
        self.stays
    }

    #[inline(always)]
    fn queue(&self, id: i32) -> Queue {
        Queue { entry: self.entry, index: (self.reference & 0x0fff_ffff) - 1, id }
    }

    /// Does the id still name the queue, and is all of it as it was? Asked after an end was read, which no
    /// later queue has again.
    #[inline(always)]
    fn is_same(&self, id: i32) -> bool {
        let (entry, head) = (self.entry, &self.entry.head);
        head.id.load(Acquire) == id as u32
            && head.mode.load(Relaxed) == self.mode
            && head.cuid.load(Relaxed) == self.cuid
            && head.flags.load(Relaxed) & HEAD_DYING == 0
            && entry.ring.load(Relaxed) == self.ring.offset()
            && entry.cells.load(Relaxed) == self.ring.cells().into()
            && self.touched.load(Relaxed) == self.reference
    }

    /// `msgsnd`, if nothing stands in its way and `id` still names the queue. False says nothing.
    ///
    /// # Safety
    /// `text` must point to `len` readable bytes.
    #[inline(always)]
    pub unsafe fn send(&self, id: i32, message: Outgoing, now: i64) -> bool {
        let (queue, end, ring) = (self.queue(id), &self.entry.send, &self.ring);
        let pair = end.at.load();
        let tail = At::of(pair);
        let cells = cells_for(message.len);
        ring.prefetch_to_write(tail.pos);
        if message.kind < 1
            || message.len > self.most()
            || tail.slow
            || !self.is_same(id)
            || !queue.admits_as_remembered(tail, message.len)
            || is_due_for_sweep(&queue, tail.pos)
            || !done::remembers_space(&queue, ring, tail.pos, cells)
            || !is_sender_named(&queue, tail)
            || end.at.cas(pair, after(self.sender.owner, tail, cells, message.len).words()).is_err()
        {
            return false;
        }
        // SAFETY: the compare-and-swap made the cells ours; the caller vouches for the text.
        unsafe { finish(self.sender, &queue, ring, tail.pos, message, now) };
        true
    }

    /// Is there a message at the head, or does one come while the caller `may` wait for it, round by round?
    /// The sending end is not looked at, which would slow the sender down.
    pub fn awaits_message(&self, may: impl Fn(u32) -> bool) -> bool {
        let head = At::of(self.entry.receive.at.load());
        let mut rounds = 0;
        while self.ring.ready(head.pos).is_none() {
            if head.slow || !may(rounds) {
                return false;
            }
            rounds += 1;
        }
        true
    }

    /// `msgrcv` of the first message, if it is there, wanted and not too long, and `id` still names the
    /// queue. `None` says nothing.
    ///
    /// # Safety
    /// `text` must point to `cap` writable bytes, or to as many as the longest message has.
    #[inline(always)]
    pub unsafe fn receive(
        &self,
        id: i32,
        text: *mut u8,
        cap: usize,
        mtype: i64,
        flg: i32,
        now: i64,
    ) -> Option<Received> {
        let (queue, end, ring) = (self.queue(id), &self.entry.receive, &self.ring);
        let pair = end.at.load();
        let head = At::of(pair);
        if flg & (MSG_COPY | MSG_EXCEPT) != 0 || head.slow || !self.is_same(id) {
            return None;
        }
        let len = ring.ready(head.pos)?;
        let kind = ring.kind(head.pos);
        let cells = cells_for(len);
        if (mtype != 0 && mtype != kind)
            || len > cap
            || len > self.most()
            || cells > ring.cells()
            || !is_receiver_named(&queue, head)
        {
            return None;
        }
        let owner = self.sender.owner;
        let next = At { owner, step: cells as u16, ..take::after(head, cells, len) };
        if end.at.cas(pair, next.words()).is_err() {
            return None;
        }
        // SAFETY: the compare-and-swap made the message ours; the caller vouches for the buffer.
        unsafe { ring.read(head.pos, len, text, len) };
        end::note_use(end, self.sender.pid, now);
        done::finish(&queue, ring, head.pos, cells);
        Some((len, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg;
    use crate::testing::World;
    use crate::tests::msg::{counts, queue, receive, send};
    use crate::IPC_NOWAIT;
    use std::vec::Vec;

    /// A shortcut to a queue through which a message has passed.
    fn to(c: &Ctx, id: i32) -> Shortcut {
        send(c, id, 1, b"makes the ring").unwrap();
        receive(c, id, 100, 0, IPC_NOWAIT).unwrap();
        let (shortcut, _) = Shortcut::to(c, id, true).unwrap();
        // SAFETY: of one shortcut, of this process.
        unsafe { Shortcut::of_words(shortcut.words()) }
    }

    fn sends(queue: &Shortcut, id: i32, kind: i64, text: &[u8]) -> bool {
        // SAFETY: a slice.
        unsafe { queue.send(id, Outgoing { kind, text: text.as_ptr(), len: text.len() }, 77) }
    }

    fn receives(queue: &Shortcut, id: i32, cap: usize, kind: i64, flg: i32) -> Option<(i64, Vec<u8>)> {
        let mut text = std::vec![0xee; cap];
        // SAFETY: the vector has so many bytes.
        let (n, kind) = unsafe { queue.receive(id, text.as_mut_ptr(), cap, kind, flg, 78) }?;
        text.truncate(n);
        Some((kind, text))
    }

    #[test]
    fn texts_of_every_length_pass() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        let queue = to(c, id);
        for len in 0..1000 {
            let text: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            let sent = sends(&queue, id, 5, &text) || send(c, id, 5, &text).is_ok();
            let got = receives(&queue, id, len, 0, 0);
            assert!(sent && got == Some((5, text)), "{len}");
        }
        let ds = msg::stat(c, id).unwrap();
        assert_eq!((ds.lspid, ds.lrpid, ds.rtime), (process.pid(), process.pid(), 78));
        assert_eq!(counts(c, id), (0, 0));
    }

    #[test]
    fn what_is_not_for_it_it_leaves_alone() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        let queue = to(c, id);
        assert!(!sends(&queue, id, 0, b"no type") && receives(&queue, id, 9, 0, 0).is_none());
        assert!(sends(&queue, id, 7, b"text"));
        assert!(receives(&queue, id, 3, 0, 0).is_none(), "too long");
        assert!(receives(&queue, id, 9, 8, 0).is_none() && receives(&queue, id, 9, -8, 0).is_none());
        assert!(receives(&queue, id, 9, 7, MSG_EXCEPT).is_none());
        assert!(receives(&queue, id, 9, 0, MSG_COPY | IPC_NOWAIT).is_none());
        assert_eq!(counts(c, id), (1, 4));
        let limit = msg::stat(c, id).unwrap().qbytes;
        while sends(&queue, id, 1, &[1; 1000]) {}
        assert!(counts(c, id).1 <= limit, "more than fits");
        msg::remove(c, id).unwrap();
        assert!(!sends(&queue, id, 1, b"x") && receives(&queue, id, 1000, 0, 0).is_none());
    }

    #[test]
    fn it_ends_where_the_queue_becomes_another() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        let found = to(c, id);
        let works = || sends(&found, id, 1, b"x") && receives(&found, id, 1, 0, 0).is_some();
        let fails = || {
            let before = counts(c, id);
            let sent = sends(&found, id, 1, b"x");
            !sent && counts(c, id) == before && receives(&found, id, 1, 0, 0).is_none()
        };
        msg::set(c, id, 1000, 1000, 0o400, 16384).unwrap();
        assert!(fails(), "another mode");
        msg::set(c, id, 1000, 1000, 0o666, 16384).unwrap();
        assert!(works());
        found.entry.ring.fetch_add(64, Relaxed);
        assert!(!sends(&found, id, 1, b"x"), "another ring");
        found.entry.ring.fetch_sub(64, Relaxed);
        c.pool.untouch(c.me, found.reference);
        assert!(fails(), "nobody would come after the dead");
        c.pool.touch(c.me, found.reference);
        assert!(works());
    }

    #[test]
    fn it_never_leads_out_of_what_was_checked() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        let queue = to(c, id);
        let (send, receive) = (&queue.entry.send, &queue.entry.receive);
        let words = [
            &send.at.lo,
            &send.at.hi,
            &send.seen,
            &send.done,
            &send.sweep,
            &send.finished,
            &receive.at.lo,
            &receive.at.hi,
            &receive.done,
            &queue.entry.qbytes,
        ];
        let mark = queue.ring.mark_word(receive.at.lo.load(Relaxed) as u32);
        for word in words.into_iter().chain([mark]) {
            let good = word.load(Relaxed);
            for bad in
                [0, 1, good ^ 1, good + 1, good ^ 1 << 31, u64::MAX, u64::MAX >> 1, good | 0xff_ffff << 24]
            {
                for len in [0, 16, 17, 64, 65, 3000] {
                    word.store(bad, Relaxed);
                    sends(&queue, id, 1, &std::vec![1; len]);
                    word.store(bad, Relaxed);
                    receives(&queue, id, len, 0, 0);
                }
            }
            word.store(good, Relaxed);
        }
        assert!(world.is_untouched_outside());
    }

    #[test]
    fn an_id_that_another_user_has_by_now_leads_nowhere() {
        use crate::Cred;
        let world = World::new(4 << 20);
        let (process, helper, victim) = (world.process(), world.process(), world.process());
        victim.set_cred(Cred { uid: 2000, gid: 2000, caps: 0 });
        let (c, h, v) = (&process.ctx(), &helper.ctx(), &victim.ctx());
        let id = msg::get(c, crate::IPC_PRIVATE, 0o600).unwrap();
        let found = to(c, id);
        msg::remove(h, id).unwrap();
        for _ in 0..8191 {
            let other = msg::get(c, crate::IPC_PRIVATE, 0o600).unwrap();
            assert_ne!(other, id);
            msg::remove(h, other).unwrap();
        }
        let theirs = msg::get(v, crate::IPC_PRIVATE, 0o600).unwrap();
        assert_eq!(theirs, id);
        send(v, id, 1, b"secret").unwrap();
        assert_eq!(receive(c, id, 100, 0, IPC_NOWAIT), Err(crate::Errno::EACCES));
        assert_eq!(receives(&found, id, 6, 0, 0), None, "another user's message was read");
    }
}
