//! A check's look at a system, which keeps as evidence what is read and measured.

use crate::finding::{Change, Evidence, Measurement};
use crate::instruments::Instruments;
use crate::saved::Saved;
use crate::setting::Setting;
use crate::system::{System, Unseen};
use crate::text::{chosen, number};

/// A check's look at a system.
pub struct Look<'a> {
    /// Files, of which no evidence is kept unless the check notes it.
    pub system: &'a System,
    /// The instruments.
    pub instruments: &'a dyn Instruments,
    /// The changes of `--fix` since the kernel was booted.
    pub saved: &'a Saved,
    /// The evidence so far.
    pub evidence: Vec<Evidence>,
    /// The measurements so far.
    pub measured: Vec<Measurement>,
}

/// The hypervisor of the kernel that is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hypervisor {
    /// None: it runs on the hardware.
    Nothing,
    /// KVM.
    Kvm,
    /// QEMU's translation, which has neither large TLB pages nor steal time.
    Tcg,
    /// Another one, or nobody knows which.
    Other,
}

impl<'a> Look<'a> {
    /// A look that has seen nothing yet.
    pub fn new(system: &'a System, instruments: &'a dyn Instruments, saved: &'a Saved) -> Look<'a> {
        Look { system, instruments, saved, evidence: Vec::new(), measured: Vec::new() }
    }

    /// Keeps something as evidence.
    pub fn note(&mut self, of: impl Into<String>, is: impl Into<String>) {
        self.evidence.push(Evidence { of: of.into(), is: is.into() });
    }

    /// Keeps a measurement.
    pub fn measure(&mut self, what: &str, value: f64, unit: &'static str) {
        self.measured.push(Measurement { what: what.into(), value, unit });
    }

    /// A short file, if it exists.
    pub fn text(&mut self, path: &str) -> Result<Option<String>, Unseen> {
        let text = self.system.text(path)?.map(|text| text.trim().to_owned());
        if let Some(text) = &text {
            self.note(format!("/{path}"), text.clone());
        }
        Ok(text)
    }

    /// A short file that must exist.
    pub fn need(&mut self, path: &str) -> Result<String, Unseen> {
        match self.text(path)? {
            Some(text) => Ok(text),
            None => self.system.need(path),
        }
    }

    /// The chosen one of several words: `always [madvise] never`.
    pub fn chosen(&mut self, path: &str) -> Result<Option<String>, Unseen> {
        Ok(self.text(path)?.map(|text| chosen(&text).to_owned()))
    }

    /// A number after a name, in files such as meminfo, vmstat and status.
    pub fn number(&mut self, path: &str, name: &str) -> Result<Option<u64>, Unseen> {
        let text = self.system.text(path)?;
        let number = text.as_deref().and_then(|text| number(text, name));
        if let Some(number) = number {
            self.note(format!("/{path}, {name}"), number.to_string());
        }
        Ok(number)
    }

    /// The features of the first processor; none where the kernel lists them otherwise than on x86.
    pub fn flags(&self) -> Result<Option<Vec<String>>, Unseen> {
        let text = self.system.need("proc/cpuinfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("flags"));
        let words = line.and_then(|line| line.split_once(':'));
        Ok(words.map(|(_, words)| words.split_whitespace().map(String::from).collect()))
    }

    /// The processors that run.
    pub fn online(&self) -> Result<crate::cpus::Cpus, Unseen> {
        Ok(crate::cpus::parse(&self.system.need("sys/devices/system/cpu/online")?))
    }

    /// The hypervisor of this kernel; `None` if the kernel does not tell whether there is one.
    pub fn hypervisor(&mut self) -> Result<Option<Hypervisor>, Unseen> {
        let Some(flags) = self.flags()? else {
            return Ok(None);
        };
        if !flags.iter().any(|flag| flag == "hypervisor") {
            self.note("/proc/cpuinfo, flags", "no hypervisor");
            return Ok(Some(Hypervisor::Nothing));
        }
        let signature = self.instruments.hypervisor().unwrap_or_default();
        let it = match &*signature {
            "KVMKVMKVM" => Hypervisor::Kvm,
            "TCGTCGTCGTCG" => Hypervisor::Tcg,
            _ => Hypervisor::Other,
        };
        self.note("cpuid, hypervisor", if signature.is_empty() { "unknown" } else { &signature });
        Ok(Some(it))
    }

    /// A change of a file that holds one value, or marks one of several.
    pub fn change(&self, path: &str, to: &str) -> Result<Change, Unseen> {
        let setting = Setting::file(path);
        let from = chosen(self.system.need(path)?.trim()).to_owned();
        Ok(Change { setting, from, to: to.into() })
    }
}
