//! Xen as its domains see it: their channels are consoles, all but the first one.

use super::Hypervisor;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Result};

/// Time that the kernel may take to make the consoles.
const CONSOLES_TIMEOUT: Duration = Duration::from_secs(20);
/// Consoles that Linux supports. The first one is not a channel.
const MAX_CONSOLES: usize = 8;

/// Xen.
pub struct Xen;

impl Hypervisor for Xen {
    fn file_transport(&self) -> &'static str {
        "xen"
    }

    /// All consoles but the first: the domain knows its number of channels.
    fn channels(&self, _: usize) -> Result<Vec<PathBuf>> {
        find()
    }

    /// Does nothing: pools stay root's, since only root can start a domain.
    fn set_pool_owner(&self, _: u32) -> Result<()> {
        Ok(())
    }

    fn front_end(&self, _: u32) -> Vec<String> {
        ["xen", "join"].map(String::from).to_vec()
    }
}

/// The device files of all consoles but the first.
fn find() -> Result<Vec<PathBuf>> {
    let count = vshmem_agent::xen::further_consoles().map_err(|error| Error::new(error.to_string()))?;
    let deadline = Instant::now() + CONSOLES_TIMEOUT;
    loop {
        let all = (1..MAX_CONSOLES).map(|number| PathBuf::from(format!("/dev/hvc{number}")));
        let found: Vec<PathBuf> = all.filter(|device| is_there(device)).collect();
        if found.len() >= count.clamp(1, MAX_CONSOLES - 1) {
            return Ok(found);
        }
        if Instant::now() > deadline {
            let has = found.len();
            return Err(error!("the domain has {has} channels instead of {count}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a device file has a console: otherwise it can't be opened.
fn is_there(device: &Path) -> bool {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
    options.open(device).is_ok()
}
