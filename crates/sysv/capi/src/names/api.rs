//! The functions that `include/vshmem.h` declares; documented there.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)] // C's rules for pointers, as the header says

use crate::calls::barrier::Barrier;
use crate::calls::process_lives;
use crate::calls::reduce::{self, Operation, Value};
use crate::calls::{duration, msg, sem, shm};
use crate::names::dispatch::{MSG, SEM, SHM};
use crate::pools::caller::caller;
use crate::pools::table::{self, POOLS};
use crate::pools::{by_name, current, member, open, outcome};
use crate::process::config::{config, PoolName};
use crate::process::gate;
use crate::thread::addresses;
use crate::thread::errno::guard;
use crate::thread::last_error::{explain, last_error};
use core::ffi::{c_char, c_void, CStr};
use core::time::Duration;
use libc::timespec;
use vshmem_ipc::sem::Sembuf;
use vshmem_ipc::Errno;

/// The version with a zero byte at the end, for C.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

#[no_mangle]
pub extern "C" fn vshm_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

#[no_mangle]
pub extern "C" fn vshm_last_error() -> *const c_char {
    last_error()
}

#[no_mangle]
pub extern "C" fn vshm_shmget(key: i32, size: usize, flags: i32) -> i32 {
    guard("vshm_shmget", move || outcome::get(|caller| shm::get(caller, key, size, flags)))
}

#[no_mangle]
pub unsafe extern "C" fn vshm_shmat(id: i32, addr: *const c_void, flags: i32) -> *mut c_void {
    guard("vshm_shmat", move || shm::attach(&caller()?, id, addr as usize, flags))
}

