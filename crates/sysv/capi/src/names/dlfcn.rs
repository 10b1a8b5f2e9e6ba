//! `dlopen`, `dlmopen` and `dlsym`, through which a program would get past a preload without a word.
//!
//! A library that is opened with `RTLD_DEEPBIND`, as PHP opens its extensions, finds its own dependencies
//! before what is preloaded, and so does code that asks `dlsym` for a name of libc's own handle, as Python's
//! ctypes does. Where IPC objects can live in the pool, the flag is cleared, and such a look-up is answered
//! with the function of this library.
//!
//! libc looks at its return address to know its caller: whose `RUNPATH` and `$ORIGIN` count, and behind which
//! library `RTLD_NEXT` looks. So libc's function is not called from here but jumped to, with the stack as the
//! caller left it.
//!
//! `dlvsym` stays libc's: it is the only way to find the `dlsym` that comes next.

use crate::names::next::{is_in_libc, Next};
use crate::names::{files, sysv, user_ids};
use crate::process::config::config;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::AtomicUsize;

static DLOPEN: Next = Next::new(c"dlopen");
static DLMOPEN: Next = Next::new(c"dlmopen");
static DLSYM: Next = Next::new(c"dlsym");

/// The arguments of `dlopen`, `dlmopen` or `dlsym`; those that the function does not have are garbage.
type Arguments = [usize; 3];

extern "C" fn before_dlopen(arguments: &mut Arguments) -> usize {
    let [_, mode, _] = arguments;
    *mode = without_deepbind(*mode);
    DLOPEN.address()
}

extern "C" fn before_dlmopen(arguments: &mut Arguments) -> usize {
    let [space, _, mode] = arguments;
    // In other name spaces there is nothing of this library that the flag would lead past.
    if *space == libc::LM_ID_BASE as usize {
        *mode = without_deepbind(*mode);
    }
    DLMOPEN.address()
}

fn without_deepbind(mode: usize) -> usize {
    if config().takes_lookups() {
        mode & !(libc::RTLD_DEEPBIND as usize)
    } else {
        mode
    }
}

extern "C" fn before_dlsym(arguments: &mut Arguments) -> usize {
    let [_, name, _] = *arguments;
    // SAFETY: the caller of `dlsym` vouches for the name.
    if unsafe { ours(name as *const c_char) }.is_some() && config().takes_lookups() {
        of_handle as *const () as usize
    } else {
        DLSYM.address()
    }
}

/// `dlsym` for a name of this library's and a handle, where the caller does not matter.
unsafe extern "C" fn of_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: libc's function of this type.
    let real: Dlsym = unsafe { core::mem::transmute(DLSYM.address()) };
    // SAFETY: as the caller of `dlsym` vouches.
    let (found, ours) = unsafe { (real(handle, name), ours(name)) };
    ours.filter(|_| is_in_libc(found)).unwrap_or(found)
}

/// This library's function of that name, if it stands in place of one of libc's.
///
/// # Safety
/// `name` is a string.
unsafe fn ours(name: *const c_char) -> Option<*mut c_void> {
    // SAFETY: as the caller vouches. Most names end here.
    if !matches!(unsafe { *name } as u8, b'_' | b'f' | b'm' | b'o' | b's' | b'u') {
        return None;
    }
    // SAFETY: as the caller vouches.
    let function = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"__open_2" => files::__open_2 as *const (),
        b"__open64_2" => files::__open64_2 as *const (),
        b"__openat_2" => files::__openat_2 as *const (),
        b"__openat64_2" => files::__openat64_2 as *const (),
        b"fopen" => files::fopen as *const (),
        b"fopen64" => files::fopen64 as *const (),
        b"madvise" => crate::names::mappings::madvise as *const (),
        b"mlockall" => sysv::mlockall as *const (),
        b"msgctl" => sysv::msgctl as *const (),
        b"msgget" => sysv::msgget as *const (),
        b"msgrcv" => sysv::msgrcv as *const (),
        b"msgsnd" => sysv::msgsnd as *const (),
        b"mremap" => crate::names::mappings::mremap as *const (),
        b"open" => files::open as *const (),
        b"open64" => files::open64 as *const (),
        b"openat" => files::openat as *const (),
        b"openat64" => files::openat64 as *const (),
        b"semctl" => sysv::semctl as *const (),
        b"semget" => sysv::semget as *const (),
        b"semop" => sysv::semop as *const (),
        b"semtimedop" => sysv::semtimedop as *const (),
        b"seteuid" => user_ids::seteuid as *const (),
        b"setresuid" => user_ids::setresuid as *const (),
        b"setreuid" => user_ids::setreuid as *const (),
        b"setuid" => user_ids::setuid as *const (),
        b"shmat" => sysv::shmat as *const (),
        b"shmctl" => sysv::shmctl as *const (),
        b"shmdt" => sysv::shmdt as *const (),
        b"shmget" => sysv::shmget as *const (),
        b"syscall" => crate::names::syscall::syscall as *const (),
        b"unshare" => sysv::unshare as *const (),
        _ => return None,
    };
    Some(function as *mut c_void)
}

/// An entry: it lets a function see and change the arguments, and jumps where that says.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:literal, $before:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", @progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "mov rdi, rsp",
            "call {before}",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            before = sym $before,
        );
    };
}

