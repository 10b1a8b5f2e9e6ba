//! Keys, ids and what `*get` says of them.

use crate::testing::World;
use crate::{sem, shm, Errno, IPC_CREAT, IPC_EXCL, IPC_PRIVATE};
use std::collections::BTreeSet;
use std::vec::Vec;
use vshmem_pool::layout::Kind;

#[test]
fn ten_thousand_keys_are_found_again() {
    let world = World::new(64 << 20);
    let process = world.process();
    let c = &process.ctx();
    // Multiples of a large power of two, as ftok makes them, are what a poor hash would put into one chain.
    let keys: Vec<i32> = (1..=10_000).map(|i| i << 17 | i).collect();
    let ids: Vec<i32> = keys
        .iter()
        .map(|k| sem::get(c, *k, 1, IPC_CREAT | IPC_EXCL | 0o600).unwrap())
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert!(ids.iter().all(|id| crate::is_ours(*id)));
    for (key, id) in keys.iter().zip(&ids) {
        assert_eq!(sem::get(c, *key, 0, 0), Ok(*id));
    }
    assert_eq!(sem::get(c, 5, 1, 0), Err(Errno::ENOENT));
    assert_eq!(
        sem::get(c, keys[77], 1, IPC_CREAT | IPC_EXCL | 0o600),
        Err(Errno::EEXIST)
    );
    for id in ids.iter().step_by(2) {
        sem::remove(c, *id).unwrap();
    }
    for (i, (key, id)) in keys.iter().zip(&ids).enumerate() {
        let expected = if i % 2 == 0 {
            Err(Errno::ENOENT)
        } else {
            Ok(*id)
        };
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
    let ids: Vec<i32> = (0..)
        .map_while(|_| shm::get(c, IPC_PRIVATE, 1, 0o600).ok())
        .collect();
    assert!(!ids.is_empty() && ids.len() <= capacity as usize);
    let full = shm::get(c, IPC_PRIVATE, 1, 0o600).unwrap_err();
    assert!(full == Errno::ENOSPC || full == Errno::ENOMEM);
    shm::remove(c, ids[0]).unwrap();
    assert!(shm::get(c, IPC_PRIVATE, 1, 0o600).is_ok());
}