#[no_mangle]
pub unsafe extern "C" fn vshm_shmdt(addr: *const c_void) -> i32 {
    guard("vshm_shmdt", move || if shm::detach(addr as usize)? { Ok(0) } else { Err(Errno::EINVAL) })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_shmctl(id: i32, command: i32, buf: *mut c_void) -> i32 {
    SHM.call_on_pool(id, 0, command, buf as usize)
}

#[no_mangle]
pub extern "C" fn vshm_semget(key: i32, count: i32, flags: i32) -> i32 {
    guard("vshm_semget", move || outcome::get(|caller| sem::get(caller, key, count, flags)))
}

#[no_mangle]
pub unsafe extern "C" fn vshm_semop(id: i32, sops: *mut Sembuf, count: usize) -> i32 {
    // SAFETY: as the header demands.
    unsafe { sem::op_or(id, sops, count, semop_slow) }
}

unsafe extern "C" fn semop_slow(id: i32, sops: *mut Sembuf, count: usize) -> i32 {
    // SAFETY: as the header demands.
    guard("vshm_semop", move || unsafe { sem::op(id, sops, count) })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_semtimedop(
    id: i32,
    sops: *mut Sembuf,
    count: usize,
    timeout: *const timespec,
) -> i32 {
    guard("vshm_semtimedop", move || {
        // SAFETY: as the header demands.
        unsafe { sem::timed_op(id, sops, count, timeout) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_semctl(id: i32, number: i32, command: i32, arg: usize) -> i32 {
    SEM.call_on_pool(id, number, command, arg)
}

#[no_mangle]
pub extern "C" fn vshm_msgget(key: i32, flags: i32) -> i32 {
    guard("vshm_msgget", move || outcome::get(|caller| msg::get(caller, key, flags)))
}

#[no_mangle]
pub unsafe extern "C" fn vshm_msgsnd(id: i32, message: *const c_void, size: usize, flags: i32) -> i32 {
    // SAFETY: as the header demands.
    unsafe { msg::send_or(id, message, size, flags, msgsnd_slow) }
}

unsafe extern "C" fn msgsnd_slow(id: i32, message: *const c_void, size: usize, flags: i32) -> i32 {
    guard("vshm_msgsnd", move || {
        // SAFETY: as the header demands.
        unsafe { msg::send(&caller()?, id, message.cast(), size, flags) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_msgrcv(
    id: i32,
    message: *mut c_void,
    size: usize,
    mtype: i64,
    flags: i32,
) -> isize {
    // SAFETY: as the header demands.
    unsafe { msg::receive_or(id, message, size, mtype, flags, msgrcv_slow) }
}

unsafe extern "C" fn msgrcv_slow(
    id: i32,
    message: *mut c_void,
    size: usize,
    mtype: i64,
    flags: i32,
) -> isize {
    guard("vshm_msgrcv", move || {
        // SAFETY: as the header demands.
        unsafe { msg::receive(&caller()?, id, message.cast(), size, mtype, flags) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_msgctl(id: i32, command: i32, buf: *mut c_void) -> i32 {
    MSG.call_on_pool(id, 0, command, buf as usize)
}

#[no_mangle]
pub unsafe extern "C" fn vshm_pool_uuid(uuid: *mut u8) -> i32 {
    guard("vshm_pool_uuid", || {
        let Some(found) = caller()?.pool().uuid() else {
            explain(format_args!("the pool has no UUID, as those of older versions; make it anew"));
            return Err(Errno(libc::ENODATA));
        };
        let bytes = found.bytes();
        addresses::surely_writable(uuid, bytes.len())?;
        // SAFETY: found writable.
        unsafe { uuid.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(0)
    })
}

#[no_mangle]
pub extern "C" fn vshm_pool_member() -> i32 {
    guard("vshm_pool_member", || Ok(caller()?.ctx.member.into()))
}

#[no_mangle]
pub extern "C" fn vshm_process_lives(pid: i32) -> i32 {
    guard("vshm_process_lives", || {
        let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(Errno::EINVAL)?;
        let caller = caller()?;
        caller.unless_revoked(process_lives::lives(&caller, pid).map(i32::from))
    })
}

#[no_mangle]
pub extern "C" fn vshm_takes_key(key: i32) -> i32 {
    config().takes(key).into()
}

/// Reads a pool's name.
unsafe fn name_of(pool: *const c_char) -> Result<PoolName, Errno> {
    addresses::surely_readable(pool, 1)?;
    let mut name = PoolName::new();
    // SAFETY: the caller passes a C string.
    if name.push(unsafe { CStr::from_ptr(pool) }.to_bytes()).is_none() {
        explain(format_args!("the pool's name is too long; use at most 1024 bytes"));
        return Err(Errno::EINVAL);
    }
    Ok(name)
}

#[no_mangle]
pub unsafe extern "C" fn vshm_pool_create(pool: *const c_char, size: u64, mode: u32) -> i32 {
    guard("vshm_pool_create", || {
        // SAFETY: as the header demands.
        by_name::create(&unsafe { name_of(pool)? }, size, mode).map(|()| 0)
    })
}

/// A pool as C sees it: the address of its place.
type PoolHandle = *mut c_void;

fn handle_of(index: usize) -> PoolHandle {
    (&raw const POOLS[index]).cast_mut().cast()
}

fn index_of(handle: PoolHandle) -> Result<usize, Errno> {
    (0..POOLS.len())
        .find(|i| handle_of(*i) == handle && !current::is_configured(*i) && POOLS[*i].is_open())
        .ok_or_else(|| {
            explain(format_args!("this is not a pool that vshm_pool_open returned and that is still open"));
            Errno::EINVAL
        })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_pool_open(pool: *const c_char) -> PoolHandle {
    or_null(guard("vshm_pool_open", || {
        // SAFETY: as the header demands.
        let name = unsafe { name_of(pool)? };
        let gate = gate::enter()?;
        let index = table::free_place(&gate).ok_or_else(|| {
            explain(format_args!("seven pools are open already; close one"));
            Errno(libc::EMFILE)
        })?;
        open::existing_at(&gate, index, &name)?;
        Ok(handle_of(index))
    }))
}

/// Null in place of the pointer that `shmat` returns when it fails.
fn or_null<T>(pointer: *mut T) -> *mut T {
    match pointer as isize {
        -1 => core::ptr::null_mut(),
        _ => pointer,
    }
}

#[no_mangle]
pub unsafe extern "C" fn vshm_pool_use(pool: PoolHandle) -> i32 {
    guard("vshm_pool_use", || {
        let index = if pool.is_null() { current::home() } else { index_of(pool)? };
        current::use_pool(index);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_pool_close(pool: PoolHandle) -> i32 {
    guard("vshm_pool_close", || {
        let index = index_of(pool)?;
        let gate = gate::enter()?;
        if current::place() == index {
            explain(format_args!("the pool is in use; call vshm_pool_use with another one, or NULL, first"));
            return Err(Errno(libc::EBUSY));
        }
        if shm::is_attached(&gate, index) {
            explain(format_args!("segments of the pool are attached; detach them first"));
            return Err(Errno(libc::EBUSY));
        }
        // Nothing of a pool is waited for inside.
        drop(gate);
        member::leave(index, true);
        let gate = gate::enter()?;
        // SAFETY: the header demands that no thread is inside a call on this pool.
        unsafe { table::close(&gate, index) };
        Ok(0)
    })
}

#[no_mangle]
pub extern "C" fn vshm_barrier_open(key: i32, parties: u32) -> *mut Barrier {
    or_null(guard("vshm_barrier_open", || Barrier::open(key, parties)))
}

/// A time span as C gives it; null: no limit.
fn span(timeout: *const timespec) -> Result<Option<Duration>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    addresses::readable(timeout, size_of::<timespec>())?;
    // SAFETY: found readable.
    duration(unsafe { timeout.read_unaligned() }).map(Some)
}

unsafe fn barrier_at<'b>(barrier: *mut Barrier) -> Result<&'b Barrier, Errno> {
    addresses::readable(barrier, size_of::<Barrier>())?;
    // SAFETY: the header demands a barrier that is open.
    Ok(unsafe { &*barrier })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_barrier_wait(barrier: *mut Barrier, timeout: *const timespec) -> i32 {
    guard("vshm_barrier_wait", || {
        // SAFETY: as the header demands.
        unsafe { barrier_at(barrier)? }.wait(span(timeout)?).map(i32::from)
    })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_barrier_seat(barrier: *mut Barrier) -> i32 {
    guard("vshm_barrier_seat", || {
        // SAFETY: as the header demands.
        Ok(unsafe { barrier_at(barrier)? }.seat() as i32)
    })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_barrier_close(barrier: *mut Barrier) -> i32 {
    guard("vshm_barrier_close", || {
        addresses::readable(barrier, size_of::<Barrier>())?;
        // SAFETY: as the header demands.
        unsafe { Barrier::close(barrier) }.map(|()| 0)
    })
}

#[no_mangle]
pub extern "C" fn vshm_barrier_remove(key: i32) -> i32 {
    guard("vshm_barrier_remove", || Barrier::remove(key).map(|()| 0))
}

unsafe fn reduce<T: Value>(
    barrier: *mut Barrier,
    values: *mut T,
    count: usize,
    operation: i32,
    timeout: *const timespec,
) -> Result<i32, Errno> {
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Errno::EFAULT)?;
    addresses::writable(values, bytes)?;
    // SAFETY: as the header demands; the array was found writable.
    unsafe {
        reduce::all(barrier_at(barrier)?, values, count, Operation::of(operation)?, span(timeout)?)?;
    }
    Ok(0)
}

#[no_mangle]
pub unsafe extern "C" fn vshm_reduce_double(
    barrier: *mut Barrier,
    values: *mut f64,
    count: usize,
    operation: i32,
    timeout: *const timespec,
) -> i32 {
    // SAFETY: as the header demands.
    guard("vshm_reduce_double", || unsafe { reduce(barrier, values, count, operation, timeout) })
}

#[no_mangle]
pub unsafe extern "C" fn vshm_reduce_int64(
    barrier: *mut Barrier,
    values: *mut i64,
    count: usize,
    operation: i32,
    timeout: *const timespec,
) -> i32 {
    // SAFETY: as the header demands.
    guard("vshm_reduce_int64", || unsafe { reduce(barrier, values, count, operation, timeout) })
}
