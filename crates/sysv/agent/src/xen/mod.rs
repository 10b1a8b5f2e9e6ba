//! The broker of `xen`: it announces pools in XenStore, and grants and attaches them by the driver
//! vshmem_xen.ko.
//!
//! | module | subject |
//! | --- | --- |
//! | `owner` | the domain that owns a pool: it grants and announces the pool, and takes it back |
//! | `guest` | a domain that is given pools: it attaches and detaches them |
//! | `open` | creating a pool or taking one over, so that one process serves it, and joining it |
//! | `withdrawal` | withdrawing a pool from all domains |
//! | `announce` | the XenStore keys of announcements |
//! | `presence` | which recipients of a pool exist |
//! | `domain` | the domains of this host, as dom0 knows them |
//! | `backoff` | exponential back-off |
//! | `device` | the driver's control file |
//! | `xenstore` | a client of XenStore |
//!
//! `docs/xen.md` specifies the keys.

mod announce;
mod backoff;
mod device;
mod domain;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guest;
mod open;
mod options;
mod owner;
mod presence;
mod withdrawal;
mod xenstore;

pub use domain::{further_consoles, has_attached, is_domain};
pub use guest::{join, Until};
pub use options::{default_limits, OwnOptions};
pub use owner::own;
pub use withdrawal::{withdraw, Withdrawal};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::os::fd::AsFd;
use std::time::Duration;
use vshmem_base::error::{error, Error, Result};
use vshmem_base::signal_descriptor::{Signals, TERMINATION};
use xenstore::XenStore;

/// A receiver of reports, a sentence each.
pub type Report<'a> = &'a mut dyn FnMut(&str);

/// Time between looks at all pools and domains, even if XenStore reports no change: only dom0 is notified of
/// domains that come and go.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two looks: another domain can change watched keys at any rate, and each look is a
/// load on XenStore.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Waits for a change in XenStore, or for a signal that ends the process. True: the process is to end.
fn wait(store: &mut XenStore, end: &Signals) -> Result<bool> {
    if !store.has_changed()? && has_ended(Some(store), end, POLL_INTERVAL)? {
        return Ok(true);
    }
    store.has_changed()?;
    has_ended(None, end, MIN_INTERVAL)
}

/// Waits for an event, `most` at the longest. True: the process is to end.
fn has_ended(store: Option<&XenStore>, end: &Signals, most: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(most).expect("a second fits");
    let mut fds = vec![PollFd::new(end, PollFlags::IN)];
    fds.extend(store.map(|store| PollFd::new(store, PollFlags::IN)));
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
        Err(e) => Err(error!("waiting for XenStore: {e}")),
    }
}

/// This domain's id.
fn own_id(store: &mut XenStore) -> Result<u16> {
    let text = store.read("domid")?;
    text.as_deref()
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| Error::new("XenStore does not say which domain this is: is xenstored running?"))
}

/// A descriptor that is readable when a signal asks the process to end. The signals themselves are blocked.
fn end_signals() -> Result<Signals> {
    Signals::watch(&TERMINATION).map_err(|e| error!("could not wait for signals: {e}"))
}

impl AsFd for XenStore {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file().as_fd()
    }
}
