//! The contract of a launcher, and a launcher that keeps it: its machines are processes in namespaces.
//!
//! Without the test harness: machines, and the agents in them, are this program, executed again.

mod contract;
mod launcher;
mod machine;
mod namespaces;

use contract::Subject;
use std::process::ExitCode;
use std::time::Duration;
use vshmem_hypervisor::launcher::table::register;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_session::commands::local;

/// Machines that the launcher of processes starts.
const SUBJECT: Subject = Subject {
    description: "hypervisor = 'process'",
    has_pool: |name| format!("test -f {}/{name}", machine::POOLS),
    timeout: Duration::from_secs(20),
};

fn main() -> ExitCode {
    register(&launcher::Processes);
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [local::NAME, ..] => local::main(),
        [_, machine::WORD, channels] => machine::main(channels.parse().expect("a number")),
        _ => (),
    }
    if let Some(code) = contract::command(&SUBJECT, &words[1..]) {
        return code;
    }
    if let Err(why) = launcher::Processes.check_host() {
        println!("skip  the launchers' contract: {why}");
        return ExitCode::SUCCESS;
    }
    ExitCode::from(u8::from(!contract::run(&SUBJECT)))
}
