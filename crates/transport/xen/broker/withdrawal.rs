//! How a pool of this domain's is taken away from everybody.

use super::announce::Pair;
use super::device::{Claimed, Device};
use super::own_id;
use super::owner::check_name;
use super::store::Store;
use crate::error::Result;
use std::time::{Duration, Instant};

/// How long guests are given to let go of a pool that is withdrawn.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// What `withdraw` has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// A pool that nobody served; it is gone.
    Removed,
    /// A pool that another process serves, and which stays.
    Served,
    /// No such pool.
    Nothing,
}

/// Takes a pool of this domain's away from everybody, if the process was killed that served it.
///
/// # Errors
/// There is no driver here, or it refuses, or the pool is another domain's.
pub fn withdraw(pool: &str) -> Result<Left> {
    check_name(pool)?;
    let mut store = Store::open()?;
    let id = own_id(&mut store)?;
    let device = Device::open(id)?;
    match device.claim(pool)? {
        Claimed::Ours => {}
        Claimed::Served => return Ok(Left::Served),
        Claimed::NoPool => return Ok(Left::Nothing),
    }
    let taken = take_away(&mut store, &device, (id, pool));
    device.remove(pool, id)?;
    taken.map(|()| Left::Removed)
}

/// Withdraws a pool from all domains that were told of it or that it is granted to, and gives them a while to let go of it. Goes on if one
/// of them can't be told, and fails then.
pub fn take_away(store: &mut Store, device: &Device, (owner, pool): (u16, &str)) -> Result<()> {
    let pair = |guest| Pair { owner, guest };
    let mut guests = device.granted(pool)?;
    guests.extend(Pair::told(store, owner, pool)?);
    let mut all = Ok(());
    for &guest in &guests {
        all = all.and(device.by_turns(|| pair(guest).withdraw(store, pool)));
    }
    let begun = Instant::now();
    for guest in guests {
        while begun.elapsed() < FAREWELL && pair(guest).is_answered(store, pool).unwrap_or(false) {
            std::thread::sleep(Duration::from_millis(50));
        }
        all = all.and(device.revoke(pool, guest));
    }
    all
}
