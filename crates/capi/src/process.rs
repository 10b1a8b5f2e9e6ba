//! What tells this process from others of its kernel, which is the port's to know, and this kernel from others.

use crate::raw::{self, syscall};
use crate::text::Text;
use core::ffi::CStr;

pub use vshmem_port::process::*;

/// The running kernel's boot id, which all its containers share.
pub fn boot_id() -> Option<[u8; 16]> {
    let mut buffer = [0; 64];
    parse_uuid(raw::read_file(
        c"/proc/sys/kernel/random/boot_id",
        &mut buffer,
    )?)
}

fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut id = [0u8; 16];
    let mut digits = text.trim_ascii_end().iter().filter(|b| **b != b'-');
    for byte in &mut id {
        let mut digit = || (*digits.next()? as char).to_digit(16);
        *byte = (digit()? << 4 | digit()?) as u8;
    }
    digits.next().is_none().then_some(id)
}

/// The machine's name, for listings.
pub fn host_name(out: &mut Text<32>) {
    // SAFETY: all zeros is a valid utsname; the kernel fills it with C strings.
    unsafe {
        let mut names: libc::utsname = core::mem::zeroed();
        if syscall!(libc::SYS_uname, &raw mut names) == 0 {
            out.push(CStr::from_ptr(names.nodename.as_ptr()).to_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_parsed() {
        let id = parse_uuid(b"00010203-0405-0607-0809-0a0b0c0d0eff\n");
        assert_eq!(
            id,
            Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255])
        );
        assert_eq!(parse_uuid(b"0001"), None);
        assert_eq!(parse_uuid(b"g0010203-0405-0607-0809-0a0b0c0d0eff"), None);
        assert!(boot_id().is_some());
    }
}
