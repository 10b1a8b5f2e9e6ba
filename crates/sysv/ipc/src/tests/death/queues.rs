//! Processes killed in calls on message queues.

use super::{at_every_call, free, free_after_all, KEY};
use crate::testing::{until, World};
use crate::tests::msg::{counts, queue, receive, send};
use crate::{msg, Errno, IPC_CREAT, IPC_NOWAIT};
use core::time::Duration;
use std::time::Instant;
use vshmem_pool::atomic::Ordering::Relaxed;

/// A queue with a first and a third message; the second is the victim's.
fn queue_with_one(w: &World) -> i32 {
    let p = w.process();
    let id = queue(&p.ctx());
    send(&p.ctx(), id, 1, b"first").unwrap();
    id
}

#[test]
fn in_msgsnd() {
    at_every_call(
        queue_with_one,
        |c, id| send(c, id, 2, &[2; 300]),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            send(c, id, 3, b"third").unwrap();
            let (n, bytes) = counts(c, id);
            assert!(n == 3 || (n == 2 && result.is_none()));
            assert_eq!(bytes, if n == 3 { 310 } else { 10 });
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
            if n == 3 {
                assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, [2; 300]);
            }
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"third");
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT), Err(Errno::ENOMSG));
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn in_msgsnd_while_others_fill_the_queue() {
    at_every_call(
        queue_with_one,
        |c, id| send(c, id, 2, &[2; 300]),
        |w, id, _| {
            let p = w.process();
            let c = &p.ctx();
            // Round the ring several times: the cells of the dead must not stay behind.
            for i in 0..1000u32 {
                send(c, id, 3, &i.to_le_bytes()).unwrap();
                if i >= 20 {
                    let (_, text) = receive(c, id, 300, 3, IPC_NOWAIT).unwrap();
                    assert_eq!(text, (i - 20).to_le_bytes());
                }
            }
            let (n, bytes) = counts(c, id);
            assert!((n, bytes) == (21, 85) || (n, bytes) == (22, 385));
        },
    );
}

#[test]
fn in_msgrcv() {
    at_every_call(
        |w| {
            let id = queue_with_one(w);
            send(&w.process().ctx(), id, 2, b"second").unwrap();
            id
        },
        |c, id| receive(c, id, 300, 0, IPC_NOWAIT),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            let (n, bytes) = counts(c, id);
            // A receiver that dies in msgrcv may take the message along.
            assert!((n, bytes) == (1, 6) || (result.is_none() && (n, bytes) == (2, 11)));
            if n == 2 {
                assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
            }
            for i in 0..1000u32 {
                send(c, id, 3, &i.to_le_bytes()).unwrap();
                assert_eq!(receive(c, id, 300, 3, IPC_NOWAIT).unwrap().1, i.to_le_bytes());
            }
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"second");
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn in_msgrcv_of_a_type_in_the_middle() {
    at_every_call(
        |w| {
            let id = queue_with_one(w);
            send(&w.process().ctx(), id, 2, &[2; 300]).unwrap();
            send(&w.process().ctx(), id, 3, b"third").unwrap();
            id
        },
        |c, id| receive(c, id, 300, 2, IPC_NOWAIT),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            let there = counts(c, id);
            assert!(there == (2, 10) || (result.is_none() && there == (3, 310)));
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
            assert_eq!(receive(c, id, 300, 2, IPC_NOWAIT).is_ok(), there.0 == 3);
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"third");
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn while_handing_a_message_over() {
    at_every_call(
        |w| {
            let id = queue(&w.process().ctx());
            let echo = queue(&w.process().ctx());
            w.process().start(move |c| {
                let (kind, text) = receive(c, id, 300, 0, 0)?;
                send(c, echo, kind, &text)
            });
            let entry = w.pool().msg(id as u32 & 0x1ffff).unwrap();
            until("it waits", || entry.first_receiver.load(Relaxed) != 0);
            (id, echo)
        },
        |c, (id, _)| send(c, id, 7, b"for you"),
        |w, (id, echo), result| {
            let p = w.process();
            let c = &p.ctx();
            let waits = w.pool().msg(id as u32 & 0x1ffff).unwrap();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(400) && counts(c, echo).0 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if counts(c, echo).0 == 0 {
                assert_eq!(result, None);
                assert!(waits.first_receiver.load(Relaxed) != 0);
                send(c, id, 7, b"for you").unwrap();
            }
            until("it came", || counts(c, echo).0 == 1);
            assert_eq!(receive(c, echo, 300, 0, 0).unwrap(), (7, b"for you".to_vec()));
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn in_msgget() {
    at_every_call(
        free,
        |c, _| msg::get(c, KEY, IPC_CREAT | 0o600),
        |w, before, result| {
            let p = w.process();
            let c = &p.ctx();
            let id = msg::get(c, KEY, IPC_CREAT | 0o600).unwrap();
            assert!(result.is_none_or(|r| r == Ok(id)));
            assert_eq!(counts(c, id), (0, 0));
            msg::remove(c, id).unwrap();
            assert_eq!(msg::info(c).1, msg::MsgInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_removing_a_queue() {
    at_every_call(
        |w| {
            let before = free(w);
            let p = w.process();
            let id = msg::get(&p.ctx(), KEY, IPC_CREAT | 0o600).unwrap();
            send(&p.ctx(), id, 1, b"lost").unwrap();
            (before, id)
        },
        |c, (_, id)| msg::remove(c, id),
        |w, (before, id), _| {
            let p = w.process();
            let c = &p.ctx();
            let _ = msg::remove(c, id);
            assert_eq!(msg::get(c, KEY, 0), Err(Errno::ENOENT));
            assert_eq!(msg::info(c).1, msg::MsgInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}
