//! Requests to valgrind's memcheck about a pool's memory.
//!
//! As a program ends, memcheck looks for pointers in all memory that may be accessed. In a pool that is
//! mapped whole it would read every page, two seconds for a GiB, and so give memory to each that had none. So
//! pages that a process has not looked at yet are said to be inaccessible. What does access them all the
//! same, as segments are zeroed, is not complained of.
//!
//! A request is a series of rotations that leaves all registers as they were, to which valgrind pays
//! attention: `valgrind.h`. Without it, it costs some nanoseconds.

/// `VG_USERREQ__MAKE_MEM_NOACCESS` in `valgrind/memcheck.h`, and what else is counted from there.
const FIRST: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;
const MAKE_INACCESSIBLE: usize = FIRST;
const MAKE_DEFINED: usize = FIRST + 2;
const REPORT_ACCESS: usize = FIRST + 13;
const IGNORE_ACCESS: usize = FIRST + 14;

/// Bytes of one request; memcheck warns of 256 MiB at once.
const STEP: usize = 128 << 20;

/// Hides a mapping, at which nobody has looked yet.
pub(crate) fn hide(at: usize, len: usize) {
    ignore(at, len);
    for from in (0..len).step_by(STEP) {
        request(MAKE_INACCESSIBLE, at + from, STEP.min(len - from));
    }
}

/// Allows accesses to inaccessible memory there.
pub(crate) fn ignore(at: usize, len: usize) {
    request(IGNORE_ACCESS, at, len);
}

/// Shows a part of a mapping that is going to be looked at.
pub(crate) fn show(at: usize, len: usize) {
    request(MAKE_DEFINED, at, len);
}

/// Makes an access to inaccessible memory there a mistake again: something else may be mapped.
pub(crate) fn forget(at: usize, len: usize) {
    request(REPORT_ACCESS, at, len);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn request(what: usize, at: usize, len: usize) {
    let words = [what, at, len, 0, 0, 0];
    // SAFETY: the rotations add up to whole turns, and an exchange of a register with itself is none;
    // valgrind reads the six words and answers in rdx.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") 0usize => _,
            options(nostack),
        );
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn request(what: usize, at: usize, len: usize) {
    let words = [what, at, len, 0, 0, 0];
    // SAFETY: as above, and the or of a register with itself changes nothing; valgrind answers in x3.
    unsafe {
        core::arch::asm!(
            "ror x12, x12, 3", "ror x12, x12, 13", "ror x12, x12, 51", "ror x12, x12, 61",
            "orr x10, x10, x10",
            in("x4") words.as_ptr(),
            inout("x3") 0usize => _,
            options(nostack),
        );
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn request(_what: usize, _at: usize, _len: usize) {}
