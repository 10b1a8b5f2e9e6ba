//! The URI of the libvirt that starts machines, and the user that its QEMU runs as.

use crate::running::virsh::Domain;
use crate::state::record::Record;
use std::fs;
use std::os::unix::fs::MetadataExt;
use vshmem_base::error::{error, Error, Result};
use vshmem_base::user;

/// The URI of the caller's own libvirt.
const SESSION: &str = "qemu:///session";
/// The URI of the host's libvirt.
const SYSTEM: &str = "qemu:///system";

/// The URI for this user: root's machines are the host's.
pub fn default() -> &'static str {
    match user::uid() {
        0 => SYSTEM,
        _ => SESSION,
    }
}

/// An error unless this user's machines can be started there.
pub fn check(uri: &str) -> Result<()> {
    let plain = uri.split('?').next().unwrap_or_default();
    if plain != SESSION && plain != SYSTEM {
        return Err(error!(
            "machines share memory with this host, and {uri:?} is not its QEMU: write {}",
            default()
        ));
    }
    if plain == default() {
        return Ok(());
    }
    Err(Error::new(match plain {
        SESSION => "in qemu:///session root's QEMU has all of root's rights: root's machines are domains of qemu:///system",
        _ => "QEMU of qemu:///system is another user's, who may not open your pools and files: your machines are domains of qemu:///session",
    }))
}

/// The URI by which a cluster's machines were started.
pub fn of(record: &Record) -> String {
    record.service.clone().unwrap_or_else(|| default().into())
}

/// The user that libvirt's QEMU runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsAs {
    /// Its starter.
    Starter,
    /// The user of this number, as libvirt is configured.
    Other(u32),
    /// This user and group, which libvirt has to be told: else it would be root.
    Explicit(u32, u32),
}

impl RunsAs {
    /// Asks libvirt. All machines get the same answer: libvirt has a file be one user's only.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub fn ask(uri: &str) -> Result<RunsAs> {
        let domain = Domain { name: "the connection".into(), connect: Some(uri.into()) };
        let question = if user::uid() == 0 { "capabilities" } else { "uri" };
        let capabilities = domain.virsh(&[question], "").map_err(|error| {
            error.about(&format!("libvirt at {uri} can't be used")).hint(match user::uid() {
                0 => "Is its daemon running? For instance: systemctl start libvirtd",
                _ => "libvirt starts its daemon for you if it is installed: sudo apt-get install libvirt-daemon libvirt-daemon-driver-qemu",
            })
        })?;
        if user::uid() != 0 {
            return Ok(RunsAs::Starter);
        }
        let configured = owner_in(&capabilities);
        Ok(match configured {
            Some(0) | None => {
                let user = user::without_account()?;
                RunsAs::Explicit(user, kvm_group().unwrap_or(user))
            }
            Some(user) => RunsAs::Other(user),
        })
    }

    /// The user, if not its starter.
    pub fn user(self) -> Option<u32> {
        match self {
            RunsAs::Starter => None,
            RunsAs::Other(user) | RunsAs::Explicit(user, _) => Some(user),
        }
    }
}

/// The group that may use KVM, unless that is root's.
fn kvm_group() -> Option<u32> {
    fs::metadata("/dev/kvm").ok().map(|meta| meta.gid()).filter(|group| *group != 0)
}

/// The user that QEMU runs as, by libvirt's capabilities: the number in what its driver `dac` says.
fn owner_in(capabilities: &str) -> Option<u32> {
    let (_, dac) = capabilities.split_once("<model>dac</model>")?;
    let (dac, _) = dac.split_once("</secmodel>")?;
    let (_, label) = dac.split_once("<baselabel")?;
    let (_, label) = label.split_once(">+")?;
    label.split(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_told_by_the_capabilities() {
        let text = "<host><secmodel><model>apparmor</model><doi>0</doi></secmodel>\n<secmodel>\n<model>dac</model>\n\
            <doi>0</doi>\n<baselabel type='kvm'>+64055:+109</baselabel>\n<baselabel type='qemu'>+64055:+109\
            </baselabel></secmodel></host>";
        assert_eq!(owner_in(text), Some(64055));
        assert_eq!(owner_in("<secmodel><model>none</model></secmodel>"), None);
        assert_eq!(owner_in("<secmodel><model>dac</model></secmodel><baselabel>+1:+1</baselabel>"), None);
    }

    #[test]
    fn a_user_has_one_libvirt() {
        assert!(check(default()).is_ok() && check(&format!("{}?socket=/x", default())).is_ok());
        for other in ["qemu+ssh://host/system", "xen:///system", "test:///default", ""] {
            assert!(check(other).unwrap_err().to_string().contains("share memory with this host"), "{other}");
        }
        let other = if default() == SYSTEM { SESSION } else { SYSTEM };
        assert!(check(other).unwrap_err().to_string().contains(default()));
    }
}
