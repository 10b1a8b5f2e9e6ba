//! How this kernel's users and groups are called in pools: read before the first pool is open, and never
//! again.

use crate::config::config;
use crate::gate::Inside;
use crate::last_error::explain;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use vshmem_ipc::Errno;
use vshmem_transport::ids::{IdMap, Ids};

struct Store(UnsafeCell<Ids>);
// SAFETY: written once, inside the gate, before LOADED is set; read after that only.
unsafe impl Sync for Store {}

static STORE: Store = Store(UnsafeCell::new(Ids::SAME));
static LOADED: AtomicBool = AtomicBool::new(false);

/// Reads the maps, if that was not done yet.
pub fn load(_gate: &Inside) -> Result<(), Errno> {
    if LOADED.load(Ordering::Acquire) {
        return Ok(());
    }
    let ids = Ids::read(config().uid_map, config().gid_map).map_err(|error| {
        explain(format_args!("{error}"));
        Errno::EINVAL
    })?;
    // SAFETY: inside the gate, and nobody reads before LOADED is set.
    unsafe { STORE.0.get().write(ids) };
    LOADED.store(true, Ordering::Release);
    Ok(())
}

fn all() -> &'static Ids {
    if LOADED.load(Ordering::Acquire) {
        // SAFETY: written for good.
        unsafe { &*STORE.0.get() }
    } else {
        &Ids::SAME
    }
}

/// Of users.
pub fn users() -> &'static IdMap {
    &all().users
}

/// Of groups.
pub fn groups() -> &'static IdMap {
    &all().groups
}
