//! QEMU's accelerator: KVM or TCG.

use super::tsc;
use std::fs::{self, File};

/// Bits of an address in the memory of a machine whose instructions are translated.
const TRANSLATED_BITS: u32 = 40;

/// An accelerator of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// Virtualization by the processor.
    Kvm,
    /// Translation.
    Tcg,
}

impl Accel {
    /// The accelerator of this name.
    pub fn named(name: &str) -> Option<Accel> {
        [Accel::Kvm, Accel::Tcg].into_iter().find(|accel| accel.name() == name)
    }

    /// The accelerator of this name, or else the one that this host seems to have.
    pub fn likely(name: Option<&str>) -> Accel {
        let has_kvm = || File::options().read(true).write(true).open("/dev/kvm").is_ok();
        name.and_then(Accel::named).unwrap_or_else(|| if has_kvm() { Accel::Kvm } else { Accel::Tcg })
    }

    /// The largest pool that a machine can address. A device lies at a multiple of its size, and not at zero,
    /// where memory is: half of all addresses are the most for it. `None`: not known.
    pub fn largest_pool(self) -> Option<u64> {
        let bits = match self {
            Accel::Kvm => address_bits(&fs::read_to_string("/proc/cpuinfo").ok()?)?,
            Accel::Tcg => TRANSLATED_BITS,
        };
        1u64.checked_shl(bits.checked_sub(1)?)
    }

    /// Its name in records and on QEMU's command line.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// Parameters of the guest's kernel.
    ///
    /// The tests of the kernel's own ciphers look for faulty processors, and take a third of the instructions
    /// until the first program runs (`cryptomgr.notests`).
    ///
    /// Translated code does not speculate (`mitigations`), and all cores have one clock (`tsc`), this host's,
    /// whose pace the kernel is told (`super::tsc`). On a busy host, the kernel's check that the timer
    /// ticks can fail (`no_timer_check`).
    ///
    /// QEMU tells the kernel of an AMD processor not to use the last 12 GiB below 1 TiB, where DMA of the
    /// host's devices can't go; but SeaBIOS 1.16.3, that of Debian 13, puts the ports for pools there where
    /// the processor has 40 bits of addresses, as most virtual ones have (`pci=no_e820`).
    pub fn kernel_parameters(self) -> String {
        let all = "console=ttyS0 quiet panic=-1 cryptomgr.notests pci=no_e820";
        match self {
            Accel::Kvm => all.into(),
            Accel::Tcg => {
                let clock = tsc::khz().map_or(String::new(), |khz| format!(" tsc_early_khz={khz}"));
                format!("{all} mitigations=off tsc=reliable{clock} no_timer_check")
            }
        }
    }

    /// QEMU's arguments for it.
    pub fn arguments(self) -> [&'static str; 4] {
        match self {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Five-level page tables slow translation down. `rep movsb` is executed byte by byte: without the
            // flags that recommend it (ERMS, FSRM), C libraries copy by vectors, several times as fast.
            Accel::Tcg => {
                let cpu = "max,la57=off,erms=off,fsrm=off";
                ["-accel", "tcg,thread=multi", "-cpu", cpu]
            }
        }
    }
}

/// Bits of an address in memory, as this host's processors have them.
fn address_bits(cpuinfo: &str) -> Option<u32> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("address sizes"))?;
    line.trim_start_matches([' ', '\t', ':']).split_once(" bits physical")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_as_many_addresses_as_its_processor() {
        let text = "flags\t\t: fpu\naddress sizes\t: 46 bits physical, 48 bits virtual\npower management:\n";
        assert_eq!(address_bits(text), Some(46));
        assert_eq!(address_bits("processor\t: 0\n"), None);
        assert_eq!(Accel::likely(Some("tcg")).largest_pool(), Some(512 << 30));
    }
}
