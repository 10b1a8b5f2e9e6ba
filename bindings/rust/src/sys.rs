//! The functions of `vshmem.h` as they are; documented there, and in vshmem(3).
#![allow(missing_docs, non_camel_case_types)]

use libc::{
    c_char, c_int, c_long, c_uint, c_void, key_t, mode_t, msqid_ds, pid_t, sembuf, shmid_ds, size_t, ssize_t,
    timespec,
};

/// A pool that was opened by name.
#[repr(C)]
pub struct vshm_pool {
    _opaque: [u8; 0],
}

/// One party's view of a barrier.
#[repr(C)]
pub struct vshm_barrier {
    _opaque: [u8; 0],
}

pub const VSHM_SUM: c_int = 0;
pub const VSHM_MIN: c_int = 1;
pub const VSHM_MAX: c_int = 2;

extern "C" {
    pub fn vshm_version() -> *const c_char;
    pub fn vshm_last_error() -> *const c_char;

    pub fn vshm_shmget(key: key_t, size: size_t, shmflg: c_int) -> c_int;
    pub fn vshm_shmat(shmid: c_int, shmaddr: *const c_void, shmflg: c_int) -> *mut c_void;
    pub fn vshm_shmdt(shmaddr: *const c_void) -> c_int;
    pub fn vshm_shmctl(shmid: c_int, cmd: c_int, buf: *mut shmid_ds) -> c_int;

    pub fn vshm_semget(key: key_t, nsems: c_int, semflg: c_int) -> c_int;
    pub fn vshm_semop(semid: c_int, sops: *mut sembuf, nsops: size_t) -> c_int;
    pub fn vshm_semtimedop(semid: c_int, sops: *mut sembuf, nsops: size_t, timeout: *const timespec)
        -> c_int;
    pub fn vshm_semctl(semid: c_int, semnum: c_int, cmd: c_int, ...) -> c_int;

    pub fn vshm_msgget(key: key_t, msgflg: c_int) -> c_int;
    pub fn vshm_msgsnd(msqid: c_int, msgp: *const c_void, msgsz: size_t, msgflg: c_int) -> c_int;
    pub fn vshm_msgrcv(
        msqid: c_int,
        msgp: *mut c_void,
        msgsz: size_t,
        msgtyp: c_long,
        msgflg: c_int,
    ) -> ssize_t;
    pub fn vshm_msgctl(msqid: c_int, cmd: c_int, buf: *mut msqid_ds) -> c_int;

    pub fn vshm_pool_create(pool: *const c_char, size: u64, mode: mode_t) -> c_int;
    pub fn vshm_pool_open(pool: *const c_char) -> *mut vshm_pool;
    pub fn vshm_pool_use(pool: *mut vshm_pool) -> c_int;
    pub fn vshm_pool_close(pool: *mut vshm_pool) -> c_int;
    pub fn vshm_pool_uuid(uuid: *mut u8) -> c_int;
    pub fn vshm_pool_member() -> c_int;
    pub fn vshm_process_lives(pid: pid_t) -> c_int;
    pub fn vshm_takes_key(key: key_t) -> c_int;

    pub fn vshm_barrier_open(key: key_t, parties: c_uint) -> *mut vshm_barrier;
    pub fn vshm_barrier_seat(barrier: *mut vshm_barrier) -> c_int;
    pub fn vshm_barrier_wait(barrier: *mut vshm_barrier, timeout: *const timespec) -> c_int;
    pub fn vshm_barrier_close(barrier: *mut vshm_barrier) -> c_int;
    pub fn vshm_barrier_remove(key: key_t) -> c_int;

    pub fn vshm_reduce_double(
        barrier: *mut vshm_barrier,
        values: *mut f64,
        count: size_t,
        operation: c_int,
        timeout: *const timespec,
    ) -> c_int;
    pub fn vshm_reduce_int64(
        barrier: *mut vshm_barrier,
        values: *mut i64,
        count: size_t,
        operation: c_int,
        timeout: *const timespec,
    ) -> c_int;
}
