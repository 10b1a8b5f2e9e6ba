//! Requests to `vshmem-place`, which knows this host's topology, to place machines; and its answers.

use super::cpuset::CpuSet;
use super::plan::Plan;
use super::rules::Rules;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::size;

/// The version of requests and answers.
pub const VERSION: u32 = 1;
/// The program's name.
pub const PROGRAM: &str = "vshmem-place";
/// The beginning of its messages.
pub const SAYS: &str = "vshmem place: ";

/// A machine to be placed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The number of its vCPUs.
    pub cpus: usize,
    /// Its memory in bytes.
    pub memory: u64,
    /// The memory nodes that its devices are near to; empty: it has none, or they are near to none.
    #[serde(default)]
    pub near: CpuSet,
    /// The size in bytes of the host's reserved pages that this comes in; 0: it comes from any memory.
    #[serde(default)]
    pub page: u64,
    /// The rules by which it is placed.
    pub rules: Rules,
}

impl Machine {
    /// The number of its vCPUs, as text.
    pub fn vcpus(&self) -> String {
        vcpus(self.cpus)
    }
}

/// A number of vCPUs, as text.
pub fn vcpus(count: usize) -> String {
    format!("{count} vCPU{}", if count == 1 { "" } else { "s" })
}

/// A phrase that names the size of pages; empty if memory in any pages is meant.
pub fn in_pages(page: u64) -> String {
    match page {
        0 => String::new(),
        size => format!(" in pages of {}", size::show(size)),
    }
}

/// Processors and memory of a host that others have already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Processors.
    pub cpus: CpuSet,
    /// Bytes of memory, by node.
    pub memory: BTreeMap<u32, u64>,
    /// Bytes that they have left of the host's reserved pages, by the size of these in bytes, and by node.
    /// What is not in it is not known.
    #[serde(default)]
    pub pages_left: BTreeMap<u64, BTreeMap<u32, u64>>,
}

/// A request: a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The machines to be placed.
    pub machines: Vec<Machine>,
    /// Processors and memory that others have.
    pub taken: Taken,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u32,
    /// The source of the topology, for people.
    pub topology: String,
    /// The placement.
    #[serde(flatten)]
    pub plan: Plan,
}

/// Has `vshmem-place` place these machines on this host.
///
/// # Errors
/// They can't be placed as they must be, or the program is missing or another version.
pub fn ask(machines: Vec<Machine>, taken: Taken) -> Result<Plan> {
    let program = program();
    let request = Request { version: VERSION, machines, taken };
    let output = run(&program, &request)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        return Err(match said.strip_prefix(SAYS) {
            Some(why) => Error::new(why)
                .hint("Ask for less (vshmem place), or for cores and memory that are preferred."),
            None => error!("{} has failed ({}): {said}", program.display(), output.status),
        });
    }
    understood(&program, &request, &output.stdout)
}

/// The path of `vshmem-place`: beside this program, or else on the `PATH`.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|it| it.with_file_name(PROGRAM));
    beside.filter(|it| it.exists()).unwrap_or(PROGRAM.into())
}

fn run(program: &Path, request: &Request) -> Result<Output> {
    let mut command = Command::new(program);
    command.args(["--json", "--request"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = || format!("could not ask {}", program.display());
    let mut child = command.spawn().map_err(|why| match why.kind() {
        ErrorKind::NotFound => error!(
            "a placement needs the program {PROGRAM}, which is neither beside this one nor on the PATH"
        )
        .hint("Install it, or start the machines without a placement."),
        _ => error!("{}: {why}", failed()),
    })?;
    let text = serde_json::to_vec(request).expect("it is plain data");
    // If it does not read the request, its message says why.
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(&text);
    }
    child.wait_with_output().explain(failed)
}

/// The plan in an answer, which must be one to this request.
fn understood(program: &Path, request: &Request, text: &[u8]) -> Result<Plan> {
    let odd = |why: String| {
        error!("the answer of {} can't be used: {why}", program.display())
            .hint("It must have the version of this vshmem.")
    };
    let answer: Answer = serde_json::from_slice(text).map_err(|why| odd(why.to_string()))?;
    let is_for = |(machine, placed): (&Machine, &super::plan::Placed)| {
        let nodes = &placed.guest.nodes;
        let all = |cpus: usize| (0..cpus as u32).collect::<CpuSet>();
        machine.name == placed.name
            && machine.rules == placed.rules
            && machine.cpus == placed.vcpus.len()
            && machine.cpus == placed.guest.sockets * placed.guest.cores * placed.guest.threads
            && machine.memory == placed.memory
            && machine.near == placed.near
            && placed.vcpus.iter().all(|set| !set.is_empty())
            && !placed.emulator.is_empty()
            && (nodes.is_empty()
                || nodes.iter().flat_map(|node| node.vcpus.iter()).collect::<CpuSet>() == all(machine.cpus)
                    && nodes.iter().map(|node| node.memory).sum::<u64>() == machine.memory
                    && nodes.iter().all(|node| node.distances.len() == nodes.len()))
    };
    let (machines, plan) = (&request.machines, answer.plan);
    if answer.version != VERSION {
        return Err(odd(format!("it has version {}", answer.version)));
    }
    match machines.len() == plan.machines.len() && machines.iter().zip(&plan.machines).all(is_for) {
        true => Ok(plan),
        false => Err(odd("it is about other machines".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn read(answer: &Value) -> Result<Plan> {
        let machine = Machine {
            name: "a".into(),
            cpus: 2,
            memory: 4 << 20,
            page: 0,
            near: CpuSet::default(),
            rules: Rules::default(),
        };
        let request = Request { version: VERSION, machines: vec![machine], taken: Taken::default() };
        understood(Path::new("p"), &request, answer.to_string().as_bytes())
    }

    #[test]
    fn an_answer_is_one_to_the_request() {
        let answer = json!({"version": 1, "topology": "this host", "machines": [{
            "name": "a", "memory": 4 << 20, "rules": {}, "vcpus": ["0", "1"], "emulator": "2-3", "nodes": "0",
            "guest": {"sockets": 1, "cores": 2, "threads": 1, "nodes": []}, "why": [], "fallbacks": []}]});
        assert_eq!(read(&answer).unwrap().machines[0].pinned().collect::<Vec<_>>(), [0, 1]);
        let but = |path: &str, value: Value| {
            let mut other = answer.clone();
            *other.pointer_mut(path).unwrap() = value;
            read(&other).unwrap_err().to_string()
        };
        assert!(but("/version", json!(2)).contains("version 2"));
        for (path, value) in [
            ("/machines/0/name", json!("b")),
            ("/machines/0/rules", json!({"smt": true})),
            ("/machines/0/vcpus", json!(["0"])),
            ("/machines/0/vcpus", json!(["0", ""])),
            ("/machines/0/memory", json!(1)),
            ("/machines/0/guest/cores", json!(1)),
            ("/machines/0/emulator", json!("")),
            ("/machines", json!([])),
        ] {
            assert!(but(path, value).contains("other machines"), "{path}");
        }
        let node = json!([{"vcpus": "0", "memory": 4 << 20, "host": 0, "distances": [10]}]);
        assert!(but("/machines/0/guest/nodes", node).contains("other machines"));
        assert!(but("/machines/0/emulator", json!("x")).contains("list of numbers"));
    }
}
