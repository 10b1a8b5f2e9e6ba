//! A pool's UUID, by which it is told from all other pools.

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use core::fmt;

/// A random UUID (RFC 9562, version 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// Made of random bytes, six bits of which say what kind of UUID it is instead.
    pub fn from_random(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    /// Its bytes, in the order in which they are printed.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }

    pub(crate) fn write(&self, to: &[AtomicU64; 2]) {
        let number = u128::from_le_bytes(self.0);
        to[0].store(number as u64, Relaxed);
        to[1].store((number >> 64) as u64, Relaxed);
    }

    /// Copies it from a pool; `None` if it is no random UUID.
    pub(crate) fn read(from: &[AtomicU64; 2]) -> Option<Uuid> {
        let number = u128::from(from[1].load(Relaxed)) << 64 | u128::from(from[0].load(Relaxed));
        let read = Uuid(number.to_le_bytes());
        (read == Uuid::from_random(read.0)).then_some(read)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
