//! Pools between Xen domains: who has which pool is announced in XenStore, and set up through the driver vshmem_xen.ko.
//!
//! | module | subject |
//! | --- | --- |
//! | `store` | XenStore, spoken over `/dev/xen/xenbus` |
//! | `device` | the driver's control file |
//! | `announce` | the keys by which a pool is announced, and what is believed of them |
//! | `care` | what is cleaned up in a pool after processes and domains that died |
//! | `claim` | how one process, and no other, comes to serve a pool |
//! | `pause` | how long is waited before something is tried again |
//! | `presence` | which of the domains that are to have a pool exist |
//! | `withdrawal` | how a pool is taken away from everybody |
//! | `owner` | the domain that owns a pool: grants and announces it, and takes it back |
//! | `domain` | what a program in dom0 asks about other domains |
//! | `guest` | a domain that is given pools: finds and attaches them, and lets them go |
//!
//! `docs/xen.md` specifies the keys.

mod announce;
mod care;
mod claim;
mod device;
mod domain;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guest;
mod owner;
mod pause;
mod presence;
mod store;
mod withdrawal;

pub use domain::{further_consoles, has_attached, is_domain};
pub use guest::{join, Until};
pub use owner::{own, usual_limits, Own};
pub use withdrawal::{withdraw, Left};

use crate::error::{Error, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use store::Store;

/// What is told to whoever watches, a sentence each.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// At least so often is everything looked at, whether or not XenStore reports a change: an owner that is no dom0 is not told that
/// domains come and go.
const AT_LEAST: Duration = Duration::from_secs(1);

/// And not more often than this: another domain can change what is watched as often as it likes, and each look costs all users of XenStore.
const AT_MOST: Duration = Duration::from_millis(50);

/// Waits for news of XenStore or a signal that ends the process. True: to be ended.
fn wait(store: &mut Store, end: &OwnedFd) -> Result<bool> {
    if !store.news()? && has_ended(Some(store), end, AT_LEAST)? {
        return Ok(true);
    }
    store.news()?;
    has_ended(None, end, AT_MOST)
}

/// Waits so long, or for news; was the process asked to end?
fn has_ended(store: Option<&Store>, end: &OwnedFd, most: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(most).expect("a second fits");
    let mut fds = vec![PollFd::new(end, PollFlags::IN)];
    fds.extend(store.map(|store| PollFd::new(store, PollFlags::IN)));
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
        Err(e) => Err(Error::new(format!("waiting for XenStore: {e}"))),
    }
}

/// This domain's id.
fn own_id(store: &mut Store) -> Result<u16> {
    let text = store.read("domid")?;
    text.as_deref()
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| {
            Error::new("XenStore does not say which domain this is: is xenstored running?")
        })
}

/// Readable when the process is asked to end. The signals don't end it any more.
fn end_signals() -> Result<OwnedFd> {
    crate::signals::descriptor().map_err(|e| Error::new(format!("could not wait for signals: {e}")))
}

impl AsFd for Store {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file().as_fd()
    }
}
