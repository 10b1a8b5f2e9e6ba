//! Segments that are mapped by processes which nobody has counted.

use super::check::findings;
use crate::testing::{Process, World};
use crate::{liveness, shm, Ctx, Errno, IPC_PRIVATE};
use vshmem_pool::layout::PAGE;
use vshmem_pool::lock::SignalsBlocked;

/// A removed segment of most of the pool, attached by a source that something is mapped by.
fn removed(w: &World, c: &Ctx, source: u64) -> i32 {
    let size = u64::from(w.pool().geometry().pages.count) * PAGE / 4 * 3;
    let id = shm::get(c, IPC_PRIVATE, size as usize, 0o600).unwrap();
    shm::attach_by(c, id, 0, source).unwrap();
    shm::remove(c, id).unwrap();
    w.map_by(source, true);
    id
}

/// Is a segment kept, and so all of its memory?
fn is_kept(process: &Process, id: i32) -> bool {
    let c = &process.ctx();
    let kept = shm::stat(c, id).map(|ds| assert_eq!(ds.nattch, 0)).is_ok();
    let pages = c.pool.geometry().pages.count;
    let another = shm::get(c, IPC_PRIVATE, pages as usize / 2 * PAGE as usize, 0o600);
    assert_eq!(another.is_err(), kept, "{another:?}");
    if let Ok(another) = another {
        shm::remove(c, another).unwrap();
    }
    assert_eq!(findings(process), []);
    kept
}

#[test]
fn what_the_dead_had_stays_as_long_as_it_is_mapped() {
    let w = World::new(4 << 20);
    let (a, b) = (w.process(), w.process());
    let id = removed(&w, &a.ctx(), 5);
    a.kill();
    liveness::reap(&b.ctx(), a.id().slot);
    assert!(is_kept(&b, id));
    // Its slot is another's by now.
    let other = w.process();
    assert!(is_kept(&other, id));
    w.map_by(5, false);
    assert!(!is_kept(&b, id));
}

#[test]
fn what_was_detached_stays_if_there_may_be_heirs() {
    let w = World::new(4 << 20);
    let a = w.process();
    let c = &a.ctx();
    let id = removed(&w, c, 5);
    shm::detach_by(c, id, 5, true);
    assert!(is_kept(&a, id));
    // By another source it can be attached and detached meanwhile.
    shm::attach_by(c, id, 0, 6).unwrap();
    assert_eq!(shm::stat(c, id).unwrap().nattch, 1);
    shm::detach_by(c, id, 6, false);
    assert!(is_kept(&a, id));
    w.map_by(5, false);
    liveness::reap_inherited(c);
    assert_eq!(shm::look(c, id, 0), Err(Errno::EINVAL));

    let id = removed(&w, c, 7);
    shm::detach_by(c, id, 7, false);
    assert!(!is_kept(&a, id), "there are none");
    let id = removed(&w, c, 8);
    w.map_by(8, false);
    shm::detach_by(c, id, 8, true);
    assert!(!is_kept(&a, id), "there may have been");
}

#[test]
fn a_dead_child_leaves_no_record_beside_its_parents() {
    let w = World::new(4 << 20);
    let a = w.process();
    let id = removed(&w, &a.ctx(), 5);
    for _ in 0..3 {
        let b = w.process();
        assert_eq!(shm::fork(&a.ctx(), &SignalsBlocked::hurried(&*a), b.id(), &|_, _| 0), Ok(()));
        b.kill();
        liveness::reap(&a.ctx(), b.id().slot);
    }
    assert_eq!(shm::stat(&a.ctx(), id).unwrap().nattch, 1);
    // Others are mapped by the source, and there are no heirs.
    shm::detach_by(&a.ctx(), id, 5, false);
    assert!(!is_kept(&a, id));
}

#[test]
fn a_segment_that_is_removed_later_stays_too() {
    let w = World::new(4 << 20);
    let a = w.process();
    let c = &a.ctx();
    let id = shm::get(c, IPC_PRIVATE, 5000, 0o600).unwrap();
    shm::attach_by(c, id, 0, 5).unwrap();
    w.map_by(5, true);
    shm::detach_by(c, id, 5, true);
    shm::remove(c, id).unwrap();
    assert_eq!(shm::stat(c, id).unwrap().nattch, 0);
    w.map_by(5, false);
    assert_eq!(shm::stat(c, id).err(), Some(Errno::EINVAL));
    assert_eq!(findings(&a), []);
}

