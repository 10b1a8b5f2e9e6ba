//! What the processor says of itself.

/// The signature of the hypervisor. Only asked for where the processor says that there is one.
#[cfg(target_arch = "x86_64")]
pub fn hypervisor() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x4000_0000;
    // Newer compilers take it for safe.
    #[allow(unused_unsafe)]
    // SAFETY: every processor of this architecture has the instruction; an unknown leaf answers something.
    let answer = unsafe { __cpuid(LEAF) };
    let bytes = [answer.ebx, answer.ecx, answer.edx].map(u32::to_le_bytes).concat();
    let text = String::from_utf8(bytes).ok()?;
    Some(text.trim_end_matches('\0').into())
}

/// Other architectures have no such register.
#[cfg(not(target_arch = "x86_64"))]
pub fn hypervisor() -> Option<String> {
    None
}
