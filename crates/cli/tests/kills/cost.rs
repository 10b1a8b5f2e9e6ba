//! The cost of commands in processor time, which does not depend on other work of the host.

use crate::scene::Scene;
use std::time::Duration;

/// The number of times that something is measured; the least is what it costs.
const ROUNDS: usize = 3;

/// A list of sixteen machines.
pub fn a_list(scene: &Scene) {
    scene
        .works(&["up", &scene.describe("[[machines]]\ncount = 16\nmemory = \"128M\"\n")], "sixteen machines");
    let told = (0..ROUNDS).map(|_| scene.processor_time(&["ps"])).min().expect("some rounds");
    assert_eq!(scene.machines().len(), 16);
    println!("        ps of 16 machines takes {told:?} of a processor");
    assert!(told < Duration::from_millis(200), "{told:?}");
    scene.works(&["down"], "in the end");
    scene.nothing_is_left("in the end");
}

/// Two machines of a file, and two without one.
pub fn a_file(scene: &Scene) {
    let file = scene.describe("");
    let kernel = scene.path("kernel/vmlinuz").to_string_lossy().into_owned();
    let plain = ["up", "--kernel", &kernel, "--accel", "tcg", "--driver", "none", "--doorbell", "--cold"];
    let up = |words: &[&str]| {
        let took = scene.processor_time(words);
        scene.works(&["down"], "in between");
        took
    };
    let of_file = (0..ROUNDS).map(|_| up(&["up", &file])).min().expect("some rounds");
    let without = (0..ROUNDS).map(|_| up(&plain)).min().expect("some rounds");
    println!("        up takes {without:?} of a processor, and {of_file:?} with a file");
    assert!(of_file < without * 3 / 2 + Duration::from_millis(20), "{without:?} {of_file:?}");
    scene.nothing_is_left("in the end");
}
