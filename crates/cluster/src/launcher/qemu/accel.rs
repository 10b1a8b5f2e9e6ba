//! KVM or TCG.

/// How a machine's instructions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By the processor.
    Kvm,
    /// By translation.
    Tcg,
}

impl Accel {
    /// The one that records call so.
    pub fn named(name: &str) -> Option<Accel> {
        [Accel::Kvm, Accel::Tcg]
            .into_iter()
            .find(|accel| accel.name() == name)
    }

    /// As written in records and on QEMU's command line.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// The guest kernel's parameters. Translated code does not speculate, and all cores' time stamps come from one clock. On a busy host a
    /// kernel that counts the ticks of its first moments, to see that the timer works, finds too few and gives up. QEMU tells
    /// an AMD processor's kernel, as of an emulated one, to keep off the last 12 GiB below 1 TiB, where DMA of the host's own devices can't go.
    /// The firmware of QEMU 10 puts the ports for pools right there.
    pub fn kernel_parameters(self) -> &'static str {
        match self {
            Accel::Kvm => "console=ttyS0 quiet panic=-1",
            Accel::Tcg => {
                "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check pci=no_e820"
            }
        }
    }

    pub fn arguments(self) -> [&'static str; 4] {
        match self {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Five-level page tables would only make translation slower. `rep movsb` is carried out byte by byte: a
            // C library that does not find it praised (ERMS, FSRM) copies by vectors, several times as fast.
            Accel::Tcg => {
                let cpu = "max,la57=off,erms=off,fsrm=off";
                ["-accel", "tcg,thread=multi", "-cpu", cpu]
            }
        }
    }
}
