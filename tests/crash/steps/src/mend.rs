//! What follows upon a death: survivors use the pool, mend it, look it over, and leave nothing in it.

use crate::image::{crash, first_death, is_fork};
use crate::world::{world, Process};
use core::sync::atomic::Ordering::SeqCst;
use vshmem_ipc::{check, msg, sem, shm, Ctx};
use vshmem_pool::layout::Kind;

/// The end of every scenario: somebody mends what is to be mended, and everything is in order then; when all
/// is removed, nothing is left.
pub fn finish() {
    let began = world().now();
    mend();
    inspect("after mending");
    let last = Process::new();
    last.call(remove_all);
    world().rest();
    for p in world().living() {
        let own = core::ptr::eq(p, last);
        if !own {
            p.call(|c| {
                if vshmem_ipc::leave(c) {
                    c.pool.free_process(c.me);
                }
            });
            p.kill();
        }
    }
    mend();
    inspect("when all is removed");
    let pool = world().pool();
    for kind in Kind::ALL {
        let used = pool.kind_root(kind).used.load(SeqCst);
        assert_eq!(used, 0, "{kind:?}: entries are left");
    }
    let geometry = pool.geometry();
    let small = pool.root().small_end.load(SeqCst);
    let (_, pages) = pool.pages_for_segments();
    for (heap, all) in [(&geometry.small, small), (&geometry.pages, pages.into())] {
        assert_eq!(heap.free_blocks(pool), all, "blocks are left");
    }
    let took = world().now() - began;
    assert!(took < 5_000_000_000, "mending took {took} ns");
}

/// A survivor mends; in forks it dies on the way, and another one does.
pub fn mend() {
    let survivor = Process::new();
    let mended = match first_death() {
        Some(n) if n % 2 == 0 => crash(survivor, use_all),
        Some(_) => crash(survivor, |c| check::repair(c).map(drop).expect("every lock is to be had")),
        None => None,
    };
    if mended.is_none() || is_fork() {
        // The survivor died, at the end at the latest.
        Process::new().call(use_all);
    }
    // Whoever waits looks around once more.
    let until = world().now() + 600_000_000;
    world().run(|| world().now() > until);
    let left = Process::new().call(|c| check::repair(c)).expect("every lock is to be had");
    assert!(left.is_nothing(), "who uses everything leaves something to be mended: {left:?}");
}

/// Uses everything there is, as programs do: so what the dead have left is mended.
fn use_all(c: &Ctx<'static>) {
    shm::info(c);
    sem::info(c);
    msg::info(c);
    for i in 0..=shm::highest(c) {
        let _ = shm::stat_index(c, i, true);
    }
    for i in 0..=sem::highest(c) {
        let _ = sem::stat_index(c, i, true);
    }
    for i in 0..=msg::highest(c) {
        let _ = msg::stat_index(c, i, true);
    }
    let signals = vshmem_pool::lock::SignalsBlocked::new(c.kernel);
    vshmem_ipc::liveness::free_up(c, &signals);
}

/// Nothing is wrong, as somebody sees it who comes for that.
pub fn inspect(when: &'static str) {
    inspect_as(Process::new(), when);
}

/// Nothing is wrong, as a process sees it that makes no call.
pub fn inspect_as(p: &'static Process, when: &'static str) {
    p.call(move |c| {
        let mut scratch = vec![0; check::scratch_for(c.pool)];
        let mut found = Vec::new();
        let seen = check::inspect(c, &mut scratch, |f| found.push(f.to_string()));
        assert_eq!(seen, Ok(()), "{when}");
        assert!(found.is_empty(), "{when}: {found:#?}");
    });
}

fn remove_all(c: &Ctx<'static>) {
    for i in 0..=shm::highest(c) {
        if let Ok((id, _)) = shm::stat_index(c, i, true) {
            let _ = shm::remove(c, id);
        }
    }
    for i in 0..=sem::highest(c) {
        if let Ok((id, _)) = sem::stat_index(c, i, true) {
            sem::remove(c, id).expect("a set is removed");
        }
    }
    for i in 0..=msg::highest(c) {
        if let Ok((id, _)) = msg::stat_index(c, i, true) {
            msg::remove(c, id).expect("a queue is removed");
        }
    }
}
