//! A pool in which every process slot is taken.

use super::msg::{counts, queue, receive, send};
use super::sem::{op, set_of, undone, values};
use crate::testing::{Process, World};
use crate::{sem, Errno, ProcId, IPC_NOWAIT};
use std::sync::Arc;
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::Relaxed;

/// Takes all slots that are left.
fn fill(world: &World) -> Vec<Arc<Process>> {
    core::iter::from_fn(|| world.try_process()).collect()
}

#[test]
fn nobody_has_a_slot_who_is_in_need_of_one() {
    let world = World::new(1 << 20);
    let all = fill(&world);
    assert_eq!(all.len() as u32 + 1, world.pool().proc_slots());
    assert!(world.try_process().is_none());
    all[17].kill();
    assert_eq!(world.process().id().slot, all[17].id().slot);
    assert!(world.try_process().is_none());
}

/// Makes the mark of a message of 300 bytes what it was before its sender had finished.
fn unfinish(world: &World, id: i32, sender: ProcId) {
    let pool = world.pool();
    let entry = pool.msg(id as u32 & 0x1ffff).unwrap();
    let (ring, cells) = (entry.ring.load(Relaxed), entry.cells.load(Relaxed));
    let (ready, reserved) = (2, 1);
    let mark = (0..cells)
        .map(|i| pool.mem().word(ring + i * 32).unwrap())
        .find(|mark| mark.load(Relaxed) & 0xffff_ff00_000f == 300 << 24 | ready)
        .expect("a message of 300 bytes");
    let lap = mark.load(Relaxed) & 0xff_fff0;
    let owner = u64::from(sender.slot + 1) << 48;
    mark.store(owner | 5 << 24 | lap | reserved, Relaxed);
}

/// A process that takes the slot of a dead sender must not be taken for the one that has begun to send.
#[test]
fn a_slot_is_used_again_when_no_queue_knows_the_dead() {
    let world = World::new(1 << 20);
    let victim = world.process();
    let id = queue(&victim.ctx());
    send(&victim.ctx(), id, 1, b"first").unwrap();
    send(&victim.ctx(), id, 2, &[2; 300]).unwrap();
    unfinish(&world, id, victim.id());
    let all = fill(&world);
    victim.kill();
    let heir = world.process();
    assert_eq!(heir.id().slot, victim.id().slot);
    let c = &all[0].ctx();
    send(c, id, 3, b"third").unwrap();
    assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
    assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"third");
    assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT), Err(Errno::ENOMSG));
    assert_eq!(counts(c, id), (0, 0));
}

#[test]
fn who_dies_while_making_room_leaves_the_spare_slot_to_the_next() {
    for n in 1.. {
        let world = World::new(1 << 20);
        let all = fill(&world);
        let id = set_of(&all[0].ctx(), &[0, 0]);
        for p in &all[..3] {
            sem::op(&p.ctx(), id, &[undone(0, 1), undone(1, 2), op(1, 1)], None).unwrap();
            p.kill();
        }
        let died = world.dies_on_its_way_in(n);
        let next = world.process();
        assert_eq!(values(&next.ctx(), id), [0, 3]);
        if !died {
            assert!(n > 10, "it was hardly ever killed in the middle");
            return;
        }
        assert!(fill(&world).len() >= 2, "killed at call {n}");
    }
}
