//! PCIe slots in which devices have come to be that the kernel has not seen: those of a machine that has
//! thawed.
//!
//! The firmware has found the slots empty, and has left their power off (PCI Express Base Specification,
//! 7.5.3.10, "Slot Control Register"). What is in such a slot answers to nobody.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The directory in which the kernel lists devices.
const DEVICES: &str = "/sys/bus/pci/devices";
/// The file by which it is told to look for new ones.
const RESCAN: &str = "/sys/bus/pci/rescan";

/// Where a device's configuration space says that it has a list of capabilities, and the bit that says it.
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
/// Where it says where the first capability is.
const FIRST_CAPABILITY: usize = 0x34;
/// The capability of a PCIe device; where it has the kind of port and whether that has a slot, and the slot's
/// control register.
const EXPRESS: u8 = 0x10;
const PORT_FLAGS: usize = 0x02;
const HAS_SLOT: u16 = 1 << 8;
const SLOT_CONTROL: usize = 0x18;
/// The bit of that register by which the slot's power is off.
const POWER_OFF: u16 = 1 << 10;

/// Turns the power of all slots on, and has the kernel look what is in them.
pub fn find_devices() -> io::Result<()> {
    for entry in fs::read_dir(DEVICES)?.flatten() {
        turn_on(&entry.path().join("config"))?;
    }
    fs::write(RESCAN, "1")
}

/// Turns the power of a port's slot on, if this is the configuration space of a port with a slot.
fn turn_on(config: &Path) -> io::Result<()> {
    let mut space = [0; 256];
    let file = File::options().read(true).write(true).open(config)?;
    let len = file.read_at(&mut space, 0)?;
    match slot_control(&space[..len]) {
        Some((at, value)) if value & POWER_OFF != 0 => {
            file.write_all_at(&(value & !POWER_OFF).to_le_bytes(), at as u64)
        }
        _ => Ok(()),
    }
}

/// Where a configuration space has the control register of a slot, and what that holds.
fn slot_control(space: &[u8]) -> Option<(usize, u16)> {
    let word = |at: usize| Some(u16::from_le_bytes([*space.get(at)?, *space.get(at + 1)?]));
    if word(STATUS)? & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(*space.get(FIRST_CAPABILITY)?);
    // Each is four bytes at least.
    for _ in 0..space.len() / 4 {
        if at == 0 {
            return None;
        }
        if *space.get(at)? == EXPRESS {
            let has_slot = word(at + PORT_FLAGS)? & HAS_SLOT != 0;
            return Some((at + SLOT_CONTROL, word(at + SLOT_CONTROL)?)).filter(|_| has_slot);
        }
        at = usize::from(*space.get(at + 1)?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration space of a port, with another capability before that of PCIe.
    fn port(flags: u16, control: u16) -> [u8; 256] {
        let mut space = [0; 256];
        space[STATUS] = HAS_CAPABILITIES as u8;
        space[FIRST_CAPABILITY] = 0x40;
        space[0x40..0x42].copy_from_slice(&[0x0d, 0x54]);
        space[0x54] = EXPRESS;
        space[0x56..0x58].copy_from_slice(&flags.to_le_bytes());
        space[0x6c..0x6e].copy_from_slice(&control.to_le_bytes());
        space
    }

    #[test]
    fn the_register_of_a_slot_is_found() {
        assert_eq!(slot_control(&port(HAS_SLOT, 0x7c0)), Some((0x6c, 0x7c0)));
        assert_eq!(slot_control(&port(0, 0x7c0)), None, "a port without a slot");
        assert_eq!(slot_control(&[0; 256]), None);
        assert_eq!(slot_control(&[0xff; 256]), None, "a device that does not answer");
        for len in 0..256 {
            assert!(slot_control(&port(HAS_SLOT, 0)[..len]).is_none_or(|(at, _)| at + 2 <= len));
        }
        let mut circle = port(HAS_SLOT, 0);
        circle[0x54] = 0x0d;
        circle[0x55] = 0x40;
        assert_eq!(slot_control(&circle), None);
    }

    #[test]
    fn only_a_slot_that_is_off_is_turned_on() {
        let file = std::env::temp_dir().join(format!("vshmem-slots-{}", std::process::id()));
        for (before, after) in [(0x7c0, 0x3c0), (0x3c0, 0x3c0)] {
            fs::write(&file, port(HAS_SLOT, before)).unwrap();
            turn_on(&file).unwrap();
            assert_eq!(fs::read(&file).unwrap(), port(HAS_SLOT, after));
        }
        fs::remove_file(&file).unwrap();
    }
}
