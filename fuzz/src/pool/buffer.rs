//! Buffers of the honest process: behind them nothing may be touched, and before them stands what nobody else may know.

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
        memory::each_written(mem, |words| {
            let told = words.iter().any(|word| turned.contains(word));
            assert!(!told, "what stands beside a buffer has got into the pool");
        });
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
        let kept = area()[..before].iter().all(|word| *word == self.secret.0);
        assert!(
            kept || std::thread::panicking(),
            "something before a buffer was written to"
        );
    }
}
