//! A pool whose words were chosen by an enemy: calls may fail, but must come back and touch nothing outside
//! of the pool.

use super::msg::{receive, send};
use super::sem::op;
use crate::testing::World;
use crate::{msg, sem, shm, Ctx, IPC_CREAT, IPC_NOWAIT};
use core::mem::offset_of;
use core::time::Duration;
use vshmem_pool::atomic::{AtomicU64, Ordering::Relaxed};
use vshmem_pool::layout::{Superblock, PAGE};
use vshmem_pool::{Mem, Params};

const SIZE: usize = 1 << 20;

/// One call of each kind. What they return is the enemy's business, that they return is ours.
fn use_everything(c: &Ctx) {
    let soon = Some(Duration::from_micros(1));
    for key in [1, 2] {
        if let Ok(id) = sem::get(c, key, 3, IPC_CREAT | 0o600) {
            c.budget.renew();
            let _ = sem::op(c, id, &[op(0, 1)], soon);
            c.budget.renew();
            let _ = sem::op(c, id, &[super::sem::undone(0, 1), op(2, 1)], soon);
            c.budget.renew();
            let _ = sem::op(c, id, &[op(1, -1)], soon);
            c.budget.renew();
            let _ = sem::getall(c, id, &mut |_, _| true);
            c.budget.renew();
            let _ = sem::stat(c, id);
        }
        if let Ok(id) = msg::get(c, key, IPC_CREAT | 0o600) {
            c.budget.renew();
            let _ = send(c, id, 1, b"short");
            c.budget.renew();
            let _ = send(c, id, 2, &[2; 1000]);
            c.budget.renew();
            let _ = receive(c, id, 1000, 2, IPC_NOWAIT);
            c.budget.renew();
            let _ = receive(c, id, 10, 0, IPC_NOWAIT);
            c.budget.renew();
            let _ = msg::stat(c, id);
        }
        if let Ok(id) = shm::get(c, key, 5000, IPC_CREAT | 0o600) {
            if let Ok(extent) = shm::attach(c, id, 0) {
                assert!(c.pool.mem().range(extent.offset, extent.len).is_some());
            }
            c.budget.renew();
            let _ = shm::stat(c, id);
            shm::detach(c, id);
        }
    }
    c.budget.renew();
    let _ = (sem::info(c), msg::info(c), shm::info(c));
    for key in [1, 2] {
        c.budget.renew();
        let _ = sem::get(c, key, 0, 0).map(|id| sem::remove(c, id));
        c.budget.renew();
        let _ = msg::get(c, key, 0).map(|id| msg::remove(c, id));
        c.budget.renew();
        let _ = shm::get(c, key, 0, 0).map(|id| shm::remove(c, id));
    }
    crate::leave(c);
}

/// Words that an enemy might write in the place of a good one.
fn bad_words(good: u64) -> impl Iterator<Item = u64> {
    let len = SIZE as u64;
    let near = [
        good.wrapping_sub(1),
        good.wrapping_add(1),
        good.wrapping_add(8),
        good.wrapping_add(PAGE),
        good.wrapping_sub(PAGE),
    ];
    let far = [0, 1, len - PAGE, len, u32::MAX as u64, 1 << 63, u64::MAX];
    near.into_iter().chain(far)
}

/// Opens and uses pools with one word of the head replaced.
fn replace_words(at: usize, count: u64) {
    fn words(mem: &Mem, at: usize, count: u64) -> &'static [AtomicU64] {
        mem.words(at as u64, count).unwrap()
    }
    let good = World::new(SIZE);
    let mut opened = 0;
    for (i, word) in words(good.pool().mem(), at, count).iter().enumerate() {
        for bad in bad_words(word.load(Relaxed)) {
            let world =
                World::with(SIZE, &Params::default(), |mem| words(&mem, at, count)[i].store(bad, Relaxed));
            let Ok(world) = world else { continue };
            opened += 1;
            if let Some(process) = world.try_process() {
                use_everything(&process.ctx());
            }
        }
    }
    assert!(opened > 0, "no such pool could be opened: nothing was tested");
}

#[test]
fn a_geometry_of_an_enemy_does_no_harm() {
    replace_words(offset_of!(Superblock, geometry), 24);
}

#[test]
fn limits_of_an_enemy_do_no_harm() {
    replace_words(offset_of!(Superblock, limits), 12);
}
