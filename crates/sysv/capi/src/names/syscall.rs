//! libc's `syscall`: the numbers of the twelve calls are ours, those that change the user, `unshare`,
//! `mremap` and `madvise` are seen, everything else goes straight to the kernel.
//!
//! The way to the kernel is that of libc: registers are shifted and the instruction is made with nothing on
//! the stack, so that calls like `clone` and `vfork` come back as they do there.

use crate::names::{mappings, sysv, user_ids};
use crate::thread::errno;
use core::ffi::{c_long, c_void};

#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($asm:ident) => {
        $asm!(
            // The numbers of ours: shmget shmat shmctl 29-31, semget to msgctl 64-71, semtimedop 220.
            "lea rax, [rdi - 29]",
            "cmp rax, 3",
            "jb 3f",
            "lea rax, [rdi - 64]",
            "cmp rax, 8",
            "jb 3f",
            "cmp rdi, 220",
            "je 3f",
            // Those that change the user: setuid, setreuid, setresuid.
            "cmp rdi, 105",
            "je 3f",
            "cmp rdi, 113",
            "je 3f",
            "cmp rdi, 117",
            "je 3f",
            // unshare.
            "cmp rdi, 272",
            "je 3f",
            // mremap, madvise.
            "cmp rdi, 25",
            "je 3f",
            "cmp rdi, 28",
            "je 3f",
            "mov rax, rdi",
            "mov rdi, rsi",
            "mov rsi, rdx",
            "mov rdx, rcx",
            "mov r10, r8",
            "mov r8, r9",
            "mov r9, [rsp + 8]",
            "syscall",
            "cmp rax, -4095",
            "jae 2f",
            "ret",
            "2:",
            "mov rdi, rax",
            "jmp {failed}",
            "3:",
            "jmp {ours}",
            failed = sym failed,
            ours = sym ours,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($asm:ident) => {
        $asm!(
            // The numbers of ours, which stand in a row: msgget 186 to shmdt 197.
            "sub x9, x0, #186",
            "cmp x9, #12",
            "b.lo 3f",
            // Those that change the user, which stand in a row: setreuid 145 to setresuid 147.
            "sub x9, x0, #145",
            "cmp x9, #3",
            "b.lo 3f",
            // unshare.
            "cmp x0, #97",
            "b.eq 3f",
            // mremap, madvise.
            "cmp x0, #216",
            "b.eq 3f",
            "cmp x0, #233",
            "b.eq 3f",
            "mov x8, x0",
            "mov x0, x1",
            "mov x1, x2",
            "mov x2, x3",
            "mov x3, x4",
            "mov x4, x5",
            "mov x5, x6",
            "svc #0",
            "cmn x0, #4095",
            "b.hs 2f",
            "ret",
            "2:",
            "b {failed}",
            "3:",
            "b {ours}",
            failed = sym failed,
            ours = sym ours,
        )
    };
}

/// syscall(2).
///
/// # Safety
/// As the call with that number demands.
#[cfg(has_naked_functions)]
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn syscall() {
    use core::arch::naked_asm;
    entry!(naked_asm)
}

/// syscall(2). Compilers before 1.88 have no naked functions. A function whose arguments are in their
/// registers when its assembly begins gets no prologue either; the tests make sure of it. The assembly
/// returns by itself, so this must never be inlined; and as this library and Rust's own call it, too, the
/// compiler must see a function that takes what they pass, and that returns.
///
/// # Safety
/// As the call with that number demands.
#[cfg(not(has_naked_functions))]
#[no_mangle]
#[inline(never)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let result: c_long;
    #[cfg(target_arch = "x86_64")]
    macro_rules! body {
        ($($tokens:tt)*) => {
            core::arch::asm!(
                $($tokens)*
                inlateout("rax") f => result,
                inlateout("rdi") number => _, inlateout("rsi") a => _, inlateout("rdx") b => _,
                inlateout("rcx") c => _, inlateout("r8") d => _, inlateout("r9") e => _,
                lateout("r10") _, lateout("r11") _,
                options(nostack),
            )
        };
    }
    #[cfg(target_arch = "aarch64")]
    macro_rules! body {
        ($($tokens:tt)*) => {
            core::arch::asm!(
                $($tokens)*
                inlateout("x0") number => result, inlateout("x1") a => _, inlateout("x2") b => _,
                inlateout("x3") c => _, inlateout("x4") d => _, inlateout("x5") e => _,
                inlateout("x6") f => _, lateout("x8") _, lateout("x9") _,
                options(nostack),
            )
        };
    }
    // SAFETY: follows the calling convention of the machine, and returns to the caller itself, before what
    // the compiler puts behind.
    unsafe { entry!(body) }
    result
}

/// The end of a call that the kernel refused.
extern "C" fn failed(result: isize) -> isize {
    errno::set(-result as i32);
    -1
}

/// A call of the twelve, or one that is seen, with its arguments as registers hold them.
unsafe extern "C" fn ours(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
    let (int, memory) = (|v: usize| v as i32, |v: usize| v as *mut c_void);
    // SAFETY: the caller of `syscall` vouches for what it passes.
    unsafe {
        match number {
            libc::SYS_shmget => sysv::shmget(int(a), b, int(c)).into(),
            libc::SYS_shmat => sysv::shmat(int(a), memory(b), int(c)) as c_long,
            libc::SYS_shmdt => sysv::shmdt(memory(a)).into(),
            libc::SYS_shmctl => sysv::shmctl(int(a), int(b), memory(c)).into(),
            libc::SYS_semget => sysv::semget(int(a), int(b), int(c)).into(),
            libc::SYS_semop => sysv::semop(int(a), memory(b).cast(), c).into(),
            libc::SYS_semtimedop => sysv::semtimedop(int(a), memory(b).cast(), c, memory(d).cast()).into(),
            libc::SYS_semctl => sysv::semctl(int(a), int(b), int(c), d).into(),
            libc::SYS_msgget => sysv::msgget(int(a), int(b)).into(),
            libc::SYS_msgsnd => sysv::msgsnd(int(a), memory(b), c, int(d)).into(),
            libc::SYS_msgrcv => sysv::msgrcv(int(a), memory(b), c, d as i64, int(e)) as c_long,
            libc::SYS_msgctl => sysv::msgctl(int(a), int(b), memory(c)).into(),
            libc::SYS_unshare => sysv::unshare(int(a)).into(),
            libc::SYS_mremap => mappings::mremap(memory(a), b, c, int(d), memory(e)) as c_long,
            libc::SYS_madvise => mappings::madvise(memory(a), b, int(c)).into(),
            libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid => {
                match user_ids::by_number(number, a, b, c) {
                    result @ -4095..=-1 => failed(result) as c_long,
                    result => result as c_long,
                }
            }
            _ => failed(-(libc::ENOSYS as isize)) as c_long,
        }
    }
}
