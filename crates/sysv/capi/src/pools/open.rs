//! Opening a pool at a place of the table.

use crate::pools::table::{OpenPool, Opened, OPEN, POOLS};
use crate::pools::{by_name, sizes};
use crate::process::config::PoolName;
use crate::process::gate::Inside;
use crate::process::log::{self, Level};
use crate::process::sanitizers;
use crate::thread::last_error::explain;
use crate::thread::{errno, ids};
use core::sync::atomic::Ordering;
use vshmem_ipc::Errno;
use vshmem_pool::Pool;
use vshmem_transport::Handle;
use vshmem_wait::Heartbeat;

/// Opens a pool at a place that is closed, and makes it first if it is a local one that doesn't exist.
pub fn at(gate: &Inside, index: usize, name: &PoolName) -> Result<(), Errno> {
    let (handle, pool) = by_name::open(name)?;
    publish(gate, index, name, handle, pool)
}

/// Opens a pool that exists at a place that is closed.
pub fn existing_at(gate: &Inside, index: usize, name: &PoolName) -> Result<(), Errno> {
    errno::silence_panics();
    let (handle, pool) = by_name::open_existing(name)?;
    publish(gate, index, name, handle, pool)
}

/// Opens a pool that exists, and must be a device's, at a place that is closed.
pub fn device_at(gate: &Inside, index: usize, name: &PoolName) -> Result<(), Errno> {
    let (handle, pool) = by_name::open_existing(name)?;
    if !handle.may_go() {
        // SAFETY: nobody else knows of the mapping.
        unsafe { handle.close() };
        return Err(Errno::ENOENT);
    }
    publish(gate, index, name, handle, pool)
}

fn publish(gate: &Inside, index: usize, name: &PoolName, handle: Handle, pool: Pool) -> Result<(), Errno> {
    ids::load(gate)?;
    let ids_of_pool = pool.ids();
    let member = match handle.join(&pool) {
        Ok(member) => member,
        Err(error) => {
            // SAFETY: nobody else knows of the mapping.
            unsafe { handle.close() };
            explain(format_args!("pool {name}: {error}"));
            return Err(Errno(error.errno()));
        }
    };
    let place = &POOLS[index];
    let opened = Opened { handle, pool, member, heartbeat: Heartbeat::new(), name: name.clone() };
    opened.across().join();
    sanitizers::expect_races(opened.handle.mem());
    // SAFETY: the place is closed and we are inside the gate, so nobody else reads or writes it.
    unsafe { (*place.opened.get()).write(opened) };
    sizes::begin_pool(index, ids_of_pool);
    place.last_me.store(0, Ordering::Relaxed);
    place.revoked.store(false, Ordering::Relaxed);
    place.phase.store(OPEN, Ordering::Release);
    log_open(place);
    Ok(())
}

#[cold]
fn log_open(place: &OpenPool) {
    // SAFETY: it was opened just now.
    let opened = unsafe { place.opened() };
    let across = if opened.handle.is_device() { "between machines" } else { "on this kernel" };
    log::say(
        Level::Info,
        format_args!(
            "the pool {} is opened: {}, {} MiB, {across}",
            opened.name,
            opened.handle.path().to_str().unwrap_or("?"),
            opened.handle.mem().len() >> 20,
        ),
    );
}
