//! `msgsnd`, `msgrcv` and their neighbours.

use crate::msg::{self, MSG_COPY, MSG_EXCEPT, MSG_NOERROR};
use crate::testing::{until, World};
use crate::{Ctx, Errno, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::vec::Vec;

/// A new queue for everybody.
pub fn queue(c: &Ctx) -> i32 {
    msg::get(c, IPC_PRIVATE, 0o666).unwrap()
}

/// Sends without waiting.
pub fn send(c: &Ctx, id: i32, kind: i64, text: &[u8]) -> Result<(), Errno> {
    // SAFETY: a slice.
    unsafe { msg::send(c, id, kind, text.as_ptr(), text.len(), IPC_NOWAIT) }
}

/// Receives; with `IPC_NOWAIT` in `flg`, without waiting.
pub fn receive(c: &Ctx, id: i32, cap: usize, kind: i64, flg: i32) -> Result<(i64, Vec<u8>), Errno> {
    let mut text = std::vec![0xee; cap];
    // SAFETY: the vector has so many bytes.
    let (n, kind) = unsafe { msg::receive(c, id, text.as_mut_ptr(), cap, kind, flg)? };
    text.truncate(n);
    Ok((kind, text))
}

/// Messages and bytes in a queue.
pub fn counts(c: &Ctx, id: i32) -> (u64, u64) {
    let ds = msg::stat(c, id).unwrap();
    (ds.qnum, ds.cbytes)
}

/// A text that says where it comes from, at any length.
fn text(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7) as u8).collect()
}

#[test]
fn messages_of_every_size_come_out_as_they_went_in() {
    let world = World::new(4 << 20);
    let p = world.process();
    let c = &p.ctx();
    let id = queue(c);
    for len in (0..700).chain([4096, 8191, 8192]) {
        send(c, id, len as i64 + 1, &text(len, len)).unwrap();
        assert_eq!(counts(c, id), (1, len as u64));
        assert_eq!(receive(c, id, 8192, 0, IPC_NOWAIT), Ok((len as i64 + 1, text(len, len))));
    }
    assert_eq!(send(c, id, 1, &text(0, 8193)), Err(Errno::EINVAL));
    assert_eq!(send(c, id, 0, b"x"), Err(Errno::EINVAL));
    assert_eq!(receive(c, id, 10, 0, IPC_NOWAIT), Err(Errno::ENOMSG));
    assert_eq!(counts(c, id), (0, 0));
}

#[test]
fn types_choose() {
    let world = World::new(1 << 20);
    let p = world.process();
    let c = &p.ctx();
    let id = queue(c);
    let kinds = [5, 3, 9, 3, 4];
    for (i, kind) in kinds.iter().enumerate() {
        send(c, id, *kind, &[i as u8]).unwrap();
    }
    let take = |kind: i64, flg: i32| receive(c, id, 10, kind, flg | IPC_NOWAIT).map(|r| (r.0, r.1[0]));
    assert_eq!(take(2, MSG_COPY), Ok((9, 2)));
    assert_eq!(take(5, MSG_COPY), Err(Errno::ENOMSG));
    assert_eq!(take(7, 0), Err(Errno::ENOMSG));
    assert_eq!(take(-2, 0), Err(Errno::ENOMSG));
    assert_eq!(take(3, 0), Ok((3, 1)));
    assert_eq!(take(-4, 0), Ok((3, 3)));
    assert_eq!(take(5, MSG_EXCEPT), Ok((9, 2)));
    assert_eq!(take(i64::MIN, 0), Ok((4, 4)));
    assert_eq!(take(0, 0), Ok((5, 0)));
    assert_eq!(take(0, 0), Err(Errno::ENOMSG));
    assert_eq!(counts(c, id), (0, 0));
}

#[test]
fn long_texts_are_cut_or_refused() {
    let world = World::new(1 << 20);
    let p = world.process();
    let c = &p.ctx();
    let id = queue(c);
    send(c, id, 1, &text(1, 500)).unwrap();
    assert_eq!(receive(c, id, 499, 0, 0), Err(Errno::E2BIG));
    assert_eq!(counts(c, id), (1, 500));
    assert_eq!(receive(c, id, 200, 0, MSG_NOERROR), Ok((1, text(1, 500)[..200].to_vec())));
    assert_eq!(counts(c, id), (0, 0));
    assert_eq!(receive(c, id, 0, 0, MSG_COPY), Err(Errno::EINVAL));
}

#[test]
fn a_full_queue_is_full_by_bytes_and_by_messages() {
    let world = World::new(4 << 20);
    let p = world.process();
    let c = &p.ctx();
    let id = queue(c);
    for _ in 0..2 {
        send(c, id, 1, &text(0, 8192)).unwrap();
    }
    assert_eq!(send(c, id, 1, b"x"), Err(Errno::EAGAIN));
    assert_eq!(send(c, id, 1, b""), Ok(()));
    assert_eq!(counts(c, id), (3, 16384));
    receive(c, id, 8192, 0, 0).unwrap();
    send(c, id, 1, b"x").unwrap();
    // A lower limit holds for what comes, a higher one needs privilege.
    msg::set(c, id, 1000, 1000, 0o600, 100).unwrap();
    assert_eq!(send(c, id, 1, b""), Err(Errno::EAGAIN));
    assert_eq!(msg::set(c, id, 1000, 1000, 0o600, 16385), Err(Errno::EPERM));
    // As many messages as bytes are allowed, however short they are.
    let id = queue(c);
    msg::set(c, id, 1000, 1000, 0o600, 50).unwrap();
    for _ in 0..50 {
        send(c, id, 1, b"").unwrap();
    }
    assert_eq!(send(c, id, 1, b""), Err(Errno::EAGAIN));
}