/// Lets a function see and change the arguments, and jumps where it says.
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($name:literal, $before:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", @progbits"),
            ".balign 4",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "stp x29, x30, [sp, #-48]!",
            ".cfi_def_cfa_offset 48",
            ".cfi_offset 29, -48",
            ".cfi_offset 30, -40",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "add x0, sp, #16",
            "bl {before}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore 29",
            ".cfi_restore 30",
            "br x16",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            before = sym $before,
        );
    };
}

entry!("vshmem_dlopen", before_dlopen);
entry!("vshmem_dlmopen", before_dlmopen);
entry!("vshmem_dlsym_by_handle", before_dlsym);

/// The address of the next `dlsym`, for look-ups without a handle; 0: not known yet.
static DLSYM_BY_CALLER: AtomicUsize = AtomicUsize::new(0);

// `RTLD_NEXT` and `RTLD_DEFAULT`, by which other interposers find their way, pass without an instruction of
// the compiler's: sanitizers ask so while they begin, when nothing that they have instrumented may run.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.vshmem_dlsym, \"ax\", @progbits",
    ".globl vshmem_dlsym",
    ".hidden vshmem_dlsym",
    ".type vshmem_dlsym, @function",
    "vshmem_dlsym:",
    ".cfi_startproc",
    "lea rax, [rdi + 1]",
    "cmp rax, 1",
    "ja vshmem_dlsym_by_handle",
    "mov rax, [rip + {known}]",
    "test rax, rax",
    "je 2f",
    "jmp rax",
    "2:",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "mov rdi, -1",
    "lea rsi, [rip + 4f]",
    "lea rdx, [rip + 5f]",
    "call {dlvsym}",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "je 3f",
    "mov [rip + {known}], rax",
    "jmp rax",
    "3:",
    "ret",
    "4:",
    ".asciz \"dlsym\"",
    "5:",
    ".asciz \"GLIBC_2.2.5\"",
    ".cfi_endproc",
    ".size vshmem_dlsym, . - vshmem_dlsym",
    ".popsection",
    known = sym DLSYM_BY_CALLER,
    dlvsym = sym libc::dlvsym,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.vshmem_dlsym, \"ax\", @progbits",
    ".balign 4",
    ".globl vshmem_dlsym",
    ".hidden vshmem_dlsym",
    ".type vshmem_dlsym, @function",
    "vshmem_dlsym:",
    ".cfi_startproc",
    "add x9, x0, #1",
    "cmp x9, #1",
    "b.ls 1f",
    "b vshmem_dlsym_by_handle",
    "1:",
    "adrp x9, {known}",
    "ldr x16, [x9, :lo12:{known}]",
    "cbz x16, 2f",
    "br x16",
    "2:",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset 29, -32",
    ".cfi_offset 30, -24",
    "mov x29, sp",
    "stp x0, x1, [sp, #16]",
    "mov x0, #-1",
    "adr x1, 4f",
    "adr x2, 5f",
    "bl {dlvsym}",
    "mov x16, x0",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore 29",
    ".cfi_restore 30",
    "cbz x16, 3f",
    "adrp x9, {known}",
    "str x16, [x9, :lo12:{known}]",
    "br x16",
    "3:",
    "mov x0, xzr",
    "ret",
    "4:",
    ".asciz \"dlsym\"",
    "5:",
    ".asciz \"GLIBC_2.17\"",
    ".cfi_endproc",
    ".size vshmem_dlsym, . - vshmem_dlsym",
    ".popsection",
    known = sym DLSYM_BY_CALLER,
    dlvsym = sym libc::dlvsym,
);

extern "C" {
    fn vshmem_dlopen();
    fn vshmem_dlmopen();
    fn vshmem_dlsym();
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($asm:ident, $to:ident $($operands:tt)*) => { core::arch::$asm!("jmp {to}", to = sym $to $($operands)*) };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($asm:ident, $to:ident $($operands:tt)*) => { core::arch::$asm!("b {to}", to = sym $to $($operands)*) };
}

/// An exported function that jumps to an entry, since the linker shows Rust's functions only. Compilers
/// before 1.88 have no naked functions; see [`crate::names::syscall`].
macro_rules! exported {
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty, $x86:tt, $arm:tt;)*), $entry:ident) => {
        #[cfg(has_naked_functions)]
        $(#[$attribute])*
        #[unsafe(naked)]
        #[no_mangle]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
            jump!(naked_asm, $entry)
        }

        #[cfg(not(has_naked_functions))]
        $(#[$attribute])*
        #[no_mangle]
        #[inline(never)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
            let result: *mut c_void;
            // SAFETY: follows the calling convention of the machine; the function that is jumped to returns
            // to the caller.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                jump!(asm, $entry, $(inlateout($x86) $argument => _,)* lateout("rax") result, options(nostack))
            };
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                jump!(asm, $entry, $(in($arm) $argument,)* lateout("x0") result, options(nostack))
            };
            result
        }
    };
}

exported! {
    /// dlopen(3).
    ///
    /// # Safety
    /// As for libc's.
    dlopen(file: *const c_char, "rdi", "x0"; mode: c_int, "rsi", "x1";), vshmem_dlopen
}

exported! {
    /// dlmopen(3).
    ///
    /// # Safety
    /// As for libc's.
    dlmopen(space: libc::Lmid_t, "rdi", "x0"; file: *const c_char, "rsi", "x1"; mode: c_int, "rdx", "x2";), vshmem_dlmopen
}

exported! {
    /// dlsym(3).
    ///
    /// # Safety
    /// As for libc's.
    dlsym(handle: *mut c_void, "rdi", "x0"; name: *const c_char, "rsi", "x1";), vshmem_dlsym
}
