//! Segments: who has how many attachments.

use super::check::findings;
use super::death::{free, free_after_all};
use crate::shm::{self, SHM_DEST, SHM_RDONLY};
use crate::testing::{until, World};
use crate::{directory as dir, Cred, Errno, IPC_CREAT, IPC_PRIVATE};
use std::sync::mpsc::channel;
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::LOCK_NS;
use vshmem_pool::{Kernel, Params};

#[test]
fn attachments_are_counted() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let (c, d) = (&a.ctx(), &b.ctx());
    let id = shm::get(c, 5, 5000, IPC_CREAT | 0o600).unwrap();
    let extent = shm::attach(c, id, 0).unwrap();
    assert_eq!((extent.size, extent.len, extent.offset % 4096), (5000, 8192, 0));
    assert_eq!(shm::look(c, id, 0), Ok(extent));
    assert_eq!(shm::attach(d, id, 0), Ok(extent));
    assert_eq!(shm::attach(d, id, SHM_RDONLY), Ok(extent));
    let ds = shm::stat(c, id).unwrap();
    assert_eq!((ds.nattch, ds.size, ds.cpid, ds.lpid), (3, 5000, a.pid(), b.pid()));
    shm::detach(d, id);
    assert_eq!(shm::stat(c, id).unwrap().nattch, 2);
    // Those who have nothing attached take nothing away.
    shm::detach(c, id);
    shm::detach(c, id);
    assert_eq!(shm::stat(c, id).unwrap().nattch, 1);
    assert_eq!(shm::get(c, 5, 5001, 0), Err(Errno::EINVAL));
    assert_eq!(shm::get(c, 5, 0, 0), Ok(id));
    assert_eq!(shm::get(c, 6, 0, IPC_CREAT | 0o600), Err(Errno::EINVAL));
}

#[test]
fn what_no_pool_has_room_for_is_refused_as_by_the_kernel() {
    let world = World::new(1 << 20);
    let a = world.process();
    let get = |size: u64| shm::get(&a.ctx(), IPC_PRIVATE, size as usize, 0o600);
    let most = i64::MAX as u64;
    for size in [1 << 46, most - 4096, most - 4095, most] {
        assert_eq!(get(size), Err(Errno::ENOMEM), "{size:#x}");
    }
    // Of no file.
    for size in [most + 1, u64::MAX] {
        assert_eq!(get(size), Err(Errno::EINVAL), "{size:#x}");
    }
}

#[test]
fn a_fork_counts_for_the_child_too() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let (c, d) = (&a.ctx(), &b.ctx());
    let ids: Vec<i32> = (0..30).map(|_| shm::get(c, IPC_PRIVATE, 100, 0o600).unwrap()).collect();
    // More than a process remembers one by one.
    for id in &ids {
        shm::attach(c, *id, 0).unwrap();
    }
    shm::attach(c, ids[3], 0).unwrap();
    shm::fork(c, &SignalsBlocked::hurried(c.kernel), b.id(), &|_, _| 0).unwrap();
    assert_eq!(shm::stat(d, ids[0]).unwrap().nattch, 2);
    assert_eq!(shm::stat(d, ids[3]).unwrap().nattch, 4);
    assert_eq!(shm::stat(d, ids[29]).unwrap().nattch, 2);
    a.kill();
    assert_eq!(shm::stat(d, ids[3]).unwrap().nattch, 2);
    assert_eq!(shm::stat(d, ids[29]).unwrap().nattch, 1);
}

/// Such children are those of a server that forks for each request, and of a fuzzer.
#[test]
fn children_that_end_one_after_another_leave_no_records() {
    let world = World::new(4 << 20);
    let a = world.process();
    let c = &a.ctx();
    let id = shm::get(c, IPC_PRIVATE, 100, 0o600).unwrap();
    shm::attach(c, id, 0).unwrap();
    let children = c.pool.proc_slots() / 2;
    for _ in 0..children {
        let child = world.process();
        c.budget.renew();
        shm::fork(c, &SignalsBlocked::hurried(c.kernel), child.id(), &|_, _| 0).unwrap();
        child.kill();
    }
    let known = (0..c.pool.proc_slots()).filter(|slot| c.process(*slot).is_some()).count();
    assert!(children > 20 && known <= 5, "{known} of {children} have a slot");
}

