//! The cases, and how a command is killed at its steps.

use crate::cost::{a_file, a_list};
use crate::refused;
use crate::scene::Scene;

/// Two machines and two pools.
pub const PAIR: &str = "[[machines]]\ncount = 2\nmemory = \"128M\"\n\
    [pools.default]\nsize = \"1M\"\n[pools.work]\nsize = \"1M\"\n";
/// The number of steps of a command that are tried as a rule.
const SAMPLE: usize = 3;

/// A case: its name, and what is done.
pub type Case = (&'static str, fn(&Scene));

/// All of them.
pub const CASES: &[Case] = &[
    ("up_is_killed", |scene| {
        each_step(scene, &|| (), &["up", "FILE"], &[&["up", "FILE"]]);
        each_step(scene, &|| (), &["up", "FILE"], &[]);
    }),
    ("grow_is_killed", |scene| {
        let whole: &[&[&str]] = &[&["up", "FILE", "--remove", "--restart"]];
        each_step(scene, &|| up(scene), &["grow"], whole);
    }),
    ("shrink_is_killed", |scene| {
        each_step(scene, &|| up(scene), &["shrink"], &[&["up", "FILE"]]);
    }),
    ("a_change_that_takes_restarts_is_killed", |scene| {
        let changed = PAIR.replace("128M", "160M");
        let prepare = || {
            up(scene);
            scene.describe(&changed);
        };
        each_step_of(
            scene,
            &prepare,
            &changed,
            &["up", "FILE", "--restart"],
            &[&["up", "FILE", "--restart"]],
        );
    }),
    ("repair_is_killed", |scene| {
        each_step(scene, &|| crippled(scene), &["repair"], &[&["repair"]]);
    }),
    ("down_is_killed", |scene| {
        each_step(scene, &|| up(scene), &["down"], &[]);
        each_step(scene, &|| up(scene), &["down"], &[&["up", "FILE", "--restart"]]);
    }),
    ("what_a_host_cant_do_is_said", refused::what_a_host_cant_do),
    ("a_hypervisor_that_fails_is_said", refused::a_hypervisor_that_fails),
    ("a_name_that_is_taken_stays", refused::a_name_that_is_taken),
    ("a_list_of_machines_costs_little", a_list),
    ("a_file_costs_no_more_than_options", a_file),
    ("clusters_come_and_go", |scene| {
        let cycles = std::env::var("CYCLES").map_or(3, |cycles| cycles.parse().expect("a number"));
        for cycle in 0..cycles {
            let when = format!("cycle {cycle}");
            up(scene);
            scene.works(&["down"], &when);
            scene.nothing_is_left(&when);
        }
    }),
];

/// Whether all is tried that can be.
pub fn tries_all() -> bool {
    std::env::var_os("KILLS").is_some_and(|kills| kills == "all")
}

fn up(scene: &Scene) {
    scene.works(&["up", &scene.describe(PAIR)], "to begin with");
}

/// A cluster of which a machine was killed.
fn crippled(scene: &Scene) {
    up(scene);
    // SAFETY: plain values; it is the machine's process.
    unsafe { libc::kill(scene.process("vm1"), libc::SIGKILL) };
    while !scene.machines().iter().any(|(_, state)| state == "died") {}
}

/// Kills a command at each of its steps. After each kill these commands work, and all machines run if there
/// are any; and in the end nothing is left.
fn each_step(scene: &Scene, prepare: &dyn Fn(), words: &[&str], after: &[&[&str]]) {
    each_step_of(scene, prepare, PAIR, words, after);
}

/// Kills a command at each of its steps, as [`each_step`] does, in a cluster of this description, whose
/// memory the machines have in the end.
fn each_step_of(scene: &Scene, prepare: &dyn Fn(), description: &str, words: &[&str], after: &[&[&str]]) {
    let file = scene.describe(description);
    let sizes = description.split('"').filter_map(|word| word.strip_suffix('M'));
    let memory: u64 = sizes.filter_map(|size| size.parse().ok()).next().expect("the machines' memory");
    let memory = format!(" -m size={}k ", memory << 10);
    let named =
        |words: &[&str]| -> Vec<String> { words.iter().map(|word| word.replace("FILE", &file)).collect() };
    let words = named(words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    prepare();
    let whole = scene.killed(&words, None);
    assert_eq!(whole.code, Some(0), "{words:?}");
    end(scene, &format!("{words:?}"));
    let all = tries_all();
    let stride = if all { 1 } else { whole.steps / SAMPLE };
    // The first ones differ with each command.
    let first = if all { 1 } else { 1 + words[0].len() };
    let mut kills = 0;
    for step in (first..).step_by(stride.max(1)) {
        prepare();
        let killed = scene.killed(&words, Some(step));
        if killed.code.is_some() {
            end(scene, "as nothing was killed");
            break;
        }
        kills += 1;
        let when =
            format!("{words:?} was killed at step {step} of {} (system call {})", whole.steps, killed.last);
        scene.works(&["ps"], &when);
        for words in after {
            let words = named(words);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            scene.works(&words, &when);
            let run = |name: &str| (name.to_owned(), "running".to_owned());
            assert_eq!(scene.machines(), [run("vm0"), run("vm1")], "{when}");
            assert!(scene.is_started(), "{when}: the cluster is not up");
            for machine in ["vm0", "vm1"] {
                let started = scene.started(machine);
                assert!(started.contains(&memory), "{when}: {machine} was started with {started}");
            }
        }
        end(scene, &when);
    }
    println!("        {kills} kills at {} steps of {words:?}", whole.steps);
}

/// Ends whatever there is; nothing is left then.
fn end(scene: &Scene, when: &str) {
    scene.works(&["down", "--all"], when);
    scene.nothing_is_left(when);
}
