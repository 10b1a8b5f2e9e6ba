//! The disks of a machine that boots a system of its own: an overlay over an image that stays as it is, and
//! the seed, which cloud-init reads.

use super::arguments::Arguments;
use crate::boot::driver::Choice;
use crate::boot::image::System;
use crate::boot::seed;
use crate::shared::image::{make_overlay, Format};
use crate::shared::sandbox::Descriptor;
use crate::state::disks::Disks;
use crate::state::record::Record;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use vshmem_base::error::{Explain, Result};
use vshmem_guest::settings::{mac, Settings};

/// The disks of a machine.
pub struct Attached {
    /// The image, its format and the overlay; none without a disk.
    pub disk: Option<(PathBuf, Format, PathBuf)>,
    /// The seed.
    pub seed: PathBuf,
}

impl Attached {
    /// Makes the disks of the machine with this index. An overlay that exists stays.
    pub fn make(record: &Record, index: usize, system: &System, settings: &Settings) -> Result<Attached> {
        let machine = &record.machines[index];
        let disks = Disks::of(&record.name, &machine.name)?;
        disks.prepare()?;
        let base = make_overlay(system, &disks.overlay)?;
        let driver = record.options.as_ref().map_or(Choice::Auto, |options| options.driver.clone());
        // cloud-init takes another disk for another machine.
        let instance = format!("vshmem-{}-{}", record.name, machine.name);
        seed::write(&disks.seed, settings, (&instance, &mac(machine.index)), &driver)?;
        Ok(Attached { disk: base.map(|(image, format)| (image, format, disks.overlay)), seed: disks.seed })
    }

    /// Gives the disks to another user, which opens them.
    pub fn give(&self, user: u32) -> Result<()> {
        let written = self.disk.as_ref().map(|(_, _, written)| written);
        written.into_iter().chain([&self.seed]).try_for_each(|file| {
            chown(file, Some(user), None)
                .explain(|| format!("could not make {} user {user}'s", file.display()))
        })
    }

    /// Adds the disks to QEMU's arguments. They need not survive this host, so nothing waits for its own
    /// disks.
    pub fn add(&self, out: &mut Arguments) {
        if let Some((image, format, written)) = &self.disk {
            node(out, "image", Descriptor::Read(image.clone()), *format, ("read-only=on", ""));
            let (options, backing) = ("cache.no-flush=on,discard=unmap", ",backing=image");
            node(out, "disk", Descriptor::Write(written.clone()), Format::Qcow2, (options, backing));
            // A kernel that QEMU loads has index 0.
            out.add("-device", "virtio-blk-pci,drive=disk,bootindex=1");
        }
        node(out, "seed", Descriptor::Read(self.seed.clone()), Format::Raw, ("read-only=on", ""));
        out.add("-device", "virtio-blk-pci,drive=seed");
    }
}

/// Adds a disk image as a node of this name. `both` are options of the image and of its file, `own` those of
/// the image only.
fn node(out: &mut Arguments, name: &str, file: Descriptor, format: Format, (both, own): (&str, &str)) {
    let file = out.set(file);
    out.add("-blockdev", &format!("driver=file,node-name={name}-file,filename={file},{both}"));
    let format = format.name();
    out.add("-blockdev", &format!("driver={format},node-name={name},file={name}-file,{both}{own}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_only_read() {
        let mut out = Arguments::default();
        let disk = Some(("/base".into(), Format::Raw, "/over".into()));
        Attached { disk, seed: "/seed".into() }.add(&mut out);
        let line = out.words.join(" ");
        for file in ["/base", "/over", "/seed"] {
            assert!(!line.contains(file), "{line}");
        }
        assert_eq!(format!("{:?}", out.descriptors.0), r#"[Read("/base"), Write("/over"), Read("/seed")]"#);
        assert!(line.contains("driver=raw,node-name=image,file=image-file,read-only=on"), "{line}");
        assert!(line.contains("driver=qcow2,node-name=disk,file=disk-file,"), "{line}");
        assert!(line.contains(",backing=image"), "{line}");
        assert!(line.contains("-add-fd fd=513,set=513"), "{line}");
    }
}