#[test]
fn a_child_that_is_counted_has_the_same_sources() {
    let w = World::new(4 << 20);
    let (a, b) = (w.process(), w.process());
    let id = removed(&w, &a.ctx(), 5);
    shm::attach_by(&a.ctx(), id, 0, 6).unwrap();
    w.map_by(6, true);
    assert_eq!(shm::fork(&a.ctx(), &SignalsBlocked::hurried(&*a), b.id(), &|_, _| 0), Ok(()));
    assert_eq!(shm::stat(&a.ctx(), id).unwrap().nattch, 4);
    a.kill();
    assert_eq!(shm::stat(&b.ctx(), id).unwrap().nattch, 2);
    b.kill();
    let other = w.process();
    assert!(is_kept(&other, id));
    w.map_by(6, false);
    assert!(is_kept(&other, id));
    w.map_by(5, false);
    assert!(!is_kept(&other, id));
}

/// A note that is left where the pool's lock is not to be had says whether there may be heirs, for the
/// process that takes it off.
#[test]
fn what_is_noted_says_whether_there_may_be_heirs() {
    let w = World::new(4 << 20);
    let (a, b) = (w.process(), w.process());
    let c = &a.ctx();
    for has_heirs in [false, true] {
        let id = removed(&w, c, 5);
        // Another source is attached and given up beside it.
        shm::attach_by(c, id, 0, 6).unwrap();
        for (source, has_heirs) in [(6, false), (5, has_heirs)] {
            assert!(shm::note_detached(c, &shm::Detached { id, source, n: 1, has_heirs }));
        }
        assert_eq!(is_kept(&b, id), has_heirs);
        w.map_by(5, false);
        assert!(!is_kept(&b, id));
    }
}

/// A process is known to have a segment attached as long as it has it by any source.
#[test]
fn what_is_attached_by_another_source_is_still_known() {
    let w = World::new(4 << 20);
    let (a, b) = (w.process(), w.process());
    let c = &a.ctx();
    let id = removed(&w, c, 5);
    shm::attach_by(c, id, 0, 6).unwrap();
    shm::detach_by(c, id, 6, false);
    // Again, as a call that was interrupted begins again.
    for _ in 0..2 {
        assert_eq!(shm::fork(c, &SignalsBlocked::hurried(&*a), b.id(), &|_, _| 0), Ok(()));
        assert_eq!(shm::inherit(&b.ctx(), &SignalsBlocked::hurried(&*b), id, 5, 1), Ok(()));
    }
    assert_eq!(shm::stat(c, id).unwrap().nattch, 2);
    w.map_by(5, false);
    a.kill();
    b.kill();
    let other = w.process();
    liveness::reap(&other.ctx(), a.id().slot);
    liveness::reap(&other.ctx(), b.id().slot);
    assert_eq!(shm::look(&other.ctx(), id, 0), Err(Errno::EINVAL));
}

/// However many children of the kernel's making come and go, there is one record for those that may have
/// heirs.
#[test]
fn children_that_nobody_counted_leave_one_record() {
    let w = World::new(4 << 20);
    let a = w.process();
    let c = &a.ctx();
    let id = removed(&w, c, 5);
    let segment = w.pool().shm(c.pool.ids().index(id)).unwrap();
    let records = || {
        let mut n = 0;
        shm::each_hold(c, segment, |_, _| {
            n += 1;
            false
        });
        n
    };
    for _ in 0..20 {
        let child = w.process();
        assert_eq!(shm::inherit(&child.ctx(), &SignalsBlocked::hurried(&*child), id, 5, 1), Ok(()));
        assert_eq!(records(), 2);
        child.kill();
        liveness::reap(c, child.id().slot);
        assert_eq!(records(), 1);
    }
    assert_eq!(shm::stat(c, id).unwrap().nattch, 1);
    // One of them may have had an heir.
    shm::detach_by(c, id, 5, false);
    assert!(is_kept(&a, id));
    w.map_by(5, false);
    assert!(!is_kept(&a, id));
}

/// A counted child's word about its heirs is not forgotten with it.
#[test]
fn heirs_of_a_child_that_detaches_keep_the_segment() {
    let w = World::new(4 << 20);
    let (a, b) = (w.process(), w.process());
    let id = removed(&w, &a.ctx(), 5);
    assert_eq!(shm::fork(&a.ctx(), &SignalsBlocked::hurried(&*a), b.id(), &|_, _| 0), Ok(()));
    shm::detach_by(&b.ctx(), id, 5, true);
    shm::detach_by(&a.ctx(), id, 5, false);
    assert!(is_kept(&a, id));
    w.map_by(5, false);
    assert!(!is_kept(&a, id));
}
