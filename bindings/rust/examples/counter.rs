//! A counter that processes share: each call of `vshmem run --local -- target/debug/examples/counter` prints
//! one more.

use std::sync::atomic::Ordering::Relaxed;
use vshmem::Segment;

const KEY: i32 = 0x43;

fn main() -> vshmem::Result<()> {
    let counter = Segment::create(KEY, 8, 0o600)?.attach()?;
    println!("{}", counter.values::<u64>()[0].fetch_add(1, Relaxed) + 1);
    Ok(())
}
