//! The withdrawal of a pool of this domain from all other domains.

use super::announce::Pair;
use super::device::{Claim, Device};
use super::options::check_name;
use super::own_id;
use super::xenstore::XenStore;
use std::time::{Duration, Instant};
use vshmem_base::error::Result;

/// Time that guests may take to detach a pool that is withdrawn.
pub const DETACH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between looks whether they have.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The outcome of [`withdraw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// No process served the pool; it was removed.
    Removed,
    /// Another process serves the pool, which stays.
    Served,
    /// There is no such pool.
    NoPool,
}

/// Withdraws a pool of this domain whose process was killed.
///
/// # Errors
/// There is no driver here, or it refuses, or the pool is another domain's.
pub fn withdraw(pool: &str) -> Result<Withdrawal> {
    check_name(pool)?;
    let mut store = XenStore::open()?;
    let id = own_id(&mut store)?;
    let device = Device::open(id)?;
    match device.claim(pool)? {
        Claim::Acquired => {}
        Claim::Busy => return Ok(Withdrawal::Served),
        Claim::NoPool => return Ok(Withdrawal::NoPool),
    }
    let withdrawn = withdraw_from_guests(&mut store, &device, (id, pool));
    device.remove(pool, id)?;
    withdrawn.map(|()| Withdrawal::Removed)
}

/// Withdraws a pool from all domains that it is announced or granted to, waits a while for them to detach it,
/// and revokes the grants. An error with one of them does not keep it from going on with the others.
pub fn withdraw_from_guests(store: &mut XenStore, device: &Device, (owner, pool): (u16, &str)) -> Result<()> {
    let pair = |guest| Pair { owner, guest };
    let mut guests = device.granted(pool)?;
    guests.extend(Pair::guests(store, owner, pool)?);
    let mut result = Ok(());
    for &guest in &guests {
        result = result.and(device.locked(|| pair(guest).withdraw(store, pool)));
    }
    let deadline = Instant::now() + DETACH_TIMEOUT;
    for guest in guests {
        while Instant::now() < deadline && pair(guest).is_ready(store, pool).unwrap_or(false) {
            std::thread::sleep(POLL_INTERVAL);
        }
        result = result.and(device.revoke(pool, guest));
    }
    result
}
