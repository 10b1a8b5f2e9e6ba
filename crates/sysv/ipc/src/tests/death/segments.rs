//! Processes killed in calls on segments.

use super::{at_every_call, free, free_after_all, KEY};
use crate::{shm, IPC_CREAT};

/// Kills the process that makes a segment of this size at every call. There are sizes on both sides of what
/// is prepared under the lock.
fn in_shmget(size: usize) {
    at_every_call(
        free,
        move |c, _| shm::get(c, KEY, size, IPC_CREAT | 0o600),
        |w, before, result| {
            let p = w.process();
            let c = &p.ctx();
            let id = shm::get(c, KEY, size, IPC_CREAT | 0o600).unwrap();
            assert!(result.is_none_or(|r| r == Ok(id)));
            shm::remove(c, id).unwrap();
            assert_eq!(shm::info(c).1, shm::ShmInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_shmget_of_a_small_segment() {
    in_shmget(5000);
}

#[test]
fn in_shmget_of_a_large_segment() {
    in_shmget(300_000);
}

#[test]
fn in_shmat_and_shmdt() {
    at_every_call(
        |w| shm::get(&w.process().ctx(), KEY, 5000, IPC_CREAT | 0o666).unwrap(),
        |c, id| {
            shm::attach(c, id, 0).unwrap();
            shm::attach(c, id, 0).unwrap();
            shm::detach(c, id);
            shm::detach(c, id);
        },
        |w, id, _| {
            let p = w.process();
            assert_eq!(shm::stat(&p.ctx(), id).unwrap().nattch, 0);
        },
    );
}

/// Kills the process that removes a segment of this size, and detaches it last, at every call: nothing is
/// left.
fn in_destroying(size: usize) {
    at_every_call(
        |w| {
            let before = free(w);
            let p = w.process();
            let id = shm::get(&p.ctx(), KEY, size, IPC_CREAT | 0o666).unwrap();
            (before, id)
        },
        |c, (_, id)| {
            shm::attach(c, id, 0).unwrap();
            shm::remove(c, id).unwrap();
            shm::detach(c, id);
        },
        |w, (before, id), _| {
            let p = w.process();
            let c = &p.ctx();
            if shm::get(c, KEY, 0, 0).is_ok() {
                shm::remove(c, id).unwrap();
            }
            assert_eq!(shm::info(c).1, shm::ShmInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_destroying_a_small_segment() {
    in_destroying(5000);
}

#[test]
fn in_destroying_a_large_segment() {
    in_destroying(300_000);
}
