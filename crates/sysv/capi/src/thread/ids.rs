//! The maps of this kernel's users and groups to those in pools: read before the first pool is open, and
//! never again.

use crate::process::config::config;
use crate::process::gate::Inside;
use crate::thread::last_error::explain;
use std::sync::OnceLock;
use vshmem_ipc::Errno;
use vshmem_transport::ids::{IdMap, Ids};

static IDS: OnceLock<Ids> = OnceLock::new();

/// Reads the maps, if that was not done yet.
pub fn load(_gate: &Inside) -> Result<(), Errno> {
    if IDS.get().is_none() {
        let ids = Ids::read(config().uid_map, config().gid_map).map_err(|error| {
            explain(format_args!("{error}"));
            Errno::EINVAL
        })?;
        // Nobody else is inside the gate, so it is not set meanwhile.
        let _ = IDS.set(ids);
    }
    Ok(())
}

fn all() -> &'static Ids {
    IDS.get().unwrap_or(&Ids::SAME)
}

/// The map of users.
pub fn users() -> &'static IdMap {
    &all().users
}

/// The map of groups.
pub fn groups() -> &'static IdMap {
    &all().groups
}
