//! Sparse pools: a process touches no page of one that it does not know to have memory.

use super::Memory;
use crate::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};
use crate::layout::PAGE;
use crate::{Mem, Params, Pool, Sparse};
use std::boxed::Box;
use std::vec::Vec;

const LEN: usize = 4 << 20;

/// The number of pages that can still get memory.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The number of times that memory was asked for.
static ASKED: AtomicU64 = AtomicU64::new(0);

fn populate(at: *mut u8, len: usize) -> bool {
    assert!(at as u64 % PAGE == 0 && len as u64 % PAGE == 0);
    ASKED.fetch_add(1, Relaxed);
    let take = |left: u64| left.checked_sub(len as u64 / PAGE);
    LEFT.fetch_update(Relaxed, Relaxed, take).is_ok()
}

fn sparse(mem: Mem) -> Mem {
    let known: Vec<AtomicU8> = (0..LEN as u64 / PAGE).map(|_| AtomicU8::new(0)).collect();
    let known = Box::leak(known.into_boxed_slice());
    mem.sparse(Sparse { known, populate })
}

/// One test, for the kernel's answers are shared.
#[test]
fn what_has_no_memory_is_not_touched() {
    let memory = Memory::new(LEN);
    let mem = sparse(memory.mem());
    let asked = || ASKED.swap(0, Relaxed);
    let give = |pages| LEFT.store(pages, Relaxed);

    // Each time anew, until there is some. Then never again.
    assert!(mem.word(PAGE).is_none() && mem.word(PAGE + 8).is_none());
    assert_eq!(asked(), 2);
    give(1);
    assert!(mem.word(PAGE).is_some() && mem.word(2 * PAGE - 8).is_some());
    assert!(mem.word(2 * PAGE).is_none() && mem.word(PAGE - 8).is_none());
    assert_eq!(asked(), 3);

    // What lies on two pages needs both.
    assert!(mem.bytes(2 * PAGE - 8, 16).is_none());
    give(2);
    assert!(mem.bytes(2 * PAGE - 8, 16).is_some());
    give(0);
    assert!(mem.word(2 * PAGE).is_some() && mem.bytes(PAGE, 2 * PAGE).is_some());
    assert!(mem.bytes(PAGE, 2 * PAGE + 1).is_none() && mem.bytes(PAGE - 1, 2).is_none());

    // A long range counts as a whole, however much of it was known before, and is not asked for twice.
    give(1000);
    asked();
    assert!(mem.bytes(PAGE + 8, 600 * PAGE).is_some());
    assert_eq!((asked(), LEFT.load(Relaxed)), (1, 399));
    for (from, len) in [(PAGE, 601 * PAGE), (300 * PAGE, 300 * PAGE), (601 * PAGE, 8)] {
        assert!(mem.bytes(from, len).is_some());
    }
    assert_eq!(asked(), 0);
    assert!(mem.zero(5 * PAGE, 70 * PAGE) && asked() == 0);

    // Nothing is asked for outside, nor for nothing.
    assert!(mem.word(LEN as u64).is_none() && mem.bytes(LEN as u64 - 8, 9).is_none());
    assert!(mem.bytes(u64::MAX - 3, 8).is_none() && mem.bytes(700 * PAGE, 0).is_some());
    assert_eq!(asked(), 0);
}

/// Structures lie below the pages of segments, whose memory comes and goes.
#[test]
fn no_structure_lies_where_segments_do() {
    let memory = Memory::new(LEN);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let pages = pool.geometry().small.end();
    assert!(pool.mem().word(pages - 8).is_some() && pool.mem().word(pages).is_none());
    assert!(pool.mem().bytes(pages - 8, 16).is_none());
    assert!(pool.mem().word_anywhere(pages).is_some() && pool.mem().range(pages, 16).is_some());
    assert!(pool.mem().zero(pages, PAGE) && pool.mem().zero(pages - 8, 16));
    assert!(!pool.mem().zero(LEN as u64 - 8, 16) && !pool.mem().zero(u64::MAX - 7, 16));
    // Nor does a table.
    let head: &AtomicU64 = memory.mem().word(32).unwrap();
    head.store(pages, Relaxed);
    assert_eq!(Pool::open(memory.mem()).unwrap_err(), crate::OpenError::Damaged);
}
