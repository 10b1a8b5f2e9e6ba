//! Barriers and reductions, between processes and threads, and when a party dies.

mod common;

use common::{all_succeed, pool, start};
use std::thread;
use std::time::{Duration, Instant};
use vshmem::{Barrier, ErrorKind, Operation};

const LONG: Option<Duration> = Some(Duration::from_secs(30));
const PARTIES: u32 = 3;
const PROCESSES: i32 = 1;
const THREADS: i32 = 2;
const LIMITS: i32 = 3;
const DEATH: i32 = 4;
const TIME: i32 = 5;

fn reductions(key: i32) {
    let mut barrier = Barrier::open(key, PARTIES).unwrap();
    let seat = barrier.seat();
    assert!(seat < PARTIES);
    let mut floats: Vec<f64> = (0..5000).map(|i| f64::from(i) / 3.0 + f64::from(seat) * 0.1).collect();
    barrier.reduce(&mut floats, Operation::Sum, LONG).unwrap();
    for (i, sum) in (0..5000).zip(floats) {
        let of = |seat: u32| f64::from(i) / 3.0 + f64::from(seat) * 0.1;
        assert_eq!(sum, (1..PARTIES).fold(of(0), |sum, seat| sum + of(seat)));
    }
    let mut whole = [i64::from(seat), -i64::from(seat), i64::MAX];
    barrier.reduce(&mut whole, Operation::Max, LONG).unwrap();
    assert_eq!(whole, [i64::from(PARTIES) - 1, 0, i64::MAX]);
    barrier.reduce(&mut whole, Operation::Min, LONG).unwrap();
    barrier.reduce(&mut [0.0; 0], Operation::Min, LONG).unwrap();
    let mut lasts = [i64::from(barrier.wait(LONG).unwrap())];
    barrier.reduce(&mut lasts, Operation::Sum, LONG).unwrap();
    assert_eq!(lasts, [1]);
}

#[test]
#[ignore = "run by processes_reduce"]
fn process_reduces() {
    pool();
    reductions(PROCESSES);
}

#[test]
fn processes_reduce() {
    all_succeed([(); PARTIES as usize].map(|()| start("process_reduces")));
    Barrier::remove(PROCESSES).unwrap();
}

#[test]
fn threads_reduce() {
    pool();
    thread::scope(|scope| {
        for _ in 0..PARTIES {
            scope.spawn(|| reductions(THREADS));
        }
    });
    Barrier::remove(THREADS).unwrap();
}

#[test]
fn limits() {
    pool();
    let kind = |result: vshmem::Result<Barrier>| result.unwrap_err().kind();
    assert_eq!(kind(Barrier::open(LIMITS, 0)), ErrorKind::InvalidInput);
    assert_eq!(kind(Barrier::open(LIMITS, 481)), ErrorKind::InvalidInput);
    assert_eq!(kind(Barrier::open(0, 1)), ErrorKind::InvalidInput);
    let one = Barrier::open(LIMITS, 1).unwrap();
    assert_eq!(kind(Barrier::open(LIMITS, 1)), ErrorKind::Busy);
    assert_eq!(kind(Barrier::open(LIMITS, 2)), ErrorKind::InvalidInput);
    drop(one);
    drop(Barrier::open(LIMITS, 1).unwrap());
    Barrier::remove(LIMITS).unwrap();
    let error = Barrier::remove(LIMITS).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().starts_with("vshm_barrier_remove: "));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn time_is_up() {
    pool();
    let mut barrier = Barrier::open(TIME, 2).unwrap();
    let (began, timeout) = (Instant::now(), Duration::from_millis(300));
    let error = barrier.wait(Some(timeout)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(began.elapsed() >= timeout);
    let mut values = [1i64];
    for wait in [Duration::ZERO, timeout] {
        let error = barrier.reduce(&mut values, Operation::Sum, Some(wait));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    thread::scope(|scope| {
        // The longest span there is can be waited for.
        scope.spawn(|| Barrier::open(TIME, 2).unwrap().wait(Some(Duration::MAX)));
        barrier.wait(LONG).unwrap();
    });
    drop(barrier);
    Barrier::remove(TIME).unwrap();
}

#[test]
#[ignore = "run by a_party_dies"]
fn party_that_dies() {
    pool();
    let mut barrier = Barrier::open(DEATH, 2).unwrap();
    barrier.wait(LONG).unwrap();
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_party_dies() {
    let mut child = start("party_that_dies");
    let mut barrier = Barrier::open(DEATH, 2).unwrap();
    barrier.wait(LONG).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = barrier.wait(LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PartyDied);
    assert_eq!(error.raw_os_error(), libc::EOWNERDEAD);
    drop(barrier);
    Barrier::remove(DEATH).unwrap();
}
