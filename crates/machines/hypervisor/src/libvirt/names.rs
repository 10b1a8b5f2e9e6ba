//! The names and UUIDs of domains, and of the networks between them.

use crate::state::record::{Machine, Record};
use vshmem_base::directories::{boot_id, cluster_directory};
use vshmem_base::error::Result;

/// The name of a machine's domain.
pub fn name_of(record: &Record, machine: &Machine) -> String {
    format!("vshmem-{}-{}", record.name, machine.name)
}

/// The name of the network between the machines of a cluster.
pub fn network_name(record: &Record) -> String {
    format!("vshmem-{}", record.name)
}

/// The UUID of a machine's domain: always the same for this machine in this boot of the host, so that a
/// domain is known as ours even if no record says so.
pub fn uuid_of(record: &Record, machine: &Machine) -> Result<String> {
    uuid_in(record, &machine.name)
}

/// The UUID of the network between the machines of a cluster. No machine has this one's empty name.
pub fn network_uuid(record: &Record) -> Result<String> {
    uuid_in(record, "")
}

fn uuid_in(record: &Record, name: &str) -> Result<String> {
    let directory = cluster_directory(&record.name)?;
    Ok(uuid(&[boot_id().as_bytes(), directory.as_os_str().as_encoded_bytes(), name.as_bytes()]))
}

/// A UUID (RFC 9562, version 8) made of these parts by the hash function FNV-1a of 128 bits.
fn uuid(parts: &[&[u8]]) -> String {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in parts.iter().flat_map(|part| part.iter().copied().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let version_and_variant = 0xf << 76 | 0x3 << 62;
    let digits = format!("{:032x}", hash & !version_and_variant | 8 << 76 | 2 << 62);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_made_of_all_parts() {
        let one = uuid(&[b"boot", b"directory", b"vm0"]);
        assert_eq!(one, uuid(&[b"boot", b"directory", b"vm0"]));
        assert_ne!(one, uuid(&[b"boot", b"directory", b"vm1"]));
        assert_ne!(one, uuid(&[b"boot", b"director", b"yvm0"]));
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(one.as_bytes()[14] == b'8' && b"89ab".contains(&one.as_bytes()[19]), "{one}");
    }
}
