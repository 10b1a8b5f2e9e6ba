//! The little that we need of ELF files: the program loader's name, one section's bytes, and a copy without
//! what is never loaded (debug information makes up most of a binary).

/// Where the fields of a 64-bit little-endian ELF header lie (System V ABI, figure 4-3).
mod header {
    pub const PROGRAM_OFFSET: usize = 0x20;
    pub const SECTION_OFFSET: usize = 0x28;
    pub const PROGRAM_COUNT: usize = 0x38;
    pub const SECTION_SIZE: usize = 0x3a;
    pub const SECTION_COUNT: usize = 0x3c;
    pub const SECTION_NAMES: usize = 0x3e;
    pub const SIZE: usize = 0x40;
    pub const PROGRAM_HEADER_SIZE: usize = 56;
    pub const SECTION_HEADER_SIZE: usize = 64;
}

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    let raw = u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?);
    usize::try_from(raw).ok()
}

fn is_elf64(bytes: &[u8]) -> bool {
    bytes.len() >= header::SIZE && bytes.starts_with(b"\x7fELF\x02\x01")
}

/// (type, offset in the file, size in the file) of each program header.
fn program_headers(bytes: &[u8]) -> Option<Vec<(u32, usize, usize)>> {
    if !is_elf64(bytes) {
        return None;
    }
    let table = usize_at(bytes, header::PROGRAM_OFFSET)?;
    let count = usize::from(u16_at(bytes, header::PROGRAM_COUNT)?);
    let mut out = Vec::with_capacity(count);
    for i in 0..count {
        let at = table.checked_add(i * header::PROGRAM_HEADER_SIZE)?;
        let entry = bytes.get(at..at.checked_add(header::PROGRAM_HEADER_SIZE)?)?;
        out.push((u32_at(entry, 0)?, usize_at(entry, 8)?, usize_at(entry, 32)?));
    }
    Some(out)
}

/// The path of the program loader that a dynamic program asks for; `None` for a static one.
pub fn interpreter(bytes: &[u8]) -> Option<String> {
    let (_, offset, size) = program_headers(bytes)?
        .into_iter()
        .find(|h| h.0 == PT_INTERP)?;
    let raw = bytes.get(offset..offset.checked_add(size)?)?;
    let text = raw.strip_suffix(b"\0").unwrap_or(raw);
    String::from_utf8(text.to_vec()).ok()
}

/// The bytes of all segments of one type.
pub fn segments(bytes: &[u8], kind: u32) -> Vec<&[u8]> {
    let headers = program_headers(bytes).unwrap_or_default();
    let of_kind = headers.iter().filter(|header| header.0 == kind);
    of_kind
        .filter_map(|&(_, offset, size)| bytes.get(offset..offset.checked_add(size)?))
        .collect()
}

/// The file without what lies behind its last loaded segment; as it was if that can't be told.
pub fn loaded_part(bytes: &[u8]) -> Vec<u8> {
    let end = program_headers(bytes).and_then(|headers| {
        let loads = headers.iter().filter(|h| h.0 == PT_LOAD);
        loads
            .map(|&(_, offset, size)| offset.checked_add(size))
            .max()?
    });
    let Some(end) = end.filter(|&end| end >= header::SIZE && end <= bytes.len()) else {
        return bytes.to_vec();
    };
    let mut out = bytes[..end].to_vec();
    out[header::SECTION_OFFSET..header::SECTION_OFFSET + 8].fill(0);
    out[header::SECTION_COUNT..header::SECTION_COUNT + 2].fill(0);
    out[header::SECTION_NAMES..header::SECTION_NAMES + 2].fill(0);
    out
}

/// The bytes of the section with this name.
pub fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !is_elf64(bytes) {
        return None;
    }
    let table = usize_at(bytes, header::SECTION_OFFSET)?;
    let count = usize::from(u16_at(bytes, header::SECTION_COUNT)?);
    if usize::from(u16_at(bytes, header::SECTION_SIZE)?) != header::SECTION_HEADER_SIZE {
        return None;
    }
    let entry = |i: usize| -> Option<(usize, &'a [u8])> {
        let at = table.checked_add(i.checked_mul(header::SECTION_HEADER_SIZE)?)?;
        let raw = bytes.get(at..at.checked_add(header::SECTION_HEADER_SIZE)?)?;
        let (offset, size) = (usize_at(raw, 24)?, usize_at(raw, 32)?);
        Some((
            u32_at(raw, 0)? as usize,
            bytes.get(offset..offset.checked_add(size)?).unwrap_or(&[]),
        ))
    };
    let (_, names) = entry(usize::from(u16_at(bytes, header::SECTION_NAMES)?))?;
    (0..count).filter_map(entry).find_map(|(at, data)| {
        let text = names.get(at..)?.split(|&b| b == 0).next()?;
        (text == name.as_bytes()).then_some(data)
    })
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
        let out = std::process::Command::new(&path).arg("--list").output();
        std::fs::remove_file(&path).unwrap();
        assert!(out.unwrap().status.success());
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
            let _ = (interpreter(&whole[..len]), section(&whole[..len], ".text"));
            assert_eq!(loaded_part(&whole[..len]), &whole[..len]);
        }
        let mut wild = whole[..4096].to_vec();
        for at in header::PROGRAM_OFFSET..header::SIZE {
            let kept = wild[at];
            wild[at] = 0xff;
            let _ = (
                interpreter(&wild),
                section(&wild, ".text"),
                loaded_part(&wild),
            );
            wild[at] = kept;
        }
    }
}
