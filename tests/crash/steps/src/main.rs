//! The proof of death: kills a process after every store that each operation makes to a pool, and has
//! survivors mend what it left.
//!
//! For each scenario ([`segments`], [`sets`], [`queues`]) one call of a victim is run, stopped after each of
//! its stores ([`trap`]). There the whole world, which is one process ([`world`]), is forked ([`image`]): in
//! the fork the victim is dead, the others go on, what they find must be what System V promises, and once a
//! survivor has mended, `vshmem_ipc::check` finds every block, record and count in its place. Survivors are
//! killed while they mend, too; of those deaths a sample is tried. Pairs of operations run in random order,
//! store by store, and die at random ([`pairs`]).
//!
//! What the kernel keeps of a pool (liveness locks, whether a page of the file has memory) is not memory and
//! is not stepped: a process is dead at once, and memory can always be had. What segments hold is theirs, and
//! not looked at store by store.
//!
//! `vshmem-steps [--pairs ROUNDS] [--seed N] [--level-2 N] [NAME...]`: only scenarios with one of these in
//! their names (none of them: `-`); of the deaths of those who mend, one in N is tried (0: none).

mod calls;
mod handing;
mod image;
mod mend;
mod model;
mod pairs;
mod process;
mod queues;
mod rings;
mod segments;
mod sets;
mod single;
mod trap;
mod world;

use core::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

fn number(word: Option<String>) -> u64 {
    word.and_then(|n| n.parse().ok()).expect("a number")
}

/// A name; of the deaths while somebody mends, one in how many is tried (0: none); what happens.
pub type Scenario = (&'static str, u64, fn());

fn main() {
    let mut wanted = Vec::new();
    let mut level = None;
    let (mut rounds, mut seed) = (0, 1);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            "--level-2" => level = words.next().and_then(|n| n.parse().ok()),
            "--pairs" => rounds = number(words.next()),
            "--seed" => seed = number(words.next()),
            _ => wanted.push(word),
        }
    }
    let counts = image::shared_counts();
    let begin = Instant::now();
    let all = [segments::SCENARIOS, sets::SCENARIOS, queues::SCENARIOS, handing::SCENARIOS, rings::SCENARIOS];
    let mut scenarios = 0;
    for (name, rate, scenario) in all.into_iter().flatten() {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(&**w)) {
            continue;
        }
        let rate = level.unwrap_or(*rate);
        let (images, second) = (counts.images.load(Relaxed), counts.second.load(Relaxed));
        let since = Instant::now();
        image::run(name, rate, *scenario);
        scenarios += 1;
        let second = counts.second.load(Relaxed) - second;
        let first = counts.images.load(Relaxed) - images - second;
        println!(
            "{name}: {first} states, {second} of them mended twice, {:.1} s",
            since.elapsed().as_secs_f64()
        );
    }
    if rounds > 0 {
        let since = Instant::now();
        pairs::run(rounds, seed);
        println!("calls at once: {rounds} rounds from {seed} on, {:.1} s", since.elapsed().as_secs_f64());
    }
    let failed = counts.failed.load(Relaxed);
    let images = counts.images.load(Relaxed);
    println!(
        "{scenarios} operations, {images} states of a pool, {failed} not mended, {:.0} s",
        begin.elapsed().as_secs_f64()
    );
    std::process::exit((failed > 0).into());
}
