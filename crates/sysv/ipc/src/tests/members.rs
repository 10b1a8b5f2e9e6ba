//! Kernels that come and die, more of them than there are entries.

use super::msg::{queue, receive, send};
use super::sem::{op, set_of, undone};
use crate::census::Census;
use crate::testing::{Process, World};
use crate::{liveness, msg, sem, shm, Budget, Ctx, IPC_NOWAIT, IPC_PRIVATE};
use std::sync::Arc;
use std::vec::Vec;

/// A process of another kernel, which lives until its kernel is dead.
struct Foreign {
    process: Arc<Process>,
    member: u16,
    me: crate::ProcId,
}

impl Foreign {
    fn new(w: &World, below: &Arc<Process>, boot: u8) -> Option<Foreign> {
        let process = below.clone();
        let mut id = [99; 16];
        id[0] = boot;
        let member = w.pool().join(id, b"guest").ok()?;
        let me = w.pool().claim_process(&*process, &Budget::default(), member, 77, 1, &mut |_| true)?;
        Some(Foreign { process, member, me })
    }

    fn ctx(&self) -> Ctx<'_> {
        let (member, me) = (self.member, self.me);
        Ctx { member, me, pid: 77, ..self.process.ctx() }
    }
}

fn count(c: &Ctx, most: u32) -> u64 {
    let mut census = Census::default();
    let mut done = (0..100_000).filter_map(|_| census.step(c, most));
    done.next().expect("it comes to an end")
}

/// Everybody's slots are cleaned up after.
fn reap(c: &Ctx, foreign: &Foreign) {
    reap_but_spare(c, foreign);
    liveness::reap(c, c.pool.spare_slot());
}

fn reap_but_spare(c: &Ctx, foreign: &Foreign) {
    c.pool.declare_dead(foreign.member);
    (0..c.pool.spare_slot()).for_each(|slot| liveness::reap(c, slot));
}

#[test]
fn more_kernels_than_entries_come_and_go() {
    let w = World::new(4 << 20);
    let here = w.process();
    let mut taken = Vec::new();
    for boot in 1..=200 {
        let guest = Foreign::new(&w, &here, boot).expect("there is an entry");
        taken.push(guest.member);
        let id = shm::get(&guest.ctx(), IPC_PRIVATE, 5000, 0o600).unwrap();
        shm::attach(&guest.ctx(), id, 0).unwrap();
        shm::remove(&guest.ctx(), id).unwrap();
        assert_eq!(count(&here.ctx(), 1000), 0, "it lives");
        w.pool().declare_dead(guest.member);
        assert_eq!(count(&here.ctx(), 1000), 0, "its process has a slot");
        reap(&here.ctx(), &guest);
        assert_eq!(count(&here.ctx(), 1 + u32::from(boot)), 1 << guest.member);
        assert!(w.pool().member_is_dead(guest.member));
    }
    assert!(taken.iter().all(|member| *member == taken[0]), "{taken:?}");
    assert_eq!(w.pool().dead_members(), 0);
}

#[test]
fn a_pool_that_is_full_of_kernels_has_room_when_one_is_forgotten() {
    let w = World::new(4 << 20);
    let here = w.process();
    let mut guests: Vec<Foreign> = (1..).map_while(|boot| Foreign::new(&w, &here, boot)).take(63).collect();
    assert!(Foreign::new(&w, &here, 99).is_none());
    let last = guests.pop().unwrap();
    reap(&here.ctx(), &last);
    assert!(Foreign::new(&w, &here, 99).is_none());
    assert_eq!(count(&here.ctx(), 7), 1 << last.member);
    let next = Foreign::new(&w, &here, 99).unwrap();
    assert_eq!(next.member, last.member);
    assert!(!w.pool().member_is_dead(next.member));
}

