//! The kernel whose threads sleep on a word, and the members that ring doorbells.

use super::{Memory, Ready};
use crate::atomic::{AtomicU32, Ordering::SeqCst};
use crate::layout::{Waiter, WAITING};
use crate::Sleeper::{Anybody, Gone, Of};
use crate::{Budget, Params, Pool, ProcId};
use std::vec::Vec;

fn pool(memory: &Memory) -> Pool {
    Pool::format(memory.mem(), &Params::default()).unwrap();
    Pool::open(memory.mem()).unwrap()
}

#[test]
fn only_a_records_status_tells_whose_it_is() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let count = pool.geometry().waiters.1;
    for index in [0, 1, count - 1] {
        let record: &Waiter = pool.waiter(index).unwrap();
        let found = pool.waiter_of(&record.status).unwrap();
        assert!(core::ptr::eq(found, record));
        assert!(pool.waiter_of(&record.object).is_none());
        assert_eq!(pool.sleeper_of(&record.status), Gone, "nobody has it");
    }
    let elsewhere = AtomicU32::new(0);
    assert_eq!(pool.sleeper_of(&elsewhere), Anybody);
    assert_eq!(pool.sleeper_of(&pool.root().lock), Anybody);
    let (table, _) = pool.geometry().waiters;
    let end = table + u64::from(count) * size_of::<Waiter>() as u64;
    for offset in [table - 4, end + 8, memory.mem().len() as u64 - 4] {
        let word: &AtomicU32 = memory.mem().at(offset).unwrap();
        assert_eq!(pool.sleeper_of(word), Anybody);
    }
}

#[test]
fn a_record_is_its_owners_as_long_as_that_is_there() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let record = pool.waiter(2).unwrap();
    let me = pool.claim_process(&Ready::default(), &Budget::default(), 7, 1, 0, &mut |_| true).unwrap();
    record.status.store(WAITING, SeqCst);
    record.owner.store(me.word(), SeqCst);
    assert_eq!(pool.sleeper_of(&record.status), Of(7));
    pool.free_process(me);
    assert_eq!(pool.sleeper_of(&record.status), Gone);
    let next = (0..pool.proc_slots()).find_map(|_| {
        let next = pool.claim_process(&Ready::default(), &Budget::default(), 8, 1, 0, &mut |_| true)?;
        (next.slot == me.slot).then_some(next)
    });
    assert!(next.is_some(), "the slot comes round again");
    assert_eq!(pool.sleeper_of(&record.status), Gone, "of another generation");
    record.owner.store(next.unwrap().word(), SeqCst);
    assert_eq!(pool.sleeper_of(&record.status), Of(8));
    // What an enemy may write.
    for owner in [u64::MAX, 1 << 32, u64::from(u32::MAX)] {
        record.owner.store(owner, SeqCst);
        assert_eq!(pool.sleeper_of(&record.status), Gone);
    }
}

/// Each kernel has liveness locks of its own, so processes of two kernels may be at the same slot: one has
/// it, and the other one leaves no trace.
#[test]
fn two_kernels_may_be_at_one_slot() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let mut faster = None;
    let slower = pool.claim_process(&Ready::default(), &Budget::default(), 1, 11, 1 << 32, &mut |_| {
        faster = faster.or_else(|| {
            pool.claim_process(&Ready::default(), &Budget::default(), 2, 22, 2 << 32, &mut |_| true)
        });
        true
    });
    let (faster, slower) = (faster.unwrap(), slower.unwrap());
    assert_ne!(faster.slot, slower.slot);
    let started = |slot| pool.proc(slot).unwrap().started.load(SeqCst);
    assert_eq!(pool.process(faster.slot), Some((faster, 2, 22)));
    assert_eq!(pool.process(slower.slot), Some((slower, 1, 11)));
    assert_eq!((started(faster.slot), started(slower.slot)), (2 << 32, 1 << 32));
    // Nobody is judged by the pid of the process that had the slot before.
    pool.free_process(faster);
    let pid = pool.proc(faster.slot).unwrap().pid.load(SeqCst);
    assert_eq!((pid, started(faster.slot)), (0, 0));
}

/// A place that a parent made before its fork is found by the child, and by what that forks by raw calls.
#[test]
fn one_process_adopts_a_place_for_a_child() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let place =
        pool.claim_process(&Ready::default(), &Budget::default(), 1, 0, 1 << 32, &mut |_| true).unwrap();
    assert!(pool.note_pid(place, 11) && !pool.note_pid(place, 12));
    assert!(pool.adopt_process(place, 11, 1 << 32 | 5));
    assert!(!pool.adopt_process(place, 12, 1 << 32 | 6));
    assert_eq!(pool.process(place.slot), Some((place, 1, 11)));
    assert_eq!(pool.proc(place.slot).unwrap().started.load(SeqCst), 1 << 32 | 5);
    pool.free_process(place);
    assert!(!pool.adopt_process(place, 13, 1 << 32 | 7), "it is nobody's");
    assert_eq!(pool.proc(place.slot).unwrap().pid.load(SeqCst), 0);
    assert!(!pool.adopt_process(ProcId { slot: u32::MAX, ..place }, 14, 0));
}

#[test]
fn requests_are_taken_once_and_only_for_members_with_a_number() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let taken = || {
        let mut peers = Vec::new();
        pool.take_doorbell_requests(|peer| peers.push(peer));
        peers
    };
    let members = [1, 2, 3].map(|boot| pool.join([boot; 16], b"").unwrap());
    pool.join_doorbells(members[0], 40);
    pool.set_member_peer(members[1], 41, 0);
    let before = pool.doorbell_requests().load(SeqCst);
    for member in members {
        pool.request_doorbell(member);
    }
    assert_eq!(pool.doorbell_requests().load(SeqCst), before + 3);
    assert_eq!(taken(), [40, 41]);
    assert!(taken().is_empty());
    pool.request_doorbell(64);
    pool.request_doorbell(u16::MAX);
    assert_eq!(pool.doorbell_requests().load(SeqCst), before + 3, "there are no such members");
    assert!(taken().is_empty());
    // The largest number that there is, and one that there is not.
    pool.join_doorbells(members[2], u16::MAX);
    assert_eq!(pool.member_peer(members[2]), Some((u16::MAX, 0)));
    pool.member(2).unwrap().peer.store(u32::MAX, SeqCst);
    assert_eq!(pool.member_peer(members[2]), None);
}

#[test]
fn a_member_alone_needs_no_doorbell_and_others_need_all() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let one = pool.join([1; 16], b"").unwrap();
    assert!(pool.is_rung_by_all(one), "alone");
    pool.join_doorbells(one, 1);
    assert!(pool.is_rung_by_all(one), "alone, with a number");
    pool.leave_doorbells(one);
    assert!(!pool.is_rung_by_all(one), "a process of its own can't wake others");
    let other = pool.join([2; 16], b"").unwrap();
    pool.join_doorbells(one, 1);
    assert!(!pool.is_rung_by_all(one) && !pool.is_rung_by_all(other));
    pool.join_doorbells(other, 2);
    assert!(pool.is_rung_by_all(one) && pool.is_rung_by_all(other));
    assert!(!pool.is_rung_by_all(u16::MAX), "there is no such member");
}
