//! Tests of the sizes that a program knows, and for how long it does.

use super::*;
use vshmem_pool::layout::{LEAST_INDEX_BITS as INDEX_BITS, MOST_INDEX_BITS};

const ID: i32 = 0x4000_0007;
/// A later IPC object at the same index.
const LATER: i32 = ID + (1 << INDEX_BITS);

#[test]
fn what_was_asked_for_is_known() {
    let told = Sizes::new();
    assert_eq!(told.known(0, ID), None, "nothing was told");
    assert_eq!(told.check(0, ID, 5), Ok(()), "nothing was told");
    told.got(0, ID, 5, 5);
    assert_eq!(told.known(0, ID), Some(5));
    for other in [0, 4, 6, 65535, NONE, 1 << 40] {
        assert_eq!(told.check(0, ID, other), Err(Errno::EIDRM));
    }
    assert_eq!(told.known(1, ID), None, "in another pool");
    assert_eq!(told.known(0, LATER), None);
    assert_eq!(told.stated(0, ID, 6), Err(Errno::EIDRM));
    assert_eq!(told.known(0, ID), Some(5), "the first size counts");
    assert_eq!(told.listed(0, ID, 6), Err(Errno::EIDRM));
    assert_eq!(told.known(0, ID), Some(5));
    told.forget(0, LATER);
    assert_eq!(told.known(0, ID), Some(5));
    told.forget(0, ID);
    assert_eq!(told.known(0, ID), None);
}

#[test]
fn what_was_found_is_known_once_it_is_told() {
    let told = Sizes::new();
    for (asked, id) in [(0, ID), (3, ID + 1)] {
        told.got(0, id, asked, 5);
        assert_eq!(told.known(0, id), None, "the program has not seen it");
        assert_eq!(told.check(0, id, 6), Err(Errno::EIDRM), "but it counts");
        assert_eq!(told.stated(0, id, 5), Ok(()));
        assert_eq!(told.known(0, id), Some(5));
        told.got(0, id, 0, 5);
        assert_eq!(told.known(0, id), Some(5));
    }
    told.got(0, ID + 2, 5, 4);
    assert_eq!(told.known(0, ID + 2), None, "less than was asked for");
    for size in [4, 5, NONE] {
        assert_eq!(told.check(0, ID + 2, size), Err(Errno::EIDRM));
    }
}

#[test]
fn two_sizes_are_none() {
    let told = Sizes::new();
    for asked in [0, 5, 6] {
        let id = ID + asked as i32;
        told.got(0, id, 5, 5);
        told.got(0, id, asked, 6);
        assert_eq!(told.known(0, id), None);
        for size in [5, 6, NONE] {
            assert_eq!(told.stated(0, id, size), Err(Errno::EIDRM));
            assert_eq!(told.known(0, id), None);
        }
        told.got(0, id, 5, 5);
        assert_eq!(told.known(0, id), None);
        told.got(0, id + (1 << INDEX_BITS), 5, 5);
        assert_eq!(told.known(0, id + (1 << INDEX_BITS)), Some(5));
    }
    told.got(0, LATER, 1 << 40, 1 << 40);
    assert_eq!(told.known(0, LATER), None, "too large to be remembered");
    assert_eq!(told.check(0, LATER, 1 << 40), Err(Errno::EIDRM));
}

#[test]
fn who_asked_for_less_relies_on_less() {
    let told = Sizes::new();
    // Two keys, which a member leads to one id: in either order, whatever comes between.
    for (i, asked) in [(0, [1000, 4]), (1, [4, 1000])] {
        told.got(0, ID + i, asked[0], 1000);
        told.got(0, ID + i, asked[1], 1000);
        for again in [0, 4, 1000] {
            assert_eq!(told.known(0, ID + i), None);
            assert_eq!(told.check(0, ID + i, 1000), Ok(()), "all else goes on");
            told.got(0, ID + i, again, 1000);
        }
        assert_eq!(told.stated(0, ID + i, 1000), Ok(()));
        assert_eq!(told.known(0, ID + i), Some(1000), "it was told");
    }
    // A program that asks for less and looks knows; not if it asks for less again and does not look.
    let id = ID + 2;
    for _ in 0..3 {
        told.got(0, id, 1, 5);
        assert_eq!(told.known(0, id), None);
        assert_eq!(told.stated(0, id, 5), Ok(()));
        assert_eq!(told.known(0, id), Some(5));
    }
    told.got(0, id, 0, 5);
    assert_eq!(told.known(0, id), Some(5), "who asks for nothing relies on nothing");
}

