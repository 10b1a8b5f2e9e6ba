//! Kernel modules for tests.

/// The smallest ELF file with a .modinfo section.
pub fn module_file(info: &[u8]) -> Vec<u8> {
    let names = b"\0.modinfo\0.shstrtab\0";
    let mut file = vec![0u8; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let info_at = file.len();
    file.extend_from_slice(info);
    let names_at = file.len();
    file.extend_from_slice(names);
    let table = file.len() as u64;
    for (name, at, len) in [(0u32, 0, 0), (1, info_at, info.len()), (10, names_at, names.len())] {
        let mut header = [0u8; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
        file.extend_from_slice(&header);
    }
    file[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
    file[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
    file[0x3e..0x40].copy_from_slice(&2u16.to_le_bytes());
    file
}
