//! Pools with very many IPC objects: what is done costs what it costs where there are ten, nothing is lost
//! when somebody dies there, and an id does not come back sooner.
//!
//! A million takes minutes, so there are as many as `VSHMEM_MANY` says, else a few hundred thousand.

use super::sem::undone;
use crate::testing::World;
use crate::{check, liveness, msg, sem, shm, Budget, Ctx, Errno, IPC_CREAT, IPC_EXCL, IPC_PRIVATE};
use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;
use vshmem_pool::budget::CALL;
use vshmem_pool::layout::{Kind, LEAST_INDEX_BITS, MAX_ENTRIES, SEQ_BITS};
use vshmem_pool::{Limits, Params};

fn many() -> u32 {
    std::env::var("VSHMEM_MANY").map_or(150_000, |n| n.parse().expect("a number"))
}

/// A pool with room for so many sets, and queues.
fn world(most: u32) -> World {
    let limits = Limits { semmni: most, msgmni: most, ..Limits::default() };
    let len = (most as usize * 5120).next_multiple_of(2 << 20);
    World::with(len, &Params { limits, ..Params::default() }, |_| {}).unwrap()
}

/// A key as `ftok` makes them: they differ in bits of both ends.
fn key(i: u32) -> i32 {
    (i + 1).rotate_left(17) as i32
}

fn make(c: &Ctx, i: u32) -> i32 {
    c.budget.renew();
    sem::get(c, key(i), 1, IPC_CREAT | IPC_EXCL | 0o600).unwrap()
}

/// The average cost of the calls, in units of the budget.
fn cost<'a>(c: &Ctx, which: impl IntoIterator<Item = &'a u32>, mut call: impl FnMut(u32)) -> f64 {
    let (mut spent, mut calls) = (0, 0);
    for i in which {
        c.budget.renew();
        call(*i);
        spent += CALL - c.budget.left();
        calls += 1;
    }
    f64::from(u32::try_from(spent).unwrap()) / f64::from(calls)
}

/// The costs of a look-up by key, an operation by id, and removing and making a set again.
fn costs(c: &Ctx, which: &[u32], ids: &mut [i32]) -> [f64; 3] {
    let by_key = cost(c, which, |i| assert_eq!(sem::get(c, key(i), 0, 0), Ok(ids[i as usize])));
    let by_id = cost(c, which, |i| assert_eq!(sem::getval(c, ids[i as usize], 0), Ok(0)));
    let anew = cost(c, which, |i| {
        sem::remove(c, ids[i as usize]).unwrap();
        ids[i as usize] = sem::get(c, key(i), 1, IPC_CREAT | IPC_EXCL | 0o600).unwrap();
    });
    [by_key, by_id, anew]
}

/// Checks that nothing in the pool is lost or damaged.
fn is_whole(c: &Ctx) {
    let c = &Ctx { budget: Budget::new(1 << 40), ..c.clone() };
    check::repair(c).unwrap();
    let mut scratch = vec![0; check::scratch_for(c.pool)];
    check::inspect(c, &mut scratch, |found| panic!("{found}")).unwrap();
}

#[test]
fn what_is_done_costs_what_it_costs_among_ten() {
    let n = many();
    let world = world(n + 100);
    let process = world.process();
    let c = &process.ctx();
    let mut ids: Vec<i32> = (0..10).map(|i| make(c, i)).collect();
    // The first use of an entry is not that of others.
    let ten: Vec<u32> = (0..10).collect();
    costs(c, &ten, &mut ids);
    let among_ten = costs(c, &ten, &mut ids);
    ids.extend((10..n).map(|i| make(c, i)));
    let some: Vec<u32> = (0..1000).map(|i| (i as u64 * 7919 * 131 % u64::from(n)) as u32).collect();
    let among_many = costs(c, &some, &mut ids);
    std::println!("units: {among_ten:?} among 10, {among_many:?} among {n}");
    for (few, many) in among_ten.into_iter().zip(among_many) {
        assert!(many <= 1.5 * few, "{among_ten:?} among 10, {among_many:?} among {n}");
    }
    // As it fills up, as what walks through all does it, and as it is looked over.
    c.budget.renew();
    assert_eq!(sem::info(c).1.sets, n.into());
    assert!(c.budget.left() > CALL / 2);
    who_has_used_sets_everywhere(&world, &ids);
    who_dies_while_a_set_is_made(&world, n);
    is_whole(c);
}

