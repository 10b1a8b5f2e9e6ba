//! The program `vshmem`, with all of its commands.
//!
//! As the first process of a machine (number 1, called `/init`) the same program sets the machine up and
//! serves it; called `vshmem-machine`, it serves one that boots an image. Called by itself, as
//! `vshmem-sandbox` it becomes a machine's QEMU, and as `vshmem-commands` it runs the commands of `vshmem run
//! --local`.

#[macro_use]
mod output;

mod age;
mod agent;
mod args;
mod attach;
mod changes;
mod check;
mod commands;
mod complete;
mod cp;
mod devices;
mod doctor;
mod explain;
mod external;
mod grants;
mod groups;
mod inventory;
mod ipcs;
mod json;
mod logs;
mod machine;
mod machines;
mod manual;
mod more;
mod mpirun;
mod pools;
mod program;
mod progress;
mod root;
mod rsh;
mod run;
mod schema;
mod ssh;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod top;
mod up;
mod xen;

use commands::Command;
use std::ffi::OsString;
use std::process::ExitCode;
use vshmem_base::{size, Result};
use vshmem_guest::image;
use vshmem_hypervisor::shared::{confined, sandbox};
use vshmem_mpi::installation::library_version;
use vshmem_session::commands::local;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if std::process::id() == 1 && name == "/init" {
        vshmem_guest::main();
    }
    if std::path::Path::new(&name).file_name() == Some(image::NAME.as_ref()) {
        image::main();
    }
    if name == sandbox::NAME {
        confined::main();
    }
    if name == local::NAME {
        local::main();
    }
    if let Some(code) = complete::answer() {
        return code;
    }
    if let Some(code) = external::run(std::env::args_os()) {
        return code;
    }
    let words = mpirun::words::translate(std::env::args_os().collect());
    match words.and_then(answer) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tell!("vshmem: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn answer(words: Vec<OsString>) -> Result<u8> {
    let (first, further) = more::split(words.into_iter());
    perform(groups::parse(first).command, further)
}

fn perform(command: Command, further: Vec<more::More>) -> Result<u8> {
    match command {
        Command::Up(up) => up::up(&up),
        Command::Ps(ps) => machines::ps(&ps),
        Command::Exec(exec) => run::exec(exec),
        Command::Shell(shell) => run::shell(shell),
        Command::Cp(cp) => cp::cp(&cp),
        Command::Logs(logs) => logs::logs(&logs),
        Command::Devices(devices) => devices::devices(&devices),
        Command::Doctor(doctor) => doctor::doctor(*doctor),
        Command::Explain(explain) => explain::explain(&explain),
        Command::Inventory(asked) => inventory::inventory(&asked),
        Command::Ssh(ssh) => ssh::ssh(&ssh),
        Command::Machine(what) => machine::machine(&what),
        Command::Run(run) => {
            let further = more::after(&run, further);
            run::run(run, further)
        }
        Command::Mpirun(mpirun) => mpirun::mpirun(*mpirun),
        Command::Root(what) => root::root(what),
        Command::Rsh(rsh) => rsh::rsh(&rsh),
        Command::LibraryVersion { file } => output::print(&library_version(&file)?).map(|()| 0),
        Command::Down(down) => machines::down(&down),
        Command::Grow(grow) => changes::grow(&grow),
        Command::Shrink(shrink) => changes::shrink(&shrink),
        Command::Repair(repair) => changes::repair(&repair),
        Command::Restart(restart) => machines::restart(&restart),
        Command::Grant(grant) => grants::grant(&grant),
        Command::Revoke(revoke) => grants::revoke(&revoke),
        Command::Attach(attach) => attach::attach(&attach),
        Command::Detach(detach) => attach::detach(&detach),
        Command::Pool(pool) => pools::pool(pool),
        Command::Ipcs(ipcs) => ipcs::ipcs(&ipcs),
        Command::Ipcrm(ipcrm) => ipcs::ipcrm(&ipcrm),
        Command::Check(check) => check::check(&check),
        Command::Template(what) => template::template(&what),
        Command::Top(top) => top::top(&top),
        Command::Agent(agent) => agent::agent(&agent),
        Command::Xen(xen) => xen::xen(xen),
        Command::Manual { directory } => manual::write(&directory),
        Command::Schema { document } => schema::schema(document),
        Command::Completions { shell } => output::print(&complete::script(shell)).map(|()| 0),
    }
}
