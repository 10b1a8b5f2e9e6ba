//! A file system that is full: what has no memory is not written to, and the call says so.

use super::msg::{receive, send};
use super::sem::{op, undone};
use crate::testing::World;
use crate::{liveness, msg, sem, shm, Ctx, Errno, IPC_CREAT, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::collections::BTreeSet;
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::SeqCst;
use vshmem_pool::layout::{PAGE, TABLES};
use vshmem_pool::lock::SignalsBlocked;

/// Enough for tables that are longer than a page.
const SIZE: usize = 16 << 20;

fn pages(from: u64, len: u64) -> impl Iterator<Item = u64> {
    from / PAGE..(from + len).div_ceil(PAGE)
}

/// Pages that have no memory when a pool was made: all but the root, its log, the members, and what is not 0.
fn without_memory(world: &World) -> BTreeSet<u64> {
    let members = world.pool().geometry().members.0;
    let mut all: BTreeSet<u64> = pages(0, SIZE as u64).collect();
    pages(0, TABLES).chain(pages(members, PAGE)).for_each(|page| assert!(all.remove(&page)));
    for page in world.written_unreserved(&all.clone()) {
        all.remove(&page);
    }
    all
}

/// Makes and uses one of each kind and removes it. The first thing that there was no room for.
fn use_everything(c: &Ctx) -> Result<(), Errno> {
    let set = sem::get(c, 1, 500, IPC_CREAT | 0o600)?;
    let used = sem::op(c, set, &[undone(0, 1), op(499, 1)], None);
    let waited = sem::op(c, set, &[op(1, -1)], Some(Duration::from_micros(1)));
    sem::remove(c, set)?;
    let queue = msg::get(c, 1, IPC_CREAT | 0o600)?;
    let sent = send(c, queue, 1, &[1; 5000]);
    let received = receive(c, queue, 5000, 0, IPC_NOWAIT);
    msg::remove(c, queue)?;
    let segments: Vec<_> = [5000, 300_000, 3 << 20].map(|size| shm::get(c, IPC_PRIVATE, size, 0o600)).into();
    for id in segments.iter().flatten() {
        let attached = shm::attach(c, *id, 0);
        shm::remove(c, *id)?;
        if attached.is_ok() {
            shm::detach(c, *id);
        }
    }
    liveness::free_up(c, &SignalsBlocked::new(c.kernel));
    used?;
    assert!(matches!(waited, Err(Errno::EAGAIN | Errno::ENOMEM)), "{waited:?}");
    waited.or(Ok(())).and(sent)?;
    received?;
    segments.into_iter().try_for_each(|id| id.map(|_| ()))
}

/// Memory runs out after each of the reservations in turn.
#[test]
fn nothing_is_written_to_that_has_no_memory() {
    for n in 0..1000 {
        let world = World::new(SIZE);
        let empty = without_memory(&world);
        assert!(empty.len() > 3000, "a pool is sparse");
        world.reservations_left(n);
        let done = match world.try_process() {
            Some(process) => use_everything(&process.ctx()),
            None => Err(Errno::ENOMEM),
        };
        assert_eq!(world.written_unreserved(&empty), [], "after {n}, {done:?}");
        let enough = world.reservations_left_over();
        // When there is memory again, everything goes on, and nothing was lost.
        world.reservations_left(i64::MAX);
        let process = world.process();
        assert_eq!(use_everything(&process.ctx()), Ok(()), "after {n}");
        assert_eq!(world.written_unreserved(&empty), [], "after {n}");
        assert_eq!(sem::info(&process.ctx()).1, sem::SemInfo::default());
        assert_eq!(msg::info(&process.ctx()).1, msg::MsgInfo::default());
        assert_eq!(shm::info(&process.ctx()).1, shm::ShmInfo::default());
        if enough {
            assert_eq!(done, Ok(()));
            assert!(n > 5, "hardly anything was reserved");
            return;
        }
        assert!(matches!(done, Err(Errno::ENOMEM | Errno::ENOSPC)) || done.is_ok(), "{done:?}");
    }
    panic!("it reserves too often");
}

/// A machine dies of touching what can't have memory, whoever has made it.
#[test]
fn segments_that_a_machine_can_touch_have_all_their_memory() {
    for (in_machine, shared) in [(false, false), (true, false), (false, true)] {
        let world = World::new(SIZE);
        let process = world.process();
        if in_machine {
            process.move_into_machine();
        }
        if shared {
            world.pool().join([9; 16], b"machine").unwrap();
        }
        let c = &process.ctx();
        for flags in [0, shm::SHM_NORESERVE] {
            let empty = without_memory(&world);
            let id = shm::get(c, IPC_PRIVATE, 1 << 20, 0o600 | flags).unwrap();
            let extent = shm::look(c, id, 0).unwrap();
            assert!(world.pool().mem().zero(extent.offset, 1));
            let word = world.pool().mem().word_anywhere(extent.offset).unwrap();
            word.store(1, SeqCst);
            let has_memory = world.written_unreserved(&empty).is_empty();
            assert_eq!(has_memory, in_machine || shared, "flags {flags:o}");
            word.store(0, SeqCst);
        }
    }
}

/// Two small segments that were used leave few pages with memory, far from each other, in what becomes one
/// range.
#[test]
fn large_segments_get_no_memory_for_what_lies_between_used_pages() {
    const PAGES: u64 = 2534;
    for flags in [0, shm::SHM_NORESERVE] {
        let world = World::new(32 << 20);
        let process = world.process();
        let c = &process.ctx();
        let get = |pages: u64| shm::get(c, IPC_PRIVATE, (pages * PAGE) as usize, 0o600 | flags).unwrap();
        let row = [17, PAGES - 34, 17, 17].map(get);
        for gap in [row[0], row[2]] {
            shm::remove(c, gap).unwrap();
        }
        let small = [16, 16].map(get);
        let used = small.map(|id| shm::look(c, id, 0).unwrap());
        for extent in &used {
            world.pool().mem().word_anywhere(extent.offset).unwrap().store(7, SeqCst);
        }
        for id in small.into_iter().chain([row[1]]) {
            shm::remove(c, id).unwrap();
        }
        assert!(used[0].offset.abs_diff(used[1].offset) > 2400 * PAGE);
        let large = shm::look(c, get(PAGES), 0).unwrap();
        let lies_there = |used: &shm::Extent| (large.offset..large.offset + large.len).contains(&used.offset);
        assert!(used.iter().all(lies_there));
        let memory = world.memory_of(large.offset, large.len);
        assert!(memory <= 64, "flags {flags:o}: {memory} pages");
        for extent in used {
            assert_eq!(world.pool().mem().word_anywhere(extent.offset).unwrap().load(SeqCst), 0);
        }
    }
}

/// No memory is needed to give back what was taken.
#[test]
fn removing_needs_no_memory() {
    let world = World::new(SIZE);
    let empty = without_memory(&world);
    let process = world.process();
    let c = &process.ctx();
    let heap = world.pool().geometry().pages;
    let before = heap.free_blocks(world.pool());
    let ids: Vec<i32> = (1..44).map(|i| shm::get(c, IPC_PRIVATE, i * 5000, 0o600).unwrap()).collect();
    world.reservations_left(0);
    // In an order in which neighbours are put together late.
    for i in 0..ids.len() {
        shm::remove(c, ids[i * 7 % ids.len()]).unwrap();
    }
    assert_eq!(heap.free_blocks(world.pool()), before);
    assert_eq!(world.written_unreserved(&empty), []);
}

/// In a machine each reservation is a request to the host.
#[test]
fn a_small_segment_of_used_pages_reserves_them_once() {
    let world = World::new(SIZE);
    let process = world.process();
    let c = &process.ctx();
    let get = || shm::get(c, IPC_PRIVATE, PAGE as usize, 0o600);
    let first = get().unwrap();
    let used = shm::look(c, first, 0).unwrap();
    world.pool().mem().word_anywhere(used.offset).unwrap().store(7, SeqCst);
    shm::remove(c, first).unwrap();
    world.reservations_left(1);
    let again = shm::look(c, get().unwrap(), 0).unwrap();
    assert_eq!(again.offset, used.offset);
    assert_eq!(world.pool().mem().word_anywhere(used.offset).unwrap().load(SeqCst), 0);
}
