//! Keys, ids and what `*get` says of them.

use crate::testing::World;
use crate::{sem, shm, Ctx, Errno, IPC_CREAT, IPC_EXCL, IPC_PRIVATE};
use std::collections::BTreeSet;
use std::vec::Vec;
use vshmem_pool::layout::Kind;

#[test]
fn ten_thousand_keys_are_found_again() {
    let world = World::new(256 << 20);
    let process = world.process();
    let c = &process.ctx();
    // Multiples of a large power of two, as ftok makes them, are what a poor hash would put into one chain.
    let keys: Vec<i32> = (1..=10_000).map(|i| i << 17 | i).collect();
    let ids: Vec<i32> =
        keys.iter().map(|k| sem::get(c, *k, 1, IPC_CREAT | IPC_EXCL | 0o600).unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert!(ids.iter().all(|id| crate::is_ours(*id)));
    for (key, id) in keys.iter().zip(&ids) {
        assert_eq!(sem::get(c, *key, 0, 0), Ok(*id));
    }
    assert_eq!(sem::get(c, 5, 1, 0), Err(Errno::ENOENT));
    assert_eq!(sem::get(c, keys[77], 1, IPC_CREAT | IPC_EXCL | 0o600), Err(Errno::EEXIST));
    for id in ids.iter().step_by(2) {
        sem::remove(c, *id).unwrap();
    }
    for (i, (key, id)) in keys.iter().zip(&ids).enumerate() {
        let expected = if i % 2 == 0 { Err(Errno::ENOENT) } else { Ok(*id) };
        assert_eq!(sem::get(c, *key, 0, 0), expected);
    }
    assert_eq!(sem::info(c).1.sets, 5000);
}

#[test]
fn an_id_is_not_given_twice_in_a_row() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let mut seen = BTreeSet::new();
    for _ in 0..2000 {
        let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        assert!(seen.insert(id), "{id:#x} came again");
        sem::remove(c, id).unwrap();
        assert_eq!(sem::getval(c, id, 0), Err(Errno::EINVAL));
        assert_eq!(sem::remove(c, id), Err(Errno::EINVAL));
    }
}

#[test]
fn a_full_table_says_so_and_recovers() {
    let world = World::new(4 << 20);
    let process = world.process();
    let c = &process.ctx();
    let capacity = world.pool().capacity(Kind::Shm);
    let ids: Vec<i32> = (0..).map_while(|_| shm::get(c, IPC_PRIVATE, 1, 0o600).ok()).collect();
    assert!(!ids.is_empty() && ids.len() <= capacity as usize);
    let full = shm::get(c, IPC_PRIVATE, 1, 0o600).unwrap_err();
    assert!(full == Errno::ENOSPC || full == Errno::ENOMEM);
    shm::remove(c, ids[0]).unwrap();
    assert!(shm::get(c, IPC_PRIVATE, 1, 0o600).is_ok());
}

/// Sets of two sizes in turn, one at a time: what each leaves is of use for the next.
#[test]
fn an_empty_pool_has_room_whatever_was_in_it() {
    let world = World::new(4 << 20);
    let process = world.process();
    let c = &process.ctx();
    let most = most_semaphores(c);
    for round in 0..20_000 {
        c.budget.renew();
        let count = [3, 70, 1 + round % 200][round as usize % 3];
        let id = sem::get(c, IPC_PRIVATE, count, 0o600).unwrap();
        sem::remove(c, id).unwrap();
    }
    assert_eq!(most_semaphores(c), most);
    assert!(most > 10_000);
}

/// Semaphores of the largest set there is room for, among those whose number is a multiple of 100.
fn most_semaphores(c: &Ctx) -> i32 {
    let made = (100..=32_000).rev().step_by(100).find_map(|count| {
        c.budget.renew();
        let id = sem::get(c, IPC_PRIVATE, count, 0o600).ok()?;
        Some((count, id))
    });
    let (count, id) = made.unwrap();
    sem::remove(c, id).unwrap();
    count
}

/// Segments of several sizes in turn, of a machine, which can't make pages read as zeros again: what each
/// leaves is of use for the next.
#[test]
fn an_empty_pool_has_room_whatever_machines_had_in_it() {
    let world = World::new(16 << 20);
    let process = world.process();
    process.move_into_machine();
    let c = &process.ctx();
    for round in 0..3000 {
        c.budget.renew();
        let pages = [19, 2, 1 + round % 40][round % 3];
        let id = shm::get(c, IPC_PRIVATE, pages << 12, 0o600).unwrap();
        shm::remove(c, id).unwrap();
    }
    assert!(shm::get(c, IPC_PRIVATE, 4 << 20, 0o600).is_ok());
}
