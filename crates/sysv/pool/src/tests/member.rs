use super::Memory;
use crate::atomic::Ordering::SeqCst;
use crate::member::begun;
use crate::{Limits, Params, Pool};
use std::vec::Vec;

fn pool(memory: &Memory) -> Pool {
    let limits = Limits::default();
    Pool::format(memory.mem(), &Params { limits, ..Params::default() }).unwrap();
    Pool::open(memory.mem()).unwrap()
}

#[test]
fn kernels_are_told_apart_by_every_byte_of_their_identity() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let mut all = std::vec![[7u8; 16]];
    all.extend((0..16).map(|i| {
        let mut identity = [7; 16];
        identity[i] ^= 1;
        identity
    }));
    let members: Vec<_> = all.iter().map(|id| pool.join(*id, b"same")).collect();
    for (i, member) in members.iter().enumerate() {
        assert_eq!(*member, Ok(i as u16));
        assert_eq!(pool.join(all[i], b"other"), *member, "found again");
        assert_eq!(pool.find_member(all[i]), Some(i as u16));
    }
    assert_eq!(pool.find_member([0; 16]), None);
}

/// Two kernels begin an entry in one state if three bytes of theirs agree: what one has begun, the other may
/// write.
#[test]
fn kernels_that_look_alike_while_they_join_have_an_entry_each() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let (one, mut other) = ([1; 16], [1; 16]);
    other[15] = 2;
    let first = pool.join(one, b"").unwrap();
    let state = &pool.member(first.into()).unwrap().state;
    // As if it had died while it wrote.
    state.store(begun(one), SeqCst);
    assert_eq!(pool.join(other, b""), Ok(first), "what was left is used");
    assert_eq!(pool.join(one, b""), Ok(first + 1));
    assert_ne!(pool.find_member(one), pool.find_member(other));
}

#[test]
fn whoever_had_a_number_before_is_dead() {
    let memory = Memory::new(1 << 20);
    let pool = pool(&memory);
    let [before, beside, now] = [1, 2, 3].map(|i| pool.join([i; 16], b"vm").unwrap());
    pool.join_doorbells(before, 5);
    pool.join_doorbells(beside, 6);
    pool.join_doorbells(before, 5);
    assert!(!pool.member_is_dead(before), "said again by another process");
    pool.join_doorbells(now, 5);
    assert!(pool.member_is_dead(before), "the machine was reset");
    assert!(!pool.member_is_dead(beside) && !pool.member_is_dead(now));
}
