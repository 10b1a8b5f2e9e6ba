//! The time of the first touch of memory, in small pages and in large ones.

use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::time::Instant;

/// Nanoseconds for each 4 KiB of new memory that is touched.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The time where small pages are asked for.
    pub small: f64,
    /// The time where large ones are.
    pub large: f64,
}

const PAGE: usize = 4096;
/// Bytes of a large page.
const LARGE: usize = 2 << 20;
/// Bytes that are touched.
const RANGE: usize = 16 * LARGE;
const TURNS: usize = 3;

/// Measures it; the fastest turn of each counts.
pub fn measure() -> Option<Touch> {
    let fastest = |advice: Advice| {
        let turns = (0..TURNS).map(|_| touch(advice));
        turns.collect::<io::Result<Vec<f64>>>().ok()?.into_iter().reduce(f64::min)
    };
    Some(Touch { small: fastest(Advice::LinuxNoHugepage)?, large: fastest(Advice::LinuxHugepage)? })
}

fn touch(advice: Advice) -> io::Result<f64> {
    let length = RANGE + LARGE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place of a new mapping.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE) }?;
    let taken = touch_aligned(start.cast(), advice);
    // SAFETY: the mapping is ours, and nothing refers to it any more.
    unsafe { munmap(start, length) }?;
    taken
}

/// Touches the aligned range in a mapping that has room for it.
fn touch_aligned(start: *mut u8, advice: Advice) -> io::Result<f64> {
    let range = start.wrapping_add(start.align_offset(LARGE));
    // SAFETY: the range lies in a mapping of ours, which nothing else uses.
    unsafe { madvise(range.cast::<c_void>(), RANGE, advice) }?;
    let begun = Instant::now();
    for offset in (0..RANGE).step_by(PAGE) {
        // SAFETY: as above, and the offset is in the range.
        unsafe { range.add(offset).write_volatile(1) };
    }
    Ok(begun.elapsed().as_nanos() as f64 / (RANGE / PAGE) as f64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_touched() {
        // A kernel without large pages refuses the advice.
        if let Some(touch) = super::measure() {
            assert!(touch.small > 0.0 && touch.large > 0.0, "{touch:?}");
        }
    }
}
