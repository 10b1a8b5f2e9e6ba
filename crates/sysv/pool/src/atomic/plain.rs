//! Atomics and copies as the processor has them.

pub use core::sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, AtomicU8};

/// The most that libc's memcpy copies by ordinary loads and stores, in bytes: whole lines. For 2 KiB and
/// more, glibc's takes `rep movsb` where processors say that it is fast. On AMD's Zen 3 and 4 it is 25 times
/// slower where the target lies up to 63 bytes further into its page than the source (glibc bug 30994).
const PIECE: usize = 2048 - 64;

/// Copies bytes that do not overlap. From 16 to 64 in line, by loads and stores of which some may do the same
/// twice: a call takes longer than that.
///
/// # Safety
/// Both must have `len` bytes.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    const SIZE: usize = size_of::<u128>();
    if len.wrapping_sub(SIZE) > 3 * SIZE {
        // SAFETY: the caller vouches for both.
        return unsafe {
            match len {
                0..=PIECE => core::ptr::copy_nonoverlapping(from, to, len),
                _ => copy_in_pieces(from, to, len),
            }
        };
    }
    // SAFETY: each is inside of the `len` bytes.
    let piece = |at: usize| unsafe {
        to.add(at).cast::<u128>().write_unaligned(from.add(at).cast::<u128>().read_unaligned());
    };
    piece(0);
    piece(len - SIZE);
    if len > 2 * SIZE {
        piece(SIZE);
        piece(len - 2 * SIZE);
    }
}

/// # Safety
/// Both must have `len` bytes.
#[inline(never)]
unsafe fn copy_in_pieces(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(PIECE) {
        // SAFETY: inside of the `len` bytes.
        unsafe { core::ptr::copy_nonoverlapping(from.add(at), to.add(at), PIECE.min(len - at)) };
    }
}

/// Copies bytes of the program into the pool.
///
/// # Safety
/// `from` must have `len` bytes, and `to` room for them in the pool.
#[inline(always)]
pub unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { copy(from, to, len) }
}

/// Copies bytes of the pool out of it.
///
/// # Safety
/// `from` must have `len` bytes in the pool, and `to` room for them.
#[inline(always)]
pub unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { copy(from, to, len) }
}

/// Copies bytes from one place of the pool to another, which may overlap.
///
/// # Safety
/// Both must have `len` bytes in the pool.
#[inline(always)]
pub unsafe fn copy_within(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy(from, to, len) }
}

/// Fills bytes of the pool with zeros.
///
/// # Safety
/// `at` must have `len` bytes in the pool.
#[inline(always)]
pub unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: the caller vouches for it.
    unsafe { core::ptr::write_bytes(at, 0, len) }
}

/// Asks for the line that something begins in, to write to it soon: else what is read first and written then
/// takes two questions to the other processors.
#[inline(always)]
pub fn prefetch_to_write<T>(at: *const T) {
    // Miri knows neither.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: changes nothing and does not fault; processors without it take it for nothing.
    unsafe {
        core::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(miri)]
    let _ = at;
}
