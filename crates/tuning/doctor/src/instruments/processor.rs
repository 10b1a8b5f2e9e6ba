//! The hypervisor and its promises, as the processor tells them (CPUID).

/// The promises of KVM to a machine (Linux, Documentation/virt/kvm/x86/cpuid.rst).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kvm {
    /// Bits of features.
    pub features: u32,
    /// Bits of hints.
    pub hints: u32,
}

impl Kvm {
    /// True if it counts the time in which a virtual processor has no core.
    pub fn counts_steal(self) -> bool {
        self.features & 1 << 5 != 0
    }

    /// True if a machine that polls itself can switch the host's polling off.
    pub fn leaves_polling(self) -> bool {
        self.features & 1 << 12 != 0
    }

    /// True if no virtual processor is without its core for long (KVM_HINTS_REALTIME).
    pub fn dedicates_cores(self) -> bool {
        self.hints & 1 != 0
    }
}

/// The signature of the hypervisor, if the processor says that there is one.
pub fn hypervisor() -> Option<String> {
    let [_, ebx, ecx, edx] = leaf(0x4000_0000)?;
    let bytes = [ebx, ecx, edx].map(u32::to_le_bytes).concat();
    let text = String::from_utf8(bytes).ok()?;
    Some(text.trim_end_matches('\0').into())
}

/// The promises of KVM, if it is the hypervisor.
pub fn kvm() -> Option<Kvm> {
    if hypervisor()? != "KVMKVMKVM" {
        return None;
    }
    let [features, _, _, hints] = leaf(0x4000_0001)?;
    Some(Kvm { features, hints })
}

/// An answer of CPUID: eax, ebx, ecx, edx.
#[cfg(target_arch = "x86_64")]
fn leaf(number: u32) -> Option<[u32; 4]> {
    // Newer compilers take it for safe.
    #[allow(unused_unsafe)]
    // SAFETY: every processor of this architecture has the instruction; an unknown leaf answers something.
    let answer = unsafe { std::arch::x86_64::__cpuid(number) };
    Some([answer.eax, answer.ebx, answer.ecx, answer.edx])
}

/// Other architectures have no such register.
#[cfg(not(target_arch = "x86_64"))]
fn leaf(_number: u32) -> Option<[u32; 4]> {
    None
}
