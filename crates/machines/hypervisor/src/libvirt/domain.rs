//! The description of a domain.

use super::devices::Devices;
use super::tuning;
use super::uri::RunsAs;
use crate::qemu::accel::Accel;
use crate::qemu::placed::Backing;
use crate::shared::affinity::Pins;
use crate::shared::xml::{text_of, Element};
use std::path::{Path, PathBuf};
use vshmem_base::error::Result;
use vshmem_placement::plan::Placed;

const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// A domain.
pub struct DomainSpec<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UUID.
    pub uuid: &'a str,
    /// A description for lists of domains.
    pub title: String,
    /// QEMU's program.
    pub emulator: &'a Path,
    /// The user that it runs as.
    pub runs_as: RunsAs,
    /// Its accelerator.
    pub accel: Accel,
    /// Virtual cores.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Its placement, if one was asked for.
    pub placement: Option<&'a Placed>,
    /// The processors of its threads, if they are pinned.
    pub pins: Option<&'a Pins>,
    /// The pages of its memory, and the threads that take them.
    pub backing: &'a Backing,
    /// Memory that its QEMU locks, in bytes, if libvirt is to permit that.
    pub locked: Option<u64>,
    /// The kernel that it boots; none: its disk's boot loader finds one.
    pub kernel: Option<Loaded>,
    /// Room behind the ports for pools, in bytes.
    pub room: u64,
    /// Its devices.
    pub devices: Devices<'a>,
}

/// A kernel that QEMU loads.
pub struct Loaded {
    /// Its image.
    pub image: PathBuf,
    /// Its initramfs.
    pub initramfs: Option<PathBuf>,
    /// Its parameters.
    pub parameters: String,
}

/// The description of a domain, as libvirt takes it.
///
/// # Errors
/// It can't be written as XML, or the domain has no room for all its devices.
pub fn describe(spec: &DomainSpec<'_>) -> Result<String> {
    let kind = match spec.accel {
        Accel::Kvm => "kvm",
        Accel::Tcg => "qemu",
    };
    let event = |name| Element::new(name).text("destroy");
    let emulator = Element::new("emulator").text(text_of(spec.emulator)?);
    let devices = Element::new("devices").and([emulator]).and(spec.devices.elements()?);
    Element::new("domain")
        .with("type", kind)
        .with("xmlns:qemu", QEMU)
        .and([
            Element::new("name").text(spec.name),
            Element::new("uuid").text(spec.uuid),
            Element::new("title").text(&spec.title),
            Element::new("memory").with("unit", "KiB").text(spec.memory / 1024),
        ])
        .and(spec.locked.map(|bytes| {
            Element::new("memtune").and([Element::new("hard_limit").with("unit", "KiB").text(bytes / 1024)])
        }))
        .and(tuning::elements(spec.accel, spec.cpus, spec.placement, spec.pins, spec.backing))
        .and([
            system(spec.kernel.as_ref())?,
            // ACPI plugs pools in.
            Element::new("features").and([Element::new("acpi")]),
            event("on_poweroff"),
            event("on_reboot"),
            event("on_crash"),
            devices,
        ])
        .and(label(spec.runs_as))
        .and([command_line(spec.room)])
        .document()
}

/// The element of its kernel, or of its disk's boot loader.
fn system(kernel: Option<&Loaded>) -> Result<Element> {
    let kind = Element::new("type").with("arch", "x86_64").with("machine", "q35").text("hvm");
    let system = Element::new("os").and([kind]);
    let Some(kernel) = kernel else {
        return Ok(system);
    };
    let initramfs = kernel.initramfs.as_deref().map(text_of).transpose()?;
    Ok(system
        .and([Element::new("kernel").text(text_of(&kernel.image)?)])
        .and(initramfs.map(|file| Element::new("initrd").text(file)))
        .and([Element::new("cmdline").text(&kernel.parameters)]))
}

/// The user and group that libvirt has to be told.
fn label(runs_as: RunsAs) -> Option<Element> {
    let RunsAs::Explicit(user, group) = runs_as else {
        return None;
    };
    let label = Element::new("label").text(format!("+{user}:+{group}"));
    Some(
        Element::new("seclabel")
            .with("type", "static")
            .with("model", "dac")
            .with("relabel", "yes")
            .and([label]),
    )
}

/// QEMU's options that libvirt has no elements for: room for pools behind ports, and no I/O ports there,
/// which are scarce.
fn command_line(room: u64) -> Element {
    let words = [format!("pcie-root-port.pref64-reserve={room}"), "pcie-root-port.io-reserve=0".into()];
    let words = words.into_iter().flat_map(|word| ["-global".to_string(), word]);
    Element::new("qemu:commandline").and(words.map(|word| Element::new("qemu:arg").with("value", word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec<'a>(title: &str, directory: &'a Path, console: &'a Path, backing: &'a Backing) -> DomainSpec<'a> {
        DomainSpec {
            name: "vshmem-c-vm0",
            uuid: "u",
            title: title.into(),
            emulator: Path::new("/usr/bin/qemu-system-x86_64"),
            runs_as: RunsAs::Explicit(65000, 108),
            accel: Accel::Tcg,
            cpus: 1,
            memory: 512 << 20,
            placement: None,
            pins: None,
            backing,
            locked: None,
            kernel: Some(Loaded {
                image: directory.join("k"),
                initramfs: Some(directory.join("i")),
                parameters: "quiet a=\"b\"".into(),
            }),
            room: 4 << 30,
            devices: Devices {
                pools: &[],
                spare: 1,
                passed: &[],
                disks: None,
                exports: &[],
                cards: &[],
                channels: 0,
                directory,
                console,
            },
        }
    }

    #[test]
    fn a_domain_is_described() {
        let backing = Backing::default();
        let spec = spec("vm0 & others", Path::new("/run"), Path::new("/run/console.log"), &backing);
        assert_eq!(describe(&spec).unwrap(), include_str!("golden.xml"));
    }

    #[test]
    fn paths_that_xml_can_not_say_are_refused() {
        let backing = Backing::default();
        let (directory, console) = (Path::new("/a\u{1}b"), Path::new("/c"));
        assert!(describe(&spec("t", directory, console, &backing))
            .unwrap_err()
            .to_string()
            .contains("U+0001"));
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/\xff"));
        assert!(describe(&spec("t", Path::new("/a"), odd, &backing))
            .unwrap_err()
            .to_string()
            .contains("UTF-8"));
    }
}
