//! A domain of libvirt that was started as a machine.

use crate::running::qmp::Qmp;
use crate::running::virsh::Domain;
use crate::shared::affinity::{differences, pin, Pins};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::process::Process;

/// Time that libvirt may take until nothing is left of a domain that was ended.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A domain that libvirt manages, and its QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// The domain.
    pub libvirt: Domain,
    /// Its UUID, which other domains that get its name don't have.
    pub uuid: String,
    /// The user that its QEMU runs as, if not its starter.
    pub user: Option<u32>,
    /// Its QEMU.
    pub process: Process,
}

impl Managed {
    /// Creates a domain of this description. Its QEMU has opened its files then.
    pub fn create(libvirt: Domain, uuid: String, user: Option<u32>, description: &str) -> Result<Managed> {
        libvirt.create(description)?;
        let found = process_of(&libvirt);
        let process = found.inspect_err(|_| end_uuid(&libvirt, &uuid))?;
        Ok(Managed { libvirt, uuid, user, process })
    }

    /// Whether the domain's QEMU has not ended.
    pub fn alive(&self) -> bool {
        self.process.alive()
    }

    /// Has libvirt end it, or ends its QEMU if libvirt does not, and returns when it has ended (or nothing
    /// helps).
    pub fn end(&self, timeout: Duration) {
        end_uuid(&self.libvirt, &self.uuid);
        self.process.end(timeout);
        // A name is free when libvirt has noticed.
        interrupt::repeat(END_TIMEOUT, Duration::from_millis(50), || {
            let known = self.libvirt.virsh(&["domid", &self.uuid], "");
            known.is_err().then_some(())
        });
    }

    /// The threads of its virtual cores, in order.
    pub fn core_threads(&self) -> Result<Vec<i32>> {
        Qmp::through(self.libvirt.clone()).core_threads()
    }

    /// Has libvirt pin its threads, unless they are pinned so already.
    pub fn pin(&self, pins: &Pins) -> Result<()> {
        let threads = self.core_threads()?;
        let told = differences(self.process.pid, &threads, pins);
        if told.explain(|| format!("could not tell where {} runs", self.libvirt.name))?.is_empty() {
            return Ok(());
        }
        for (number, set) in pins.vcpus.iter().enumerate() {
            let (number, set) = (number.to_string(), set.to_string());
            self.libvirt.virsh(&["vcpupin", &self.uuid, &number, &set, "--live"], "")?;
        }
        if let Some(others) = &pins.others {
            self.libvirt.virsh(&["emulatorpin", &self.uuid, &others.to_string(), "--live"], "")?;
        }
        // Without control groups, as in a session, that is for QEMU's first thread only.
        pin(self.process.pid, &threads, pins)
            .explain(|| format!("could not pin the threads of {}", self.libvirt.name))
    }
}

/// Ends the domain of a UUID, and removes a definition of it that a user has made. The caller checks the
/// result.
pub fn end_uuid(libvirt: &Domain, uuid: &str) {
    let _ = libvirt.virsh(&["destroy", uuid], "");
    let _ = libvirt.virsh(&["undefine", uuid], "");
}

/// The QEMU of a domain, whose threads it tells.
fn process_of(libvirt: &Domain) -> Result<Process> {
    let threads = Qmp::through(libvirt.clone()).core_threads()?;
    let group = |thread: &i32| {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
    };
    let process = threads.first().and_then(group).and_then(Process::find);
    process.ok_or_else(|| error!("the process of {} is not to be seen here", libvirt.name))
}
