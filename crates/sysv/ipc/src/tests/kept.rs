//! Memory of destroyed segments that stays for the next ones, and what goes back.

use crate::testing::World;
use crate::{liveness, shm, Ctx, IPC_PRIVATE};
use vshmem_pool::atomic::Ordering::{Relaxed, SeqCst};
use vshmem_pool::layout::PAGE;

const SIZE: u64 = 1 << 20;

/// A segment with something in each of the first pages, in so many.
fn used(w: &World, c: &Ctx, pages: u64) -> (i32, shm::Extent) {
    let id = shm::get(c, IPC_PRIVATE, SIZE as usize, 0o600).unwrap();
    let extent = shm::attach(c, id, 0).unwrap();
    for page in 0..pages {
        w.pool().mem().word_anywhere(extent.offset + page * PAGE + 8).unwrap().store(7, SeqCst);
    }
    shm::detach(c, id);
    (id, extent)
}

fn is_zero(w: &World, extent: &shm::Extent) -> bool {
    let mut words = (extent.offset..extent.offset + extent.len).step_by(8);
    words.all(|at| w.pool().mem().word_anywhere(at).unwrap().load(SeqCst) == 0)
}

fn kept(w: &World) -> u64 {
    w.pool().root().kept.load(Relaxed)
}

#[test]
fn what_was_used_is_kept_and_reads_as_zeros_again() {
    let w = World::new(128 << 20);
    let process = w.process();
    let c = &process.ctx();
    let (id, before) = used(&w, c, SIZE / PAGE - 3);
    shm::remove(c, id).unwrap();
    assert_eq!((kept(&w), w.longest_release()), (SIZE / PAGE, 0));
    let (id, now) = used(&w, c, 0);
    assert_eq!(now, before);
    assert!(is_zero(&w, &now));
    assert_eq!((kept(&w), w.longest_release()), (3, 0), "three pages were taken to have none");
    shm::remove(c, id).unwrap();
}

#[test]
fn what_was_not_used_or_hardly_is_not_kept() {
    let w = World::new(128 << 20);
    let process = w.process();
    let c = &process.ctx();
    let (untouched, _) = used(&w, c, 0);
    shm::remove(c, untouched).unwrap();
    assert_eq!((kept(&w), w.longest_release()), (0, 0), "there is nothing to give back");
    let (sparse, extent) = used(&w, c, 1);
    shm::remove(c, sparse).unwrap();
    assert_eq!((kept(&w), w.longest_release()), (0, SIZE));
    assert!(is_zero(&w, &extent));
}

#[test]
fn no_more_is_kept_than_a_part_of_the_pool() {
    let w = World::new(128 << 20);
    let process = w.process();
    let c = &process.ctx();
    let all: [_; 12] = std::array::from_fn(|_| used(&w, c, SIZE / PAGE));
    for (id, _) in all {
        shm::remove(c, id).unwrap();
    }
    let most = u64::from(w.pool().geometry().pages.count) / 16;
    assert!(kept(&w) <= most && kept(&w) + SIZE / PAGE > most, "{} of {most}", kept(&w));
    assert!(w.longest_release() >= SIZE);
}

#[test]
fn it_goes_back_with_a_process_that_leaves_no_segment() {
    let w = World::new(128 << 20);
    let (a, b) = (w.process(), w.process());
    let (c, d) = (&a.ctx(), &b.ctx());
    let (first, extent) = used(&w, c, SIZE / PAGE);
    let (second, other) = used(&w, c, SIZE / PAGE);
    let (third, _) = used(&w, c, 1);
    shm::remove(c, first).unwrap();
    shm::remove(c, second).unwrap();
    assert!(liveness::leave(c));
    assert_eq!(kept(&w), 2 * SIZE / PAGE, "others have segments");
    shm::remove(d, third).unwrap();
    assert!(liveness::leave(d));
    assert_eq!(kept(&w), 0);
    let memory = [extent, other].map(|extent| d.kernel.backed(extent.offset, extent.len));
    assert_eq!(memory, [Some(0); 2]);
}
