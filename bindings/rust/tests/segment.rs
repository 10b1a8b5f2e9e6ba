//! Segments, between processes and threads.

mod common;

use common::{all_succeed, pool, start};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::thread;
use vshmem::{ErrorKind, Segment};

const KEY: i32 = 0x51;
const TIMES: u64 = 10_000;

fn count() {
    let attachment = Segment::open(KEY).unwrap().attach().unwrap();
    for _ in 0..TIMES {
        attachment.values::<u64>()[7].fetch_add(1, AcqRel);
    }
}

#[test]
#[ignore = "run by counters_count"]
fn process_counts() {
    pool();
    count();
}

#[test]
fn counters_count() {
    pool();
    let segment = Segment::create_new(KEY, 100, 0o600).unwrap();
    thread::scope(|scope| {
        scope.spawn(count);
        all_succeed([(); 2].map(|()| start("process_counts")));
    });
    let attachment = segment.attach().unwrap();
    assert_eq!(attachment.len(), 100);
    assert_eq!(attachment.values::<u64>().len(), 12);
    assert_eq!(attachment.values::<i64>()[7].load(Relaxed), 3 * TIMES as i64);
    segment.remove().unwrap();
}

#[test]
fn values_have_their_bits() {
    pool();
    let segment = Segment::private(4096, 0o600).unwrap();
    let (one, two) = (segment.attach().unwrap(), segment.attach().unwrap());
    assert_ne!(one.as_ptr(), two.as_ptr());
    one.values::<f64>()[511].store(-0.5, Relaxed);
    assert_eq!(two.values::<f64>()[511].load(Relaxed), -0.5);
    assert_eq!(two.values::<u64>()[511].load(Relaxed), (-0.5f64).to_bits());
    two.values::<i64>()[0].store(-1, Relaxed);
    assert!(one.values::<f64>()[0].load(Relaxed).is_nan());
    segment.remove().unwrap();
    // It lives as long as it is attached.
    drop(one);
    assert_eq!(Segment::from_id(segment.id()), segment);
    assert_eq!(two.values::<i64>()[0].load(Relaxed), -1);
    drop(two);
    assert!(segment.attach().is_err());
}

#[test]
fn what_is_only_read() {
    pool();
    let segment = Segment::private(24, 0o600).unwrap();
    let (writer, reader) = (segment.attach().unwrap(), segment.attach_readonly().unwrap());
    segment.remove().unwrap();
    writer.values::<f64>()[2].store(1.25, Relaxed);
    assert_eq!((reader.load::<f64>(2), reader.len()), (1.25, 24));
    assert!(std::panic::catch_unwind(|| reader.load::<f64>(3)).is_err());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = format!("{:x}-", reader.as_ptr() as usize);
    let line = maps.lines().find(|found| found.starts_with(&line)).unwrap();
    assert!(line.contains(" r--s "), "{line}");
}

#[test]
fn refusals() {
    pool();
    let kind = |result: vshmem::Result<Segment>| result.unwrap_err().kind();
    assert_eq!(kind(Segment::open(KEY + 1)), ErrorKind::NotFound);
    assert_eq!(kind(Segment::create(KEY + 1, 0, 0o600)), ErrorKind::InvalidInput);
    assert!(Segment::create(KEY + 1, usize::MAX, 0o600).is_err());
    let segment = Segment::create(KEY + 1, 1, 0o600).unwrap();
    assert_eq!(kind(Segment::create_new(KEY + 1, 1, 0o600)), ErrorKind::AlreadyExists);
    assert_eq!(kind(Segment::create(KEY + 1, 2, 0o600)), ErrorKind::InvalidInput);
    // Less than a word of it is no word.
    assert!(segment.attach().unwrap().values::<u64>().is_empty());
    segment.remove().unwrap();
    assert!(Segment::from_id(-1).attach().is_err());
}
