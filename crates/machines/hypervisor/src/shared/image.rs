//! Images of disks as QEMU takes them: their formats, and overlays over them.

use crate::boot::image::System;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vshmem_base::error::{error, Error, Explain, Result};

/// The program that makes overlays.
const PROGRAM: &str = "qemu-img";
/// Bytes of a file that tell its format.
const HEAD: usize = 512;
/// The first bytes of packed files, and the program that packs them.
const PACKED: [(&[u8], &str); 4] =
    [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b", "gzip"), (b"BZh", "bzip2")];

/// The format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// QEMU's own.
    Qcow2,
    /// The disk's bytes.
    Raw,
}

/// An error unless a machine can boot a system, as far as its files tell.
pub fn check(system: &System) -> Result<()> {
    if let Some(disk) = &system.disk {
        if !system.awaited {
            format(system, disk)?;
        }
        // Before anything is started.
        run(Command::new(PROGRAM).arg("--version"))?;
    }
    let files = system.kernel.iter().flat_map(|kernel| [Some(&kernel.image), kernel.initramfs.as_ref()]);
    files.flatten().try_for_each(|file| open(file).map(drop))
}

/// The format of the disk image of a system.
fn format(system: &System, disk: &Path) -> Result<Format> {
    let mut head = Vec::new();
    open(disk)?
        .take(HEAD as u64)
        .read_to_end(&mut head)
        .explain(|| format!("could not read {}", disk.display()))?;
    format_of(&head, system.kernel.is_none()).map_err(|error| error.about(&disk.display().to_string()))
}

/// Makes a disk at this path that shows the image of a system, and takes what is written, unless there is
/// one. Returns the image and its format, if the system has a disk.
pub fn make_overlay(system: &System, overlay: &Path) -> Result<Option<(PathBuf, Format)>> {
    let Some(disk) = &system.disk else {
        return Ok(None);
    };
    let format = format(system, disk)?;
    if !overlay.exists() {
        // It is there as a whole or not at all, and nobody else has it open.
        let partial = overlay.with_extension("partial");
        let made = File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial);
        made.explain(|| format!("could not make {}", partial.display()))?;
        let mut make = Command::new(PROGRAM);
        make.args(["create", "-q", "-f", Format::Qcow2.name(), "-F", format.name(), "-b"]);
        run(make.arg(disk).arg(&partial)).map_err(|error| error.about("could not make a machine's disk"))?;
        fs::rename(&partial, overlay).explain(|| format!("could not make {}", overlay.display()))?;
    }
    Ok(Some((disk.clone(), format)))
}

impl Format {
    /// QEMU's name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Format::Qcow2 => "qcow2",
            Format::Raw => "raw",
        }
    }
}

fn open(file: &Path) -> Result<File> {
    let opened = File::open(file).explain(|| format!("could not open {}", file.display()))?;
    match opened.metadata().is_ok_and(|meta| meta.is_dir()) {
        true => Err(error!("{} is a directory, and no image", file.display())),
        false => Ok(opened),
    }
}

fn run(command: &mut Command) -> Result<()> {
    let out = command.stdin(Stdio::null()).output().map_err(|why| {
        error!("{PROGRAM}, which makes the disks of machines, could not be started: {why}")
            .hint("Install it, for instance: sudo apt-get install qemu-utils")
    })?;
    match out.status.success() {
        true => Ok(()),
        false => Err(Error::new(vshmem_base::plain(String::from_utf8_lossy(&out.stderr).trim()))),
    }
}

/// The format of a file that begins with these bytes (docs/interop/qcow2.txt of QEMU). A disk that is
/// `booted` has a boot sector.
fn format_of(head: &[u8], booted: bool) -> Result<Format> {
    if let Some((_, program)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(Error::new("it is packed").hint(format!("Unpack it with {program} -d.")));
    }
    if !head.starts_with(b"QFI\xfb") {
        return match !booted || head.get(510..512) == Some(b"\x55\xaa") {
            true => Ok(Format::Raw),
            false => Err(Error::new("it is neither a qcow2 image nor a disk that can be booted")),
        };
    }
    let word = |at: usize| Some(u64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let version = head.get(4..8).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
    // What is behind the size is only there from version 3.
    let features = if version == Some(2) { Some(0) } else { word(72) };
    match (version, word(8), features) {
        (Some(2 | 3), Some(0), Some(features)) if features & 1 << 2 == 0 => Ok(Format::Qcow2),
        (Some(2 | 3), Some(_), Some(_)) => Err(Error::new("parts of it are in another file")
            .hint(format!("Make one image of them: {PROGRAM} convert -O qcow2 OLD NEW"))),
        _ => Err(Error::new("it is a qcow2 image of an unknown version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qcow2(version: u32, backing: u64, features: u64) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        head[..4].copy_from_slice(b"QFI\xfb");
        head[4..8].copy_from_slice(&version.to_be_bytes());
        head[8..16].copy_from_slice(&backing.to_be_bytes());
        head[72..80].copy_from_slice(&features.to_be_bytes());
        head
    }

    #[test]
    fn images_are_told_by_their_first_bytes() {
        assert_eq!(format_of(&qcow2(3, 0, 0), true).unwrap(), Format::Qcow2);
        // In version 2 these bytes are something else's.
        assert_eq!(format_of(&qcow2(2, 0, 4), true).unwrap(), Format::Qcow2);
        let mut disk = vec![0; HEAD];
        assert_eq!(format_of(&disk, false).unwrap(), Format::Raw);
        disk[510..].copy_from_slice(b"\x55\xaa");
        assert_eq!(format_of(&disk, true).unwrap(), Format::Raw);
    }

    #[test]
    fn what_machines_could_not_boot_is_refused() {
        let cases: [(Vec<u8>, &str); 7] = [
            (qcow2(3, 104, 0), "parts of it are in another file"),
            (qcow2(3, 0, 4), "parts of it are in another file"),
            (qcow2(4, 0, 0), "unknown version"),
            (b"QFI\xfb\0\0\0\x03".to_vec(), "unknown version"),
            (vec![0; HEAD], "neither a qcow2 image nor"),
            (vec![], "neither a qcow2 image nor"),
            (b"\xfd7zXZ\0 and more".to_vec(), "packed"),
        ];
        for (head, said) in cases {
            let why = format_of(&head, true).unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
        let missing = System { disk: Some("/no/such.qcow2".into()), kernel: None, awaited: false };
        let why = check(&missing).unwrap_err().to_string();
        assert!(why.contains("could not open /no/such.qcow2"), "{why}");
        let directory = System { disk: Some("/".into()), kernel: None, awaited: false };
        assert!(check(&directory).unwrap_err().to_string().contains("/ is a directory"));
    }
}