#[test]
fn a_removed_segment_goes_with_the_last_attachment() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let (c, d) = (&a.ctx(), &b.ctx());
    let id = shm::get(c, 5, 1 << 16, IPC_CREAT | 0o666).unwrap();
    shm::attach(c, id, 0).unwrap();
    shm::attach(d, id, 0).unwrap();
    shm::remove(c, id).unwrap();
    assert_eq!(shm::get(c, 5, 0, 0), Err(Errno::ENOENT));
    let ds = shm::stat(c, id).unwrap();
    assert_eq!((ds.nattch, ds.perm.key, ds.perm.mode & SHM_DEST), (2, 0, SHM_DEST));
    // Attaching by id goes on, as on Linux.
    shm::attach(c, id, 0).unwrap();
    shm::detach(c, id);
    shm::detach(c, id);
    assert_eq!(shm::info(d).1.used_ids, 1);
    b.kill();
    assert_eq!(shm::info(c).1.used_ids, 0);
    assert_eq!(shm::stat(c, id), Err(Errno::EINVAL));
}

#[test]
fn all_pages_come_back_and_read_as_zeros() {
    let world = World::new(4 << 20);
    let p = world.process();
    let c = &p.ctx();
    let heap = world.pool().geometry().pages;
    for round in 0..20 {
        for size in [1usize, 4096, 70_000, 300_000, 1 << 20] {
            let id = shm::get(c, IPC_PRIVATE, size, 0o600).unwrap();
            let extent = shm::attach(c, id, 0).unwrap();
            let at = world.pool().mem().range(extent.offset, extent.len).unwrap();
            // SAFETY: the segment's bytes, which nobody else has.
            let bytes = unsafe { core::slice::from_raw_parts_mut(at, extent.len as usize) };
            assert!(bytes.iter().all(|b| *b == 0), "round {round}, {size} bytes");
            bytes.fill(round as u8 + 1);
            shm::remove(c, id).unwrap();
            shm::detach(c, id);
        }
    }
    assert_eq!(shm::info(c).1, shm::ShmInfo::default());
    assert_eq!(heap.free_blocks(world.pool()), u64::from(world.pool().pages_for_segments().1));
}

#[test]
fn aligned_segments_have_all_up_to_the_next_to_themselves() {
    let params = Params { align: 64 << 10, ..Params::default() };
    let world = World::with(2 << 20, &params, |_| {}).unwrap();
    let (a, b) = (world.process(), world.process());
    let (c, d) = (&a.ctx(), &b.ctx());
    let heap = world.pool().geometry().pages;
    for round in 0..20 {
        let mut taken = Vec::new();
        for size in [1, 4096, 65536, 65537, 200_000] {
            let id = shm::get(c, IPC_PRIVATE, size, 0o600).unwrap();
            let extent = shm::attach(d, id, 0).unwrap();
            let pages = (size as u64).next_multiple_of(4096);
            assert_eq!((extent.offset % (64 << 10), extent.len), (0, pages));
            let room = pages.next_multiple_of(64 << 10);
            let at = world.pool().mem().range(extent.offset, room).unwrap();
            // SAFETY: the segment's bytes, which nobody else has.
            let bytes = unsafe { core::slice::from_raw_parts_mut(at, room as usize) };
            assert!(bytes.iter().all(|b| *b == 0), "round {round}, {size} bytes");
            bytes.fill(7);
            taken.push((extent.offset, room, id));
        }
        let info = shm::info(c).1;
        assert_eq!((info.total, info.taken), (1 + 1 + 16 + 17 + 49, (1 + 1 + 1 + 2 + 4) * 16));
        assert_eq!(findings(&a), []);
        let ids: Vec<i32> = taken.iter().map(|taken| taken.2).collect();
        taken.sort();
        assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        for id in ids {
            shm::remove(c, id).unwrap();
            shm::detach(d, id);
        }
    }
    assert_eq!(heap.free_blocks(world.pool()), u64::from(world.pool().pages_for_segments().1));
    // One that lies elsewhere was not put there by this library.
    let id = shm::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
    let first = &c.shm(dir::lookup(c, Kind::Shm, id).unwrap().0).unwrap().first;
    first.store(first.load(Relaxed) + 1, Relaxed);
    assert_eq!(shm::look(c, id, 0), Err(Errno::EINVAL));
}