#[test]
fn nothing_is_forgotten_for_another() {
    let told = Sizes::new();
    let all = || (0..1 << INDEX_BITS).map(|index| 0x4000_0000 | index);
    for id in all() {
        told.got(7, id, 2, 2);
    }
    assert!(all().all(|id| told.known(7, id) == Some(2)));
    assert_eq!(told.listed(7, LATER, 65535), Ok(()));
    assert_eq!(told.known(7, LATER), None, "a list takes no place");
    // All later IPC objects of the index, and some of them again.
    let later = |n: i32| 0x4000_0000 | (ID + (n << INDEX_BITS)) & 0x3fff_ffff;
    for round in 0..2 {
        for n in (1..1 << SEQ_BITS).step_by(1 + 6 * round) {
            told.got(7, later(n), 3, 3);
            assert_eq!(told.known(7, later(n)), Some(3));
        }
    }
    assert_eq!(told.known(7, ID), Some(2));
    assert!((1..1 << SEQ_BITS).all(|n| told.known(7, later(n)) == Some(3)));
    for size in [1, 3, 1000] {
        assert_eq!(told.stated(7, ID, size), Err(Errno::EIDRM));
        assert_eq!(told.known(7, ID), Some(2));
    }
    told.forget(7, later(5));
    assert_eq!((told.known(7, later(5)), told.known(7, later(6))), (None, Some(3)));
    assert_eq!(told.known(7, ID + 1024), Some(2));
    assert_eq!(told.stated(7, i32::MAX, NONE - 1), Ok(()));
    assert_eq!(told.known(7, i32::MAX), Some(NONE - 1));
    told.clear(7);
    assert!(all().all(|id| told.known(7, id).is_none()));
    assert!((1..1 << SEQ_BITS).all(|n| told.known(7, later(n)).is_none()));
}

#[test]
fn in_a_pool_with_many_nothing_is_forgotten_for_another_either() {
    let told = Sizes::new();
    let ids = Ids::new(MOST_INDEX_BITS).unwrap();
    told.0[1].index_bits.store(ids.bits(), Relaxed);
    let far = [0, 1, PLACES as u32, 1 << INDEX_BITS, 5 << INDEX_BITS, MAX_ENTRIES - 1];
    let all = || {
        let uses = |index| (0..1 << (30 - MOST_INDEX_BITS)).map(move |sequence| ids.id(index, sequence));
        far.into_iter().flat_map(uses)
    };
    let size = |id: i32| 1 + u64::from(ids.index(id) ^ ids.sequence(id)) % 1000;
    for id in all() {
        told.got(1, id, size(id), size(id));
    }
    assert!(all().all(|id| told.known(1, id) == Some(size(id))));
    assert!(all().all(|id| told.known(0, id).is_none()), "another pool has its own");
    told.clear(1);
    assert!(all().all(|id| told.known(1, id).is_none()));
}

#[test]
fn an_id_that_was_only_told_counts_when_it_comes_back() {
    for tell in [Sizes::stated, Sizes::listed] {
        let told = Sizes::new();
        assert_eq!(tell(&told, 0, ID, 4), Ok(()));
        told.got(0, LATER, 5, 5);
        assert_eq!(told.known(0, ID), Some(4));
        // It may be new, so it can be used; but the program's memory may be the old one's.
        assert_eq!(told.stated(0, ID, 1000), Ok(()));
        assert_eq!(told.check(0, ID, 1000), Ok(()));
        assert_eq!(told.known(0, ID), None);
        for size in [4, 1001] {
            assert_eq!(tell(&told, 0, ID, size), Err(Errno::EIDRM));
        }
        assert_eq!(told.known(0, LATER), Some(5));
        told.forget(0, ID);
        assert_eq!(tell(&told, 0, ID, 6), Ok(()));
    }
}

#[test]
fn an_id_that_comes_back_with_another_size_can_be_used() {
    let told = Sizes::new();
    told.got(0, ID, 4, 4);
    told.got(0, LATER, 5, 5);
    told.got(0, ID, 1000, 1000);
    for _ in 0..2 {
        assert_eq!(told.known(0, ID), None, "but the first may be meant");
        assert_eq!(told.check(0, ID, 1000), Ok(()));
        assert_eq!(told.check(0, ID, 4), Err(Errno::EIDRM));
        assert_eq!(told.stated(0, ID, 1000), Ok(()));
        told.got(0, LATER, 5, 5);
        told.got(0, ID, 1000, 1000);
    }
    told.got(0, LATER, 5, 5);
    assert_eq!(told.known(0, LATER), Some(5));
}

#[test]
fn a_raw_fork_inherits_what_was_told() {
    SETS.got(6, ID, 3, 3);
    // SAFETY: the child makes raw calls only and leaves at once.
    unsafe {
        let child = raw::syscall!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if child == 0 {
            let inherited = SETS.known(6, ID) == Some(3);
            SETS.forget(6, ID);
            raw::syscall!(libc::SYS_exit_group, i32::from(!inherited));
        }
        let mut status = 0;
        libc::waitpid(child as i32, &mut status, 0);
        assert_eq!(status, 0);
    }
    assert_eq!(SETS.known(6, ID), Some(3), "the child has its own");
}
