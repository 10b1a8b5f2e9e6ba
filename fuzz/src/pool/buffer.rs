//! Buffers of the honest process: behind them nothing may be touched, and before them stands what nobody else
//! may know.

use super::memory;
use std::sync::OnceLock;
use vshmem_pool::Mem;

/// Bytes for a buffer and the secret before it.
const AREA: usize = 1 << 15;
/// Of these, so many are a secret at the least.
const SECRET: usize = 1 << 14;

/// What only the honest process knows: another one for each input, so that no fuzzer learns it.
#[derive(Clone, Copy)]
pub struct Secret(u64);

impl Secret {
    /// The secret of an input.
    pub fn of(input: &[u8]) -> Secret {
        let mixed = input.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // No byte of it is 0, as most are.
        Secret(mixed | 0x0101_0101_0101_0101)
    }

    /// Nothing of it may stand in what was written to the pool, wherever in a word it begins.
    pub fn is_kept(self, mem: Mem) {
        let turned: [u64; 8] = std::array::from_fn(|i| self.0.rotate_left(8 * i as u32));
        // The difference to what comes nearest. Fuzzers watch comparisons, which makes them slow; of these
        // there are none.
        let mut least = u64::MAX;
        memory::forget_written(mem, |words| {
            for turned in turned {
                least = words.iter().fold(least, |l, word| l.min(word ^ turned));
            }
        });
        assert!(least != 0, "what stands beside a buffer has got into the pool");
    }
}

/// A buffer, whose end is the end of what may be touched. There is one at a time.
pub struct Buffer {
    len: usize,
    secret: Secret,
}

fn area() -> &'static mut [u64] {
    static MADE: OnceLock<Mem> = OnceLock::new();
    let mem = MADE.get_or_init(|| memory::oasis(AREA));
    // SAFETY: so many bytes, for good; one input is played at a time, and who has a buffer has no other.
    unsafe { std::slice::from_raw_parts_mut(mem.base().cast(), AREA / 8) }
}

impl Buffer {
    /// A buffer of `len` bytes, all of them `fill`.
    pub fn new(secret: Secret, len: usize, fill: u8) -> Buffer {
        assert!(len <= AREA - SECRET, "a buffer of {len} bytes");
        area().fill(secret.0);
        let mut buffer = Buffer { len, secret };
        buffer.bytes().fill(fill);
        buffer
    }

    /// A buffer with these in it, which are not aligned to more than their size divides.
    pub fn with<T: Copy>(secret: Secret, items: &[T]) -> (Buffer, &[T]) {
        let mut buffer = Buffer::new(secret, size_of_val(items), 0);
        let start = buffer.as_mut_ptr().cast::<T>();
        assert!(start.is_aligned(), "items are aligned");
        // SAFETY: so many bytes, aligned, which nobody else has while there is this buffer.
        let held = unsafe {
            start.copy_from_nonoverlapping(items.as_ptr(), items.len());
            std::slice::from_raw_parts(start, items.len())
        };
        (buffer, held)
    }

    /// What is in it.
    pub fn bytes(&mut self) -> &mut [u8] {
        let start = self.as_mut_ptr();
        // SAFETY: the end of the area.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }

    /// Where it begins.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: `len` is less than the area.
        unsafe { area().as_mut_ptr().cast::<u8>().add(AREA - self.len) }
    }
}

impl Drop for Buffer {
    /// Nobody has written before it.
    fn drop(&mut self) {
        let before = (AREA - self.len) / 8;
        let differs = |d, word| d | (word ^ self.secret.0);
        let differs = area()[..before].iter().fold(0, differs);
        assert!(differs == 0 || std::thread::panicking(), "something before a buffer was written to");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    #[test]
    fn a_secret_that_is_told_is_found_and_then_forgotten() {
        let (mem, secret) = (memory::oasis(1 << 20), Secret::of(b"an input"));
        memory::Image::begin(mem).show(mem);
        let is_kept = || catch_unwind(AssertUnwindSafe(|| secret.is_kept(mem))).is_ok();
        let word = mem.word(123 * 4096 + 40).expect("a word");
        word.store(7, std::sync::atomic::Ordering::Relaxed);
        assert!(is_kept());
        word.store(secret.0.rotate_left(24), std::sync::atomic::Ordering::Relaxed);
        assert!(!is_kept());
        assert!(is_kept(), "what an input wrote is there no more");
    }

    #[test]
    fn what_stands_before_a_buffer_is_watched() {
        let secret = Secret::of(b"an input");
        let mut buffer = Buffer::new(secret, 10, 1);
        let before = buffer.as_mut_ptr().wrapping_sub(9);
        // SAFETY: in the area that the buffer is the end of.
        unsafe { *before ^= 1 };
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(buffer)));
        assert!(dropped.is_err());
        assert_eq!(Buffer::with(secret, &[1u16, 2]).1, [1, 2]);
    }
}