#[test]
fn permissions_say_how() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = shm::get(c, IPC_PRIVATE, 1, 0o604).unwrap();
    b.set_cred(Cred { uid: 9, gid: 9, caps: 0 });
    assert_eq!(shm::attach(&b.ctx(), id, 0), Err(Errno::EACCES));
    assert!(shm::attach(&b.ctx(), id, SHM_RDONLY).is_ok());
    assert_eq!(shm::remove(&b.ctx(), id), Err(Errno::EPERM));
    assert_eq!(shm::lock(&b.ctx(), id, true), Err(Errno::EPERM));
    assert_eq!(shm::stat(c, id).unwrap().nattch, 1);
    let huge = |caps| {
        b.set_cred(Cred { uid: 9, gid: 9, caps });
        shm::get(&b.ctx(), IPC_PRIVATE, 1, shm::SHM_HUGETLB | 0o600)
    };
    assert_eq!(huge(0), Err(Errno::EPERM));
    assert_eq!(huge(1 << 14), Err(Errno::ENOMEM));
}

/// Runs `act` while somebody who lives does not let go of the pool's lock.
fn while_the_lock_is_held(w: &World, act: impl FnOnce()) {
    let (let_go, told) = channel::<()>();
    let holder = w.process();
    let held = holder.start(move |c| {
        let signals = SignalsBlocked::new(c.kernel);
        let _guard = dir::lock(c, &signals).unwrap();
        let _ = told.recv();
    });
    until("it is held", || w.pool().root().lock.load(Relaxed) != 0);
    act();
    let_go.send(()).unwrap();
    held.result();
}

#[test]
fn what_is_detached_without_the_lock_counts_as_soon_as_somebody_has_it() {
    let w = World::new(1 << 20);
    let (a, b, child) = (w.process(), w.process(), w.process());
    let (c, d) = (&a.ctx(), &b.ctx());
    let id = shm::get(c, IPC_PRIVATE, 100, 0o600).unwrap();
    for _ in 0..3 {
        shm::attach(c, id, 0).unwrap();
    }
    shm::attach(d, id, 0).unwrap();
    a.hurry(5_000_000);
    b.hurry(5_000_000);
    while_the_lock_is_held(&w, || {
        shm::detach(c, id);
        shm::detach(c, id);
        shm::detach(d, id);
    });
    assert_eq!(findings(&b), []);
    // The child gets what its parent has left.
    shm::fork(c, &SignalsBlocked::hurried(c.kernel), child.id(), &|_, _| 0).unwrap();
    let ds = shm::stat(&child.ctx(), id).unwrap();
    assert_eq!(ds.nattch, 2);
    assert_eq!(shm::stat(c, id).unwrap().nattch, 2);
    // It is paid once: what comes later counts as always.
    shm::attach(c, id, 0).unwrap();
    shm::detach(c, id);
    assert_eq!(shm::stat(c, id).unwrap().nattch, 2);
    shm::detach(&child.ctx(), id);
    shm::remove(c, id).unwrap();
    while_the_lock_is_held(&w, || shm::detach(c, id));
    // That was the last one of a removed segment.
    assert_eq!(shm::info(d).1, shm::ShmInfo::default());
    assert_eq!(findings(&b), []);
}

#[test]
fn pages_whose_owner_does_not_get_the_lock_again_are_found() {
    let w = World::new(4 << 20);
    let (a, b) = (w.process(), w.process());
    let c = &a.ctx();
    let before = free(&w).1;
    let id = shm::get(c, IPC_PRIVATE, 1 << 20, 0o600).unwrap();
    let held_up = w.hold_releases();
    let removed = a.start(move |c| shm::remove(c, id));
    until("its memory is given back", || w.longest_release() > 0);
    // Not before: a process in a hurry may have no time to give memory back.
    a.hurry(5_000_000);
    while_the_lock_is_held(&w, || {
        drop(held_up);
        assert_eq!(removed.result(), Ok(()));
    });
    assert_eq!(shm::stat(c, id), Err(Errno::EINVAL));
    assert_eq!(free(&w).1, before - 256);
    assert_eq!(findings(&b).len(), 1, "what is to be done is seen");
    // A process that needs memory.
    assert_eq!(free_after_all(&w).1, before);
    assert_eq!(findings(&b), []);
}

#[test]
fn a_call_waits_in_vain_only_once() {
    let w = World::new(1 << 20);
    let p = w.process();
    let c = &p.ctx();
    let id = shm::get(c, IPC_PRIVATE, 100, 0o600).unwrap();
    while_the_lock_is_held(&w, || {
        w.hurry(20);
        let begun = p.monotonic();
        assert_eq!(shm::stat(c, id), Err(Errno::EIDRM));
        let waited = p.monotonic() - begun;
        w.hurry(1);
        assert!((LOCK_NS..LOCK_NS * 2).contains(&waited), "{waited}");
    });
    assert!(shm::stat(c, id).is_ok());
}