#[test]
fn a_message_stays_at_the_head_while_ten_thousand_pass() {
    let world = World::new(4 << 20);
    let p = world.process();
    let c = &p.ctx();
    let id = queue(c);
    send(c, id, 2, b"straggler").unwrap();
    for i in 0..10_000usize {
        send(c, id, 1, &text(i, i % 300)).unwrap();
        // Two are always on their way, in order.
        if i >= 1 {
            let expected = text(i - 1, (i - 1) % 300);
            assert_eq!(receive(c, id, 300, 1, IPC_NOWAIT), Ok((1, expected)));
        }
    }
    assert_eq!(counts(c, id), (2, 9 + 9999 % 300));
    assert_eq!(receive(c, id, 100, 2, 0), Ok((2, b"straggler".to_vec())));
    assert_eq!(receive(c, id, 300, 0, 0).unwrap().0, 1);
    assert_eq!(counts(c, id), (0, 0));
}

#[test]
fn a_receiver_is_handed_what_it_waits_for() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = queue(c);
    let task = b.start(move |c| receive(c, id, 100, 7, 0));
    until("the receiver waits", || {
        world
            .pool()
            .msg(id as u32 & 0x1ffff)
            .is_some_and(|m| m.first_receiver.load(vshmem_pool::atomic::Ordering::Relaxed) != 0)
    });
    send(c, id, 6, b"not that").unwrap();
    send(c, id, 7, b"that").unwrap();
    assert_eq!(task.result(), Ok((7, b"that".to_vec())));
    assert_eq!(counts(c, id), (1, 8));
    assert_eq!(msg::stat(c, id).unwrap().lrpid, b.pid());
}

#[test]
fn sleepers_end_with_the_queue_and_with_signals() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = queue(c);
    let task = b.start(move |c| receive(c, id, 100, 0, 0));
    b.interrupt();
    assert_eq!(task.result(), Err(Errno::EINTR));
    let receiver = b.start(move |c| receive(c, id, 100, 9, 0));
    for _ in 0..2 {
        send(c, id, 1, &text(0, 8192)).unwrap();
    }
    let last = world.process();
    let sender = last.start(move |c| {
        // SAFETY: one byte.
        unsafe { msg::send(c, id, 1, [1u8].as_ptr(), 1, 0) }
    });
    b.await_sleep();
    last.await_sleep();
    assert_eq!(sender.ends_within(Duration::from_millis(30)), None);
    assert_eq!(receiver.ends_within(Duration::from_millis(1)), None);
    msg::remove(c, id).unwrap();
    assert_eq!(sender.result(), Err(Errno::EIDRM));
    assert_eq!(receiver.result(), Err(Errno::EIDRM));
    assert_eq!(send(c, id, 1, b"x"), Err(Errno::EINVAL));
    assert_eq!(msg::info(c).1.queues, 0);
}

#[test]
fn a_sender_waits_for_room() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = queue(c);
    for _ in 0..2 {
        send(c, id, 1, &text(0, 8192)).unwrap();
    }
    let task = b.start(move |c| {
        let text = [5u8; 3000];
        // SAFETY: an array.
        unsafe { msg::send(c, id, 2, text.as_ptr(), text.len(), 0) }
    });
    until("the sender waits", || {
        world
            .pool()
            .msg(id as u32 & 0x1ffff)
            .is_some_and(|m| m.first_sender.load(vshmem_pool::atomic::Ordering::Relaxed) != 0)
    });
    receive(c, id, 8192, 0, 0).unwrap();
    assert_eq!(task.result(), Ok(()));
    assert_eq!(counts(c, id), (2, 8192 + 3000));
}

#[test]
fn a_belt_loses_nothing() {
    let world = World::new(4 << 20);
    let a = world.process();
    let id = queue(&a.ctx());
    let senders: Vec<_> = (0..2usize)
        .map(|s| {
            world.process().start(move |c| {
                for i in 0..2000u32 {
                    let mut t = text(s, 4 + (i as usize * 13) % 200);
                    t[..4].copy_from_slice(&i.to_le_bytes());
                    // SAFETY: a vector.
                    unsafe { msg::send(c, id, s as i64 + 1, t.as_ptr(), t.len(), 0) }.unwrap();
                }
            })
        })
        .collect();
    let receiver = world.process().start(move |c| {
        let mut next = [0u32; 2];
        for _ in 0..4000 {
            let (kind, t) = receive(c, id, 300, 0, 0).unwrap();
            let s = kind as usize - 1;
            assert_eq!(u32::from_le_bytes(t[..4].try_into().unwrap()), next[s]);
            assert_eq!(t.len(), 4 + (next[s] as usize * 13) % 200);
            assert_eq!(t[4..], text(s, t.len())[4..]);
            next[s] += 1;
        }
        next
    });
    senders.into_iter().for_each(|t| t.result());
    assert_eq!(receiver.result(), [2000, 2000]);
    assert_eq!(counts(&a.ctx(), id), (0, 0));
}
