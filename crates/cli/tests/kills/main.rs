//! Kills of the command at each step of what it does to a cluster, and its failures where it can't work: the
//! next command works, and nothing is left in the end. Machines are of a program that passes for QEMU.
//!
//! As a rule some steps of each command are tried, at equal distances; with KILLS=all each one is. CYCLES
//! says how many times a cluster comes and goes.

#[cfg(target_arch = "x86_64")]
mod cases;
#[cfg(target_arch = "x86_64")]
mod cost;
#[cfg(target_arch = "x86_64")]
mod qemu;
#[cfg(target_arch = "x86_64")]
mod refused;
#[cfg(target_arch = "x86_64")]
mod scene;
#[cfg(target_arch = "x86_64")]
mod traced;

#[cfg(target_arch = "x86_64")]
fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.iter().any(|word| word == "-nodefaults") || words[0].ends_with(qemu::NAME) {
        qemu::main(&words);
    }
    let filters: Vec<&String> = words[1..].iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let (mut passed, mut failed) = (0, 0);
    let begun = std::time::Instant::now();
    for (name, case) in cases::CASES.iter().filter(|(name, _)| wanted(name)) {
        let begun = std::time::Instant::now();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&scene::Scene::new())));
        *(if done.is_ok() { &mut passed } else { &mut failed }) += 1;
        let verdict = if done.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    println!("{passed} passed, {failed} failed, in {:.1} s", begun.elapsed().as_secs_f64());
    if failed > 0 {
        std::process::exit(1);
    }
}

/// Machines are of x86-64.
#[cfg(not(target_arch = "x86_64"))]
fn main() {}
