//! Starts that a host refuses: the reason is printed, nothing is left of the attempt, and the next one works.

use crate::cases::{tries_all, PAIR};
use crate::scene::Scene;

/// Descriptions that a host refuses, each with the exit code and a part of the message.
const CASES: &[(&str, i32, &str)] = &[
    ("[[machines]]\ncount = two\n", 2, "cluster.toml:7:9: "),
    ("[[machines]]\nmemroy = \"1G\"\n", 2, "Did you mean memory?"),
    ("[[machines]]\nname = \"a\"\n[[machines]]\nname = \"a\"\n", 2, "two machines would be called a"),
    ("[[machines]]\nimage = \"/no/such.qcow2\"\n", 125, "could not open /no/such.qcow2"),
    ("[[machines]]\nmemory = \"900T\"\n", 125, "this host does not have the memory"),
    ("[pools.default]\nsize = \"512G\"\nreserve = true\n", 125, "the pool"),
    ("[[machines]]\ndevices = [\"0000:ff:1f.7\"]\n", 1, "there is no device 0000:ff:1f.7"),
];

/// A start that can't be is refused with its reason, and starts nothing.
pub fn what_a_host_cant_do(scene: &Scene) {
    for (text, code, why) in CASES {
        let said = scene.fails(&["up", &scene.describe(text)], *code);
        assert!(said.contains(why), "{text}: {said}");
        scene.nothing_is_left(text);
        works(scene, text);
    }
}

/// Nor does a hypervisor that does not work.
pub fn a_hypervisor_that_fails(scene: &Scene) {
    let right = scene.replace_qemu("#!/bin/sh\necho no such machine >&2\nexit 1\n");
    let said = scene.fails(&["up", &scene.describe(PAIR)], 125);
    assert!(said.contains("did not boot: it has ended") && said.contains("no such machine"), "{said}");
    scene.nothing_is_left("after QEMU has failed");
    // It takes as long as QEMU is waited for.
    if tries_all() {
        scene.replace_qemu("#!/bin/sh\ntrap exit TERM\nwhile :; do sleep 1; done\n");
        let said = scene.fails(&["up", &scene.describe(PAIR), "--timeout", "1"], 125);
        assert!(said.contains("vm0"), "{said}");
        scene.nothing_is_left("after QEMU has hung");
    }
    scene.restore_qemu(&right);
    works(scene, "after QEMU has failed");
}

/// A name that is taken stays whose it is.
pub fn a_name_that_is_taken(scene: &Scene) {
    scene.works(&["up", &scene.describe(PAIR)], "to begin with");
    let before = scene.machines();
    let said = scene.fails(&["up", "-n", "1"], 125);
    assert!(said.contains("is already up") && said.contains("--cluster"), "{said}");
    assert_eq!(scene.machines(), before);
    // A machine that only another cluster has is asked for there.
    let other = format!("{}b", scene.cluster());
    scene.works(&["up", &scene.describe("[[machines]]\nname = \"away\"\n"), "-c", &other], "beside it");
    let said = scene.fails(&["logs", "away"], 125);
    let hint = format!("The cluster {other} has one of that name: choose it with --cluster {other}.");
    assert!(said.contains("has no machine away") && said.contains(&hint), "{said}");
    scene.works(&["down", "-c", &other], "the other one");
    scene.works(&["down"], "in the end");
    scene.nothing_is_left("in the end");
}

fn works(scene: &Scene, when: &str) {
    scene.works(&["up", &scene.describe(PAIR)], when);
    scene.works(&["down"], when);
    scene.nothing_is_left(when);
}
