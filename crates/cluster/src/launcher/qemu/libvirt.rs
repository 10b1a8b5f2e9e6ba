//! Machines that libvirt has started, through its command `virsh`.

use super::doorbell::VECTORS;
use super::pci::FreeBus;
use super::ports::Generation;
use crate::error::{error, Error, Result};
use crate::state::record::Granted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A domain of libvirt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// The URI of libvirt, if not its default.
    pub connect: Option<String>,
}

impl Domain {
    /// Runs `virsh` with this input; returns its output.
    fn virsh(&self, words: &[&str], input: &str) -> Result<String> {
        let mut arguments: Vec<OsString> = vec!["--quiet".into()];
        if let Some(connect) = &self.connect {
            arguments.extend(["--connect".into(), connect.into()]);
        }
        arguments.extend(words.iter().map(OsString::from));
        let mut child = Command::new("virsh")
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| {
                error!("could not start virsh: {e}")
                    .hint("Install libvirt's clients, for instance: sudo apt-get install libvirt-clients")
            })?;
        if let Some(mut pipe) = child.stdin.take() {
            // If it does not read the input, its error says why.
            let _ = pipe.write_all(input.as_bytes());
        }
        let out = child.wait_with_output().map_err(|e| error!("could not wait for virsh: {e}"))?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let why = String::from_utf8_lossy(&out.stderr);
        let why: Vec<&str> = why.lines().map(|line| line.trim_start_matches("error: ").trim()).collect();
        let why = why.iter().filter(|line| !line.is_empty()).copied().collect::<Vec<_>>().join("; ");
        let (what, name) = (words[0], &self.name);
        Err(error!("libvirt refused {what} of {name}: {why}"))
    }

    /// Passes a command to QEMU's monitor.
    pub fn monitor(&self, order: &str) -> Result<Value> {
        let text = self.virsh(&["qemu-monitor-command", &self.name, order], "")?;
        serde_json::from_str(&text).map_err(|e| error!("libvirt's answer is not JSON ({e}): {text}"))
    }

    /// Whether it runs.
    pub fn runs(&self) -> Result<bool> {
        Ok(self.virsh(&["domstate", &self.name], "")?.trim() == "running")
    }

    /// Ends it at once.
    pub fn destroy(&self) -> Result<()> {
        self.virsh(&["destroy", &self.name], "").map(|_| ())
    }

    /// Plugs a pool in, by way of libvirt.
    pub fn plug(&self, pool: &Granted, doorbell: Option<&Path>, bus: &FreeBus) -> Result<()> {
        if let Some(transport) = &pool.transport {
            return Err(error!("a domain of libvirt can't be given a pool by {transport} while it runs")
                .hint("Make the pool without --dax."));
        }
        let xml = shmem(pool, doorbell, bus)?;
        self.virsh(&["attach-device", &self.name, "/dev/stdin", "--live"], &xml)?;
        Ok(())
    }

    /// Asks the machine to release the device of this id.
    pub fn unplug(&self, id: &str) -> Result<()> {
        let words = ["detach-device-alias", &self.name, id, "--live"];
        match self.virsh(&words, "") {
            // It was asked before.
            Err(error) if error.to_string().contains("in the process of unplug") => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Whether libvirt still lists the device of this id. It removes it a moment after QEMU has.
    pub fn lists(&self, id: &str) -> Result<bool> {
        let description = self.virsh(&["dumpxml", &self.name], "")?;
        Ok(description.contains(&format!("<alias name='{id}'/>")))
    }

    /// Adds a channel of this name between machine and host.
    pub fn add_channel(&self, name: &str) -> Result<()> {
        let xml = channel(name);
        self.virsh(&["attach-device", &self.name, "/dev/stdin", "--live"], &xml)?;
        Ok(())
    }
}

/// A channel to the host, in libvirt's XML.
pub fn channel(name: &str) -> String {
    format!("<channel type='unix'>\n  <target type='virtio' name='{name}'/>\n</channel>\n")
}

/// A pool's device on a bus, in libvirt's XML.
fn shmem(pool: &Granted, doorbell: Option<&Path>, bus: &FreeBus) -> Result<String> {
    let name = &pool.name;
    let wrong = |what: String| Err(Error::new(what));
    if name.contains('.') {
        return wrong(format!("libvirt takes no dots in names, as in {name}; choose another with --as"));
    }
    let Some(number) = bus.bus.strip_prefix("pci.").and_then(|n| n.parse::<u8>().ok()) else {
        return wrong(format!("the port {} is none of libvirt's", bus.bus));
    };
    let (memory, model) = match doorbell {
        Some(socket) => {
            let socket = escaped(&socket.to_string_lossy());
            let model = "<model type='ivshmem-doorbell'/>";
            (String::new(), format!("{model}\n  <server path='{socket}'/>\n  <msi vectors='{VECTORS}'/>"))
        }
        None => {
            let size = format!("\n  <size unit='b'>{}</size>", pool.size);
            (size, "<model type='ivshmem-plain'/>".into())
        }
    };
    let file = pool.path.file_name().unwrap_or_default().to_string_lossy();
    if doorbell.is_none() && pool.path.parent() != Some(Path::new("/dev/shm")) {
        let path = pool.path.display();
        return wrong(format!(
            "libvirt takes pools right in /dev/shm only, and {path} is elsewhere: make one with vshmem pool create /dev/shm/NAME"
        ));
    }
    // libvirt refuses a slash here, as in a path. The name means nothing if the back end provides the memory.
    let (file, alias) = (escaped(&file), Generation::new().device(name));
    Ok(format!(
        "<shmem name='{file}'>\n  {model}{memory}\n  <alias name='ua-{alias}'/>\n  \
         <address type='pci' domain='0x0000' bus='{number:#04x}' slot='0x00' function='0x0'/>\n</shmem>\n"
    ))
}

/// Escapes a value for XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, path: &str) -> Granted {
        Granted::new(name.into(), path.into(), 1 << 20, false)
    }

    fn bus(name: &str) -> FreeBus {
        FreeBus { bus: name.into(), largest: 0 }
    }

    #[test]
    fn devices_are_described() {
        let plain = shmem(&pool("work", "/dev/shm/work"), None, &bus("pci.12")).unwrap();
        assert!(plain.contains("<shmem name='work'>"), "{plain}");
        assert!(plain.contains("<size unit='b'>1048576</size>"), "{plain}");
        assert!(
            plain.contains("<alias name='ua-vshmem-pool-")
                && plain.contains("-work'/>")
                && plain.contains("bus='0x0c'"),
            "{plain}"
        );
        let doorbell = Path::new("/run/it's/bell");
        let doorbell = shmem(&pool("work", "/tmp/x"), Some(doorbell), &bus("pci.1")).unwrap();
        assert!(doorbell.contains("<server path='/run/it&apos;s/bell'/>"), "{doorbell}");
        assert!(!doorbell.contains("<size"), "{doorbell}");
    }

    #[test]
    fn pools_that_libvirt_would_refuse_are_refused() {
        let refused = |pool: &Granted, name: &str| shmem(pool, None, &bus(name)).unwrap_err().to_string();
        assert!(refused(&pool("a.b", "/dev/shm/x"), "pci.1").contains("dots"));
        for path in ["/tmp/x", "/dev/shm/vshmem.0/ab"] {
            assert!(refused(&pool("ab", path), "pci.1").contains("right in /dev/shm only"));
        }
        assert!(refused(&pool("ab", "/dev/shm/x"), "port1").contains("none of libvirt's"));
    }
}
