//! The unpacked kernel image, which is unpacked once, on the host. An image that unpacks itself at boot takes
//! seconds where instructions are translated. An unpacked image with a PVH entry point is started directly.

use super::kernel::Kernel;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use vshmem_base::directories::cache_directory;
use vshmem_base::elf;

/// Decompressors, by the magic number of their data. They may complain about the four bytes behind it.
const UNPACKERS: [(&[u8], &str, &[&str]); 5] = [
    (b"\xfd7zXZ\0", "xz", &["-dc", "--single-stream"]),
    (b"\x28\xb5\x2f\xfd", "zstd", &["-dc"]),
    (b"\x1f\x8b", "gzip", &["-dc"]),
    (b"\x02\x21\x4c\x18", "lz4", &["-dc"]),
    (b"BZh", "bzip2", &["-dc"]),
];

/// Time for which an unused kernel stays in the cache: longer than any command takes to start machines with
/// it.
const CACHE_TIME: Duration = Duration::from_secs(24 * 3600);

/// The unpacked kernel, from the cache or unpacked now; `None` if the packed image must do.
pub fn unpacked(kernel: &Kernel, report: &mut dyn FnMut(&str)) -> Option<PathBuf> {
    let meta = fs::metadata(&kernel.image).ok()?;
    let name = format!("{}-{}-{}", kernel.version, meta.len(), meta.mtime());
    let directory = cache_directory().ok()?.join("unpacked");
    let path = directory.join(name);
    if let Ok(file) = File::open(&path) {
        // Only the owner of the cache removes its files.
        let _ = file.set_modified(SystemTime::now());
        return Some(path);
    }
    report("unpacking the kernel, once");
    fs::create_dir_all(&directory).ok()?;
    let work = directory.join(format!(".new-{}", std::process::id()));
    let made = unpack(&kernel.image, &work).and_then(|bytes| store(&bytes, &work, &path).ok());
    let _ = fs::remove_file(&work);
    remove_unused(&directory);
    made.map(|()| path)
}

/// Removes kernels that were not used for a day, and leftovers of interrupted commands. Other kernels may be
/// in use by commands that start machines.
fn remove_unused(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let used = entry.metadata().and_then(|meta| meta.modified());
        if used.is_ok_and(|at| at.elapsed().is_ok_and(|unused| unused > CACHE_TIME)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn store(bytes: &[u8], work: &Path, path: &Path) -> io::Result<()> {
    fs::write(work, bytes)?;
    fs::rename(work, path)
}

fn unpack(image: &Path, work: &Path) -> Option<Vec<u8>> {
    let image = fs::read(image).ok()?;
    let packed = payload(&image)?;
    let (_, program, args) = UNPACKERS.iter().find(|(magic, ..)| packed.starts_with(magic))?;
    File::create(work).and_then(|mut file| file.write_all(packed)).ok()?;
    let out = Command::new(program)
        .args(*args)
        .stdin(File::open(work).ok()?)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let kernel = elf::loaded_part(&out.stdout);
    has_pvh_entry(&kernel).then_some(kernel)
}

/// The compressed part of a bzImage (Documentation/arch/x86/boot.rst of Linux).
pub fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let word = |at: usize| -> Option<usize> {
        let raw: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(raw)).ok()
    };
    let setup_sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    image.get(start..start.checked_add(word(0x24c)?)?)
}

/// The owner of the ELF note, by name: the hypervisor for which PVH was made.
const NOTE_OWNER: [u8; 4] = [0x58, 0x65, 0x6e, 0];

/// Whether an ELF file has note 18 of that owner, which gives a kernel's PVH entry point.
pub fn has_pvh_entry(kernel: &[u8]) -> bool {
    const NOTE: u32 = 4;
    elf::segments(kernel, NOTE).iter().any(|notes| {
        notes.windows(16).any(|note| {
            note[..4] == [4, 0, 0, 0] && note[8..12] == [18, 0, 0, 0] && note[12..16] == NOTE_OWNER
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_where_the_header_says() {
        let mut image = vec![0; 4096];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x1f1] = 2;
        image[0x248] = 10;
        image[0x24c] = 5;
        image[3 * 512 + 10..3 * 512 + 15].copy_from_slice(b"12345");
        assert_eq!(payload(&image), Some(&b"12345"[..]));
        image[0x24c..0x250].fill(0xff);
        assert_eq!(payload(&image), None);
        assert_eq!(payload(b"short"), None);
    }

    #[test]
    fn kernels_that_may_be_in_use_stay() {
        let directory = std::env::temp_dir().join(format!("vshmem-unpacked-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for (name, age) in [("new", Duration::ZERO), ("used", CACHE_TIME / 2), ("old", CACHE_TIME * 2)] {
            let file = File::create(directory.join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        remove_unused(&directory);
        let is_there = |name: &str| directory.join(name).exists();
        assert_eq!(["new", "used", "old"].map(is_there), [true, true, false]);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_program_has_no_pvh_entry() {
        assert!(!has_pvh_entry(&fs::read("/proc/self/exe").unwrap()));
        assert!(!has_pvh_entry(b""));
    }
}
