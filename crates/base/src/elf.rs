//! ELF files: the program loader's path, segments and sections, and a copy without the parts that are never
//! loaded, since debug information makes up most of a binary.

use elf::abi::{DT_NEEDED, DT_SONAME, PT_INTERP, PT_LOAD};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::segment::ProgramHeader;
use elf::ElfBytes;

/// The fields of a 64-bit ELF header that describe sections (System V ABI, figure 4-3): the table's offset,
/// and its length with the index of the section names.
const SECTIONS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];

fn parse(bytes: &[u8]) -> Option<ElfBytes<'_, AnyEndian>> {
    ElfBytes::minimal_parse(bytes).ok().filter(|file| file.ehdr.class == Class::ELF64)
}

fn headers_of(file: &ElfBytes<AnyEndian>, kind: u32) -> Vec<ProgramHeader> {
    let headers = file.segments().into_iter().flatten();
    headers.filter(|header| header.p_type == kind).collect()
}

/// The path of a dynamic program's loader; `None` for a static program.
pub fn interpreter(bytes: &[u8]) -> Option<String> {
    let raw = *segments(bytes, PT_INTERP).first()?;
    let text = raw.strip_suffix(b"\0").unwrap_or(raw);
    String::from_utf8(text.to_vec()).ok()
}

/// The libraries that a program or library is linked with, by their names.
pub fn needed(bytes: &[u8]) -> Vec<String> {
    dynamic(bytes, DT_NEEDED)
}

/// The name by which others are linked with a library, if it has one.
pub fn soname(bytes: &[u8]) -> Option<String> {
    dynamic(bytes, DT_SONAME).pop()
}

/// The names in the dynamic section under this tag.
fn dynamic(bytes: &[u8], tag: i64) -> Vec<String> {
    let all = parse(bytes).and_then(|file| {
        let common = file.find_common_data().ok()?;
        let (entries, names) = (common.dynamic?, common.dynsyms_strs?);
        let found = entries.iter().filter(|entry| entry.d_tag == tag);
        Some(found.filter_map(|entry| Some(names.get(entry.d_val() as usize).ok()?.to_owned())).collect())
    });
    all.unwrap_or_default()
}

/// The bytes of all segments of one type.
pub fn segments(bytes: &[u8], kind: u32) -> Vec<&[u8]> {
    let Some(file) = parse(bytes) else {
        return vec![];
    };
    let headers = headers_of(&file, kind);
    headers.iter().filter_map(|header| file.segment_data(header).ok()).collect()
}

/// The file up to the end of its last loaded segment; the whole file if that can't be determined.
pub fn loaded_part(bytes: &[u8]) -> Vec<u8> {
    let end = parse(bytes).and_then(|file| {
        headers_of(&file, PT_LOAD).iter().map(|load| load.p_offset.checked_add(load.p_filesz)).max()?
    });
    let fits = |end: &usize| (SECTIONS[1].end..=bytes.len()).contains(end);
    let Some(end) = end.and_then(|end| end.try_into().ok()).filter(fits) else {
        return bytes.to_vec();
    };
    let mut out = bytes[..end].to_vec();
    for field in SECTIONS {
        out[field].fill(0);
    }
    out
}

/// The bytes of the section with this name.
pub fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let file = parse(bytes)?;
    let header = file.section_header_by_name(name).ok()??;
    Some(file.section_data(&header).ok()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_binary() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn own_loader_exists() {
        if let Some(loader) = interpreter(&own_binary()) {
            assert!(std::path::Path::new(&loader).is_file(), "{loader}");
        }
    }

    #[test]
    fn loaded_part_is_smaller_and_still_runs() {
        let whole = own_binary();
        let part = loaded_part(&whole);
        assert!(part.len() < whole.len());
        let path = std::env::temp_dir().join(format!("vshmem-elf-{}", std::process::id()));
        std::fs::write(&path, &part).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).unwrap();
        let run = || std::process::Command::new(&path).arg("--list").output();
        let is_busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
        let mut out = run();
        // Another test may have forked a child while the file was open to write.
        while out.as_ref().is_err_and(is_busy) {
            out = run();
        }
        std::fs::remove_file(&path).unwrap();
        assert!(out.unwrap().status.success());
    }

    #[test]
    fn libraries_have_names() {
        let bytes = own_binary();
        let libraries = needed(&bytes);
        if interpreter(&bytes).is_some() {
            assert!(libraries.iter().any(|name| name.starts_with("libc.so")), "{libraries:?}");
        }
        assert_eq!(soname(&bytes), None, "it is a program");
    }

    #[test]
    fn finds_a_section_by_name() {
        let bytes = own_binary();
        assert!(section(&bytes, ".text").is_some_and(|text| text.len() > 1000));
        assert!(section(&bytes, ".no-such-section").is_none());
    }

    #[test]
    fn damaged_files_are_refused_without_a_crash() {
        let whole = own_binary();
        for len in 0..300 {
            let _ = (interpreter(&whole[..len]), section(&whole[..len], ".text"), needed(&whole[..len]));
            assert_eq!(loaded_part(&whole[..len]), &whole[..len]);
        }
        let mut wild = whole[..4096].to_vec();
        for at in 0x20..0x40 {
            let kept = wild[at];
            wild[at] = 0xff;
            let _ = (interpreter(&wild), section(&wild, ".text"), loaded_part(&wild), needed(&wild));
            wild[at] = kept;
        }
    }
}
