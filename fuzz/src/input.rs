//! What a fuzzer has chosen, taken in small pieces from the front. Where nothing is left there are zeros, so
//! every input means something.

/// Bytes that choose what happens.
#[derive(Clone, Copy)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All that a fuzzer has given.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// Is nothing left?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        let most = if n > 256 { self.u16().into() } else { u64::from(self.byte()) };
        (most % n as u64) as usize
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number of 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// Up to `n` bytes.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }
}
