//! The sum of what several processes have: `vshmem run --local -n 4 -- target/debug/examples/sum 4`.

use std::error::Error;
use std::time::Duration;
use vshmem::{Barrier, Operation};

const KEY: i32 = 0x42;

fn main() -> Result<(), Box<dyn Error>> {
    let parties = std::env::args().nth(1).ok_or("usage: sum PARTIES")?.parse()?;
    let mut barrier = Barrier::open(KEY, parties)?;
    let mut values = [1.0 + f64::from(barrier.seat())];
    barrier.reduce(&mut values, Operation::Sum, Some(Duration::from_secs(30)))?;
    println!("{}", values[0]);
    Ok(())
}
