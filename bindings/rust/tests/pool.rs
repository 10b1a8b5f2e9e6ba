//! Several pools. One test, since a process has one current pool.

mod common;

use common::path;
use std::fs::remove_file;
use vshmem::{Barrier, ErrorKind, Pool, Segment};

const KEY: i32 = 0x61;

#[test]
fn pools() {
    let (first, second) = (path("first"), path("second"));
    let one = Pool::create(&first, 8 << 20, 0o600).unwrap();
    let kind = |result: vshmem::Result<Pool>| result.unwrap_err().kind();
    assert_eq!(kind(Pool::create(&first, 8 << 20, 0o600)), ErrorKind::AlreadyExists);
    assert_eq!(kind(Pool::create(&second, 1, 0o600)), ErrorKind::InvalidInput);
    assert_eq!(kind(Pool::open(&second)), ErrorKind::NotFound);
    assert_eq!(kind(Pool::open("a\0b")), ErrorKind::InvalidInput);
    let two = Pool::create(&second, 8 << 20, 0o600).unwrap();

    // Ids and keys are of the current pool; attachments and barriers know theirs.
    one.make_current().unwrap();
    let segment = Segment::create(KEY, 8, 0o600).unwrap();
    let attachment = segment.attach().unwrap();
    let mut barrier = Barrier::open(KEY + 1, 1).unwrap();
    two.make_current().unwrap();
    assert_eq!(Segment::open(KEY).unwrap_err().kind(), ErrorKind::NotFound);
    barrier.wait(None).unwrap();

    // Neither what is attached nor the current pool can be closed.
    let (one, error) = one.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(attachment);
    let (one, error) = one.close().unwrap_err();
    assert!(error.to_string().contains("attached"), "{error}");
    drop(barrier);
    one.close().unwrap();
    let (two, error) = two.close().unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    let one = Pool::open(&first).unwrap();
    one.make_current().unwrap();
    Segment::open(KEY).unwrap();
    drop(two);

    // One that is dropped is closed: else seven would be open soon.
    for _ in 0..20 {
        drop(Pool::open(&second).unwrap());
    }
    // Other threads are in the middle of calls meanwhile.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    drop(Segment::open(KEY).unwrap().attach().unwrap());
                }
            });
        }
        for _ in 0..200 {
            Pool::open(&second).unwrap().close().unwrap();
        }
    });
    remove_file(first).unwrap();
    remove_file(second).unwrap();
}
