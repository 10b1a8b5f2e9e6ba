//! Domains of libvirt, which is asked by its command `virsh`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use vshmem_base::error::{error, Result};

/// The words of libvirt's error for files that QEMU can't open.
pub const DENIED: &str = "Permission denied";

/// A domain of libvirt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// The URI of libvirt, if not its default.
    pub connect: Option<String>,
}

impl Domain {
    /// Creates it, by this description. It goes when it ends.
    pub fn create(&self, description: &str) -> Result<()> {
        self.virsh(&["create", "/dev/stdin"], description).map(drop)
    }

    /// Plugs a device of this description in.
    pub fn attach(&self, description: &str) -> Result<()> {
        self.virsh(&["attach-device", &self.name, "/dev/stdin", "--live"], description).map(drop)
    }

    /// Runs `virsh` with this input; returns its output. Ctrl-C does not reach it, so what it has begun is
    /// finished.
    pub fn virsh(&self, words: &[&str], input: &str) -> Result<String> {
        let mut arguments: Vec<OsString> = vec!["--quiet".into()];
        if let Some(connect) = &self.connect {
            arguments.extend(["--connect".into(), connect.into()]);
        }
        arguments.extend(words.iter().map(OsString::from));
        let mut child = Command::new("virsh")
            .args(arguments)
            .env("LC_ALL", "C")
            .process_group(0)
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
        self.attach(&channel(name))
    }
}

/// A channel to the host, in libvirt's XML.
pub fn channel(name: &str) -> String {
    format!("<channel type='unix'>\n  <target type='virtio' name='{name}'/>\n</channel>\n")
}
