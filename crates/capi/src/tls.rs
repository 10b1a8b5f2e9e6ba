//! What the library keeps per thread.
//!
//! In static thread-local storage (the initial-exec model), because the general way may allocate memory at a thread's
//! first access, which a signal handler must not. Rust has no stable means to choose the model, so the block is laid
//! out in assembly.

use crate::cred::CredCache;
use crate::gate::Fork;
use crate::interrupted::Wait;
use crate::text::{LastError, Message};

/// One thread's data; all zeros at first.
#[repr(C, align(16))]
pub struct Thread {
    /// The credentials as last read.
    pub cred: CredCache,
    /// The forks under way.
    pub fork: Fork,
    /// The wait under way.
    pub wait: Wait,
    /// Why the last call that failed did so.
    pub error: LastError,
    /// The text that `vshm_last_error` handed out.
    pub message: Message,
}

/// Bytes reserved in assembly. The whole of it comes from the loader's small reserve if the library is loaded late.
const SIZE: usize = 880;
const _: () = assert!(size_of::<Thread>() <= SIZE && align_of::<Thread>() <= 16);

core::arch::global_asm!(
    ".pushsection .tbss.vshmem_thread,\"awT\",@nobits",
    ".balign 16",
    ".hidden vshmem_thread",
    ".globl vshmem_thread",
    ".type vshmem_thread, %object",
    ".size vshmem_thread, {size}",
    "vshmem_thread:",
    ".zero {size}",
    ".popsection",
    size = const SIZE,
);

/// The calling thread's block. A signal handler gets the block of the thread that it interrupted.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn thread() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: reads the thread pointer and the block's offset from it, which the loader filled in.
    unsafe {
        core::arch::asm!(
            "mov {block}, qword ptr fs:[0]",
            "add {block}, qword ptr [rip + vshmem_thread@gottpoff]",
            block = out(reg) block,
            options(nostack, pure, readonly),
        );
    }
    block
}

/// The calling thread's block. A signal handler gets the block of the thread that it interrupted.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub fn thread() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: reads the thread pointer and the block's offset from it, which the loader filled in.
    unsafe {
        core::arch::asm!(
            "mrs {block}, tpidr_el0",
            "adrp {offset}, :gottprel:vshmem_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:vshmem_thread]",
            "add {block}, {block}, {offset}",
            block = out(reg) block,
            offset = out(reg) _,
            options(nostack, pure, readonly),
        );
    }
    block
}
