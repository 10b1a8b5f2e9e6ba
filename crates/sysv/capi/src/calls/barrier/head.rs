//! The head of a barrier's segment.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Parties of a barrier, at the most.
pub const MAX_PARTIES: usize = 480;
/// The arrivals in the word; above them the number of the round.
pub const ARRIVALS: u64 = 0xffff;

/// The head of the segment; two lines of few values for each party follow it, and then two chunks for each.
/// All zeros: new.
#[repr(C)]
pub struct Head {
    /// What the segment is.
    pub magic: AtomicU32,
    /// How many take part.
    pub parties: AtomicU32,
    _line: [u64; 7],
    /// The phase for sleepers, who write it if it is an older one.
    pub turn: AtomicU32,
    /// The last phase in which somebody went to sleep.
    pub asleep: AtomicU32,
    _line2: [u32; 14],
    /// Phase in the high half; in the low half round and arrivals, 16 bits each.
    pub state: AtomicU64,
    _line3: [u64; 7],
    /// Names of processes, as `ProcId::word` has them; 0: free.
    pub seats: [AtomicU64; MAX_PARTIES],
}

/// Bytes of the head.
pub const HEAD: usize = 4096;
const _: () = assert!(size_of::<Head>() <= HEAD);