/// A process that knows more sets than its list holds dies: the next process finds what it owes.
fn who_has_used_sets_everywhere(world: &World, ids: &[i32]) {
    let (dead, other) = (world.process(), world.process());
    let c = &other.ctx();
    let used: Vec<i32> = ids.iter().step_by(ids.len() / 60).copied().collect();
    for id in &used {
        sem::op(&dead.ctx(), *id, &[undone(0, 1)], None).unwrap();
        assert_eq!(sem::getval(c, *id, 0), Ok(1));
    }
    dead.kill();
    let c = &Ctx { budget: Budget::new(CALL / 2), ..c.clone() };
    liveness::reap(c, dead.id().slot);
    assert!(!c.budget.is_spent() && c.process(dead.id().slot).is_none());
    c.budget.renew();
    assert!(used.iter().all(|id| sem::getval(c, *id, 0) == Ok(0)));
}

/// Killed at each of its calls to the kernel.
fn who_dies_while_a_set_is_made(world: &World, n: u32) {
    let survivor = world.process();
    let c = &survivor.ctx();
    for call in 1.. {
        let victim = world.process();
        victim.kill_at_call(call);
        let made = victim.start(move |c| sem::get(c, key(n), 1, IPC_CREAT | 0o600)).result_or_death();
        victim.kill();
        c.budget.renew();
        let id = sem::get(c, key(n), 1, IPC_CREAT | 0o600).unwrap();
        assert!(made.is_none_or(|made| made == Ok(id)));
        sem::remove(c, id).unwrap();
        assert_eq!(sem::get(c, key(n), 1, 0), Err(Errno::ENOENT));
        if made.is_some() {
            assert!(call > 2, "it was hardly ever killed in the middle");
            return;
        }
    }
}

/// Sets that come and go beside so many others: after how many removals does an id come back?
fn removals_until_an_id_comes_back(world: &World, live: usize) -> u32 {
    let process = world.process();
    let c = &process.ctx();
    let (mut last, mut removals, mut soonest) = (BTreeMap::new(), 0, u32::MAX);
    let mut alive = VecDeque::new();
    while removals < 2 << SEQ_BITS {
        c.budget.renew();
        let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        if let Some(before) = last.insert(id, removals) {
            soonest = soonest.min(removals - before);
        }
        alive.push_back(id);
        if alive.len() > live {
            // Now one that is there for long, now the one that has just come.
            let id = if removals % 7 < 4 { alive.pop_front() } else { alive.pop_back() };
            sem::remove(c, id.unwrap()).unwrap();
            removals += 1;
        }
    }
    soonest
}

#[test]
fn an_id_comes_back_after_as_many_removals_whatever_is_the_size_of_the_tables() {
    for most in [1 << 17, (1 << 17) + 1, MAX_ENTRIES] {
        let limits = Limits { semmni: most, ..Limits::default() };
        let params = Params { limits, ..Params::default() };
        for live in [0, 5] {
            let world = World::with(most as usize * 3328, &params, |_| {}).unwrap();
            assert_eq!(world.pool().limits().semmni, most);
            let soonest = removals_until_an_id_comes_back(&world, live);
            assert!(soonest >= 1 << SEQ_BITS, "{most}, {live}: {soonest}");
            assert!(live > 0 || soonest == 1 << SEQ_BITS, "{most}: {soonest}");
        }
    }
}

#[test]
fn an_ordinary_pool_uses_the_entry_again_that_became_free_last() {
    let world = World::new(4 << 20);
    let process = world.process();
    let c = &process.ctx();
    let ids: Vec<i32> = (0..3).map(|_| msg::get(c, IPC_PRIVATE, 0o600).unwrap()).collect();
    assert_eq!(ids, [0x4002_0000, 0x4002_0001, 0x4002_0002]);
    for (id, next) in [(ids[0], 0x4004_0000), (ids[2], 0x4004_0002), (ids[1], 0x4004_0001)] {
        msg::remove(c, id).unwrap();
        assert_eq!(msg::get(c, IPC_PRIVATE, 0o600), Ok(next));
    }
}

#[test]
fn a_table_that_is_full_but_for_a_few_uses_these() {
    let most = (1 << LEAST_INDEX_BITS) + 1;
    let limits = Limits { shmmni: most, ..Limits::default() };
    let world = World::with(1 << 30, &Params { limits, ..Params::default() }, |_| {}).unwrap();
    let process = world.process();
    let c = &process.ctx();
    let root = c.pool.kind_root(Kind::Shm);
    // So many were used that two are left, and all of them are in use.
    root.high.store(u64::from(most) - 2, vshmem_pool::atomic::Ordering::Relaxed);
    root.used.store(u64::from(most) - 2, vshmem_pool::atomic::Ordering::Relaxed);
    let make = || shm::get(c, IPC_PRIVATE, 1, 0o600);
    let ids = [make().unwrap(), make().unwrap()];
    assert_eq!(make(), Err(Errno::ENOSPC));
    c.budget.renew();
    for id in ids {
        shm::remove(c, id).unwrap();
        let next = make().unwrap();
        assert_eq!(c.pool.ids().index(next), c.pool.ids().index(id));
        assert_ne!(next, id);
    }
}
