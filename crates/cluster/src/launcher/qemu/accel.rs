//! KVM or TCG.

use super::tsc;

/// QEMU's accelerator.
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
    /// ticks can fail (`no_timer_check`). QEMU tells the kernel of an
    /// AMD processor not to use the last 12 GiB below 1 TiB, where DMA of the host's own devices can't go;
    /// but the firmware of QEMU 10 puts the ports for pools there (`pci=no_e820`).
    pub fn kernel_parameters(self) -> String {
        let all = "console=ttyS0 quiet panic=-1 cryptomgr.notests";
        match self {
            Accel::Kvm => all.into(),
            Accel::Tcg => {
                let clock = tsc::khz().map_or(String::new(), |khz| format!(" tsc_early_khz={khz}"));
                format!("{all} mitigations=off tsc=reliable{clock} no_timer_check pci=no_e820")
            }
        }
    }

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
