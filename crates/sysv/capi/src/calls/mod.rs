//! The twelve calls on a pool, with C's arguments: check addresses, translate structures, call the upper
//! half.

pub mod abi;
pub mod barrier;
pub mod msg;
pub mod proc_files;
pub mod process_lives;
mod reasons;
pub mod reduce;
pub mod sem;
pub mod shm;
mod shortcut;

use crate::calls::abi::Plain;
use crate::thread::addresses;
use core::time::Duration;
use vshmem_ipc::Errno;

/// Commands of the `*ctl` calls that all three kinds of IPC objects have.
pub mod cmd {
    /// Remove.
    pub const RMID: i32 = 0;
    /// Change owner and mode.
    pub const SET: i32 = 1;
    /// Read the structure.
    pub const STAT: i32 = 2;
    /// Read the limits.
    pub const INFO: i32 = 3;
}

/// Repeats a call that a signal ended while it waited for a stopped process: the kernel's calls that make,
/// find or control an IPC object know no EINTR.
pub fn again<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// Does a `*get` that succeeds with these arguments make an IPC object? Then its size is what was asked for,
/// whatever the pool says.
fn is_new(key: i32, flags: i32) -> bool {
    const EXCLUSIVE: i32 = libc::IPC_CREAT | libc::IPC_EXCL;
    key == libc::IPC_PRIVATE || flags & EXCLUSIVE == EXCLUSIVE
}

/// Fails unless `id` can be an id and `command` a command.
fn check_ctl(id: i32, command: i32) -> Result<(), Errno> {
    if id < 0 || command < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// A time span as C gives it.
pub fn duration(t: libc::timespec) -> Result<Duration, Errno> {
    if t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec) {
        return Err(Errno::EINVAL);
    }
    Ok(Duration::new(t.tv_sec as u64, t.tv_nsec as u32))
}

/// A limit or count as C has it: the largest number stands for all that are larger.
fn clamp(value: u64) -> i32 {
    value.min(i32::MAX as u64) as i32
}

/// Copies a structure from the program.
fn fetch<T: Plain>(from: *const T) -> Result<T, Errno> {
    addresses::surely_readable(from, size_of::<T>())?;
    // SAFETY: the kernel has just said that the bytes can be read; T accepts any.
    Ok(unsafe { from.read_unaligned() })
}

/// Copies a structure to the program.
fn store<T: Plain>(to: *mut T, value: T) -> Result<(), Errno> {
    addresses::surely_writable(to, size_of::<T>())?;
    // SAFETY: the kernel has just said that the bytes can be written; T has no padding.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
