//! The program: what it draws of a cluster's file, and what it answers `vshmem up`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::request::{Answer, Machine, Request, Taken, SAYS, VERSION};
use vshmem_placement::rules::{Insist, Rules};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/cluster/placed.toml");
const TWO_SOCKETS: &str = "pack:2 [numa(memory=68719476736)] l3:1 core:4 pu:2";
const PROGRAM: &str = env!("CARGO_BIN_EXE_vshmem-place");

fn run(words: &[&str], input: &str) -> Output {
    answered(Command::new(PROGRAM).args(words), input)
}

fn answered(command: &mut Command, input: &str) -> Output {
    // No cluster of the user who runs the test is in the way.
    command.env("XDG_RUNTIME_DIR", scratch("run")).env_remove("VSHMEM_CLUSTER");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("vshmem-place-{name}"));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(code: i32, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(code));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_clusters_file_is_drawn() {
    let svg = scratch("svg").join("place.svg");
    let drawn = text(&run(&[EXAMPLE, "--topology", TWO_SOCKETS, "--svg", svg.to_str().unwrap()], ""));
    // The first core of each node is the host's, and emulator threads are there.
    assert!(drawn.contains("socket 0, node 0, 64G\n  0-7          *      solver solver .\n"), "{drawn}");
    assert!(
        drawn.contains("solver: vCPUs on 2 4, emulator threads on 0-1, 256M from node 0 first\n"),
        "{drawn}"
    );
    assert!(drawn.contains("numa-first: node 0 holds 2 vCPUs and 256M, and has room for 1 more"), "{drawn}");
    assert!(std::fs::read_to_string(svg).unwrap().contains("solver: numa-first"));
    let smt =
        text(&run(&[EXAMPLE, "--topology", TWO_SOCKETS, "--smt", "--reserve-cores", "0", "--json"], ""));
    let smt: Answer = serde_json::from_str(&smt).unwrap();
    let placed = &smt.plan.machines[0];
    assert_eq!((placed.pinned().collect::<Vec<_>>(), placed.guest.threads), (vec![0, 1], 2));
}

#[test]
fn what_can_not_be_had_is_an_error() {
    let small = ["--topology", "pack:1 core:2 pu:1"];
    let why = refused(1, &run(&[&[EXAMPLE], &small[..]].concat(), ""));
    assert_eq!(why, format!("{SAYS}solver needs cores for 2 vCPUs, and there are free ones for 1\n"));
    let why = refused(1, &run(&[EXAMPLE, "--topology", "no/such.xml"], ""));
    assert!(why.contains("no/such.xml"), "{why}");
    refused(2, &run(&[EXAMPLE, "-n", "3"], ""));
    refused(2, &run(&["--policy", "best"], ""));
    assert!(refused(2, &run(&["no/such.toml"], "")).contains("could not read no/such.toml"));
    let wrong = scratch("wrong").join("wrong.toml");
    std::fs::write(&wrong, "[placement]\npolicy = 'best'\n").unwrap();
    let why = refused(2, &run(&[wrong.to_str().unwrap()], ""));
    assert!(why.contains("wrong.toml:2:10: unknown variant `best`"), "{why}");
}

#[test]
fn a_file_without_a_placement_is_said_to_have_none() {
    let pair = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/cluster/pair.toml");
    let drawn = text(&run(&[pair, "--topology", TWO_SOCKETS], ""));
    assert!(drawn.contains("vm1: vCPUs on 2,") && drawn.contains("has no [placement]"), "{drawn}");
}

fn machine(name: &str, cpus: usize, rules: Rules) -> Machine {
    Machine { name: name.into(), cpus, memory: 1 << 30, page: 0, near: CpuSet::default(), rules }
}

#[test]
fn a_thousand_machines_are_placed_within_a_second() {
    let rules = Rules { cores: Insist::Strict, ..Rules::default() };
    let machines = (0..1000).map(|number| machine(&format!("m{number}"), 1 + number % 4, rules)).collect();
    let request = Request { version: VERSION, machines, taken: Taken::default() };
    let request = serde_json::to_string(&request).unwrap();
    // The kernel ends what has run for longer on a processor, whatever else this host does meanwhile. Without
    // the compiler's optimizations it takes ten times as long.
    let limit = if cfg!(debug_assertions) { 10 } else { 1 };
    let limited = format!("ulimit -t {limit} && exec \"$0\" \"$@\"");
    let words = ["-c", &limited, PROGRAM, "--request", "--json", "--topology"];
    let host = "pack:8 [numa(memory=549755813888)] l3:8 core:40 pu:2";
    let answer = text(&answered(Command::new("sh").args(words).arg(host), &request));
    let answer: Answer = serde_json::from_str(&answer).unwrap();
    let mut cores: Vec<u32> =
        answer.plan.machines.iter().flat_map(|it| it.pinned()).map(|it| it / 2).collect();
    cores.sort_unstable();
    cores.dedup();
    assert_eq!((answer.plan.machines.len(), cores.len()), (1000, 2500), "each vCPU has a core of its own");
}

#[test]
fn a_request_is_answered() {
    let rules = Rules { cores: Insist::Strict, ..Rules::default() };
    let machine = |cpus| machine("a", cpus, rules);
    let taken = Taken { cpus: "0-3".parse().unwrap(), memory: [(0, 1 << 30)].into(), ..Taken::default() };
    let ask = |cpus, version| {
        let request = Request { version, machines: vec![machine(cpus)], taken: taken.clone() };
        let request = serde_json::to_string(&request).unwrap();
        run(&["--request", "--json", "--topology", TWO_SOCKETS], &request)
    };
    let answer: Answer = serde_json::from_str(&text(&ask(2, VERSION))).unwrap();
    assert_eq!(answer.plan.machines[0].pinned().collect::<Vec<_>>(), [4, 6]);
    assert!(refused(1, &ask(7, VERSION)).starts_with("vshmem place: a needs cores for 7 vCPUs"));
    assert!(refused(125, &ask(1, VERSION + 1)).contains("the request has version 2"));
    assert!(refused(125, &run(&["--request", "--json"], "{")).contains("can't be understood"));
}
