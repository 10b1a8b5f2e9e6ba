//! A thread's block of memory.
//!
//! In static thread-local storage (the initial-exec model), because the general way may allocate memory at a
//! thread's first access, which a signal handler must not. Rust has no stable means to choose the model, so
//! the block is laid out in assembly.

use vshmem_transport::Text;

/// One thread's data; all zeros at first.
#[repr(C, align(16))]
pub struct Thread {
    /// The permit by which the thread takes shortcuts now, see [`crate::thread::permit`]; 0: it takes none.
    pub permit: u64,
    /// The thread's permit, which counts while it is not in the middle of a wait; 0: none was made.
    pub own_permit: u64,
    /// The credentials as last read.
    pub cred: CredCache,
    /// The names in pools of a child that the thread has forked, until it knows the child's pid: packed
    /// as in [`crate::process::page`], 0: none.
    pub forked: [u64; crate::process::page::MAX_POOLS],
    /// The wait under way.
    pub wait: Wait,
    /// The error of the last call that failed.
    pub error: LastError,
    /// The text that `vshm_last_error` handed out.
    pub message: Message,
}

/// A thread's credentials as last read. All zeros: never read.
#[repr(C, align(8))]
pub struct CredCache {
    /// The state of the cache, which says which of the other fields count.
    pub state: u32,
    /// The user, as pools call it.
    pub uid: u32,
    /// The group, as pools call it.
    pub gid: u32,
    /// The user as the kernel calls it.
    pub kernel_uid: u32,
    /// Rounds of spinning, see [`crate::thread::cred::keep`].
    pub rounds: u32,
    /// Effective capabilities.
    pub caps: u64,
    /// The time at which all of it was right, in ticks.
    pub looked_at: u64,
    /// The time at which the user was right, in ticks.
    pub uid_at: u64,
}

/// The wait of a thread. All zeros: it does not wait.
#[repr(C)]
pub struct Wait {
    /// The address of the word that it waits on.
    pub word: usize,
    /// The end of its stack then.
    pub stack: usize,
    /// 1 if libc's key is called at the thread's end, else 0.
    pub watched: usize,
    /// What `word` is while it does not wait: 0, or [`crate::thread::interrupted::MARK`].
    pub idle: usize,
}

/// The error of a thread's last failing call. All zeros: none failed yet.
#[repr(C)]
pub struct LastError {
    /// The explanation; empty: the errno value says it all.
    pub detail: Text<{ LastError::CAPACITY }>,
    /// The call's name, kept as it is and composed into text when it is asked for.
    pub name: Option<&'static str>,
    /// The errno value.
    pub errno: i32,
    /// The detail was written by the call under way and not yet claimed by `record`.
    pub fresh: bool,
    /// The call under way was a question that a program expects to fail.
    pub expected: bool,
}

impl LastError {
    /// Bytes of the explanation.
    pub const CAPACITY: usize = 320;
}

/// Bytes of a composed message, zero byte included.
pub const MESSAGE: usize = LastError::CAPACITY + 32;

/// Room for one composed message.
pub type Message = Text<MESSAGE>;

/// Bytes reserved in assembly. The whole of it comes from the loader's small reserve if the library is loaded
/// late.
const SIZE: usize = 896;
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

/// Says whether the calling thread takes shortcuts, if it has a permit.
#[inline]
pub fn set_permit(may: bool) {
    // SAFETY: the thread's own block. A handler may come in between.
    unsafe {
        let thread = thread();
        let permit = if may { (&raw const (*thread).own_permit).read_volatile() } else { 0 };
        (&raw mut (*thread).permit).write_volatile(permit);
    }
}

/// The permit by which the calling thread takes shortcuts now.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn permit() -> u64 {
    const _: () = assert!(core::mem::offset_of!(Thread, permit) == 0);
    let permit: u64;
    // SAFETY: reads a word of the thread's own, whose offset from the thread pointer the loader filled in.
    unsafe {
        core::arch::asm!(
            "mov {permit}, qword ptr [rip + vshmem_thread@gottpoff]",
            "mov {permit}, qword ptr fs:[{permit}]",
            permit = out(reg) permit,
            options(nostack, readonly, preserves_flags),
        );
    }
    permit
}

/// The permit by which the calling thread takes shortcuts now.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn permit() -> u64 {
    // SAFETY: the thread's own block.
    unsafe { (&raw const (*thread()).permit).read_volatile() }
}

/// The calling thread's block. A signal handler gets the block of the thread that it interrupted.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn thread() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: reads the thread pointer and the block's offset from it, which the loader filled in and nobody
    // changes.
    unsafe {
        core::arch::asm!(
            "mov {block}, qword ptr fs:[0]",
            "add {block}, qword ptr [rip + vshmem_thread@gottpoff]",
            block = out(reg) block,
            options(nostack, pure, nomem),
        );
    }
    block
}

/// The calling thread's block. A signal handler gets the block of the thread that it interrupted.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub fn thread() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: reads the thread pointer and the block's offset from it, which the loader filled in and nobody
    // changes.
    unsafe {
        core::arch::asm!(
            "mrs {block}, tpidr_el0",
            "adrp {offset}, :gottprel:vshmem_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:vshmem_thread]",
            "add {block}, {block}, {offset}",
            block = out(reg) block,
            offset = out(reg) _,
            options(nostack, pure, nomem),
        );
    }
    block
}