#[test]
fn a_pid_lives_as_long_as_a_process_of_any_kernel_has_it() {
    let w = World::new(4 << 20);
    let here = w.process();
    let lives = |pid| liveness::lives(&here.ctx(), pid);
    let own = here.pid() as u32;
    assert!(lives(own) && !lives(77) && !lives(0));
    let guests = [1, 2].map(|boot| Foreign::new(&w, &here, boot).unwrap());
    assert!(lives(77));
    let other = w.process();
    assert!(lives(other.pid() as u32));
    other.kill();
    assert!(!lives(other.pid() as u32), "its lock tells");
    w.pool().declare_dead(guests[0].member);
    assert!(lives(77), "that of the other kernel does");
    w.pool().free_process(guests[1].me);
    assert!(!lives(77));
    // A table of whatever length does not make the call endless, and nobody is dead for want of time.
    let poor = here.ctx();
    while poor.pay(1).is_some() {}
    assert!(liveness::lives(&poor, 77));
}

/// In the spare slot, too, somebody can be when its kernel dies.
#[test]
fn who_died_in_the_spare_slot_is_found() {
    let w = World::new(4 << 20);
    let here = w.process();
    let guest = Foreign::new(&w, &here, 9).unwrap();
    let member = guest.member;
    let spare = w.pool().claim_spare(&*here, &Budget::default(), member, 78, 1, &mut |_| true);
    assert_eq!(spare.map(|spare| spare.slot), Some(w.pool().spare_slot()));
    reap_but_spare(&here.ctx(), &guest);
    assert_eq!(count(&here.ctx(), 5), 0);
    reap(&here.ctx(), &guest);
    assert_eq!(count(&here.ctx(), 5), 1 << member);
}

/// Each place that names a kernel keeps its entry.
#[test]
fn who_is_named_keeps_its_entry() {
    type Leave = fn(&Ctx, &Ctx) -> i32;
    type Remove = fn(&Ctx, i32) -> Result<(), crate::Errno>;
    let ways: [(&str, Leave, Remove); 5] = [
        ("made a segment", |c, _| shm::get(c, IPC_PRIVATE, 5, 0o600).unwrap(), shm::remove),
        (
            "attached a segment",
            |c, d| {
                let id = shm::get(d, IPC_PRIVATE, 5, 0o600).unwrap();
                shm::attach(c, id, 0).unwrap();
                shm::detach(c, id);
                id
            },
            shm::remove,
        ),
        (
            "changed a semaphore",
            |c, d| {
                let id = set_of(d, &[0; 300]);
                sem::op(c, id, &[op(299, 1)], None).unwrap();
                id
            },
            sem::remove,
        ),
        (
            "sent",
            |c, d| {
                let id = queue(d);
                send(c, id, 1, b"x").unwrap();
                id
            },
            msg::remove,
        ),
        (
            "received",
            |c, d| {
                let id = queue(d);
                send(d, id, 1, b"x").unwrap();
                receive(c, id, 5, 0, IPC_NOWAIT).unwrap();
                id
            },
            msg::remove,
        ),
    ];
    for (what, leave, remove) in ways {
        let w = World::new(4 << 20);
        let here = w.process();
        let d = here.ctx();
        let guest = Foreign::new(&w, &here, 9).unwrap();
        let id = leave(&guest.ctx(), &d);
        reap(&here.ctx(), &guest);
        assert_eq!(count(&d, 3), 0, "it {what}");
        remove(&d, id).unwrap();
        assert_eq!(count(&d, 3), 1 << guest.member, "what it {what} is gone");
    }
    // What is undone after its death names it, too.
    let w = World::new(4 << 20);
    let here = w.process();
    let id = set_of(&here.ctx(), &[0]);
    let guest = Foreign::new(&w, &here, 9).unwrap();
    sem::op(&guest.ctx(), id, &[undone(0, 3)], None).unwrap();
    sem::op(&here.ctx(), id, &[op(0, 1)], None).unwrap();
    reap(&here.ctx(), &guest);
    let after = sem::getpid(&here.ctx(), id, 0);
    assert_eq!((after, count(&here.ctx(), 100)), (Ok(77), 0));
}
