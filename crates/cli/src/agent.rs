//! `vshmem agent`: the host's back end, and a machine's front end.

use crate::complete::values;
use crate::json::print_document;
use crate::output::{columns, print};
use crate::table::Table;
use clap::Args;
use std::path::PathBuf;
pub use vshmem_agent::ivshmem::Status;

use vshmem_agent::ivshmem::client::{ensure, request, restart_without, status};
use vshmem_agent::ivshmem::{run_part, Directory, Part, Program, Request, MAX_VECTORS};
use vshmem_base::{error, Result};
use vshmem_hypervisor::shared::doorbell;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem agent work                        serve the pool work; start the agent if there is none
  qemu-system-x86_64 ... -chardev socket,id=work,path=$(vshmem agent work) \\
      -device ivshmem-doorbell,vectors=2,chardev=work
  vshmem agent --status                    which machines are connected
  vshmem agent --metrics 9500              serve metrics at http://127.0.0.1:9500/metrics; off: no longer
  vshmem agent --restart                   restart with the program as it is installed now
  vshmem agent --without work              restart, and don't even open that pool
  vshmem agent --stop
  vshmem agent --guest                     in a machine, as root: join its pools, and follow what the host grants

The agent runs in the background. If it is killed, it is started anew, and machines don't notice. By it machines wake
threads that wait in others, in the device that QEMU calls a doorbell; it also cleans up after the dead.")]
pub struct Agent {
    /// Pools to serve: names, or paths with a slash in them. Prints where machines connect
    #[arg(conflicts_with_all = ["drop", "restart", "stop", "part"], add = values::pools())]
    pool: Vec<String>,
    /// How many vectors each machine can be rung by
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = vectors)]
    vectors: usize,
    /// Show which pools are served, and which machines are connected
    #[arg(long)]
    status: bool,
    /// Print it as JSON
    #[arg(long, requires = "status")]
    json: bool,
    /// Serve this pool no longer
    #[arg(long, value_name = "POOL", add = values::pools())]
    drop: Vec<String>,
    /// Serve metrics for Prometheus at a port of 127.0.0.1, IP:PORT, a path with a slash in it, or `socket`
    /// (metrics.sock in the agent's directory); `off`: no longer. Anyone who can connect can read them
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Restart with the program as it is installed now; machines go on
    #[arg(long)]
    restart: bool,
    /// Restart without this pool, as --status calls it: it is served no longer. Works even if the agent
    /// does not answer
    #[arg(long, value_name = "POOL", conflicts_with_all = ["pool", "drop", "restart", "stop", "part"], add = values::pools())]
    without: Vec<String>,
    /// End the agent; machines go on, but later ones can't join them
    #[arg(long, conflicts_with = "restart")]
    stop: bool,
    /// The agent's directory, instead of the one in XDG_RUNTIME_DIR
    #[arg(long, value_name = "DIRECTORY", add = values::directories())]
    directory: Option<PathBuf>,
    /// End when no pool is served any more
    #[arg(long)]
    transient: bool,
    /// In a machine: join its pools, and follow what the host says about them, in the foreground
    #[arg(long, conflicts_with_all = ["pool", "drop", "without", "status", "metrics", "restart", "stop", "directory", "transient", "part"])]
    guest: bool,
    /// With --guest, the user that the pools' device files are given to; without it they stay as the machine
    /// makes them
    #[arg(long, requires = "guest", value_name = "UID")]
    owner: Option<u32>,
    #[arg(long, hide = true, requires = "link", value_parser = ["back-end", "keeper"])]
    part: Option<String>,
    #[arg(long, hide = true)]
    link: Option<i32>,
}

fn vectors(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse().ok();
    let good = number.filter(|number| (1..=MAX_VECTORS).contains(number));
    good.ok_or_else(|| format!("a peer has 1 to {MAX_VECTORS} vectors"))
}

/// Starts the back end, sends it requests, or runs the front end.
pub fn agent(agent: &Agent) -> Result<u8> {
    if agent.guest {
        return vshmem_agent::guest::run(&vshmem_agent::DEVICES, agent.owner).map(|()| 0);
    }
    let program = program(agent)?;
    if let (Some(part), Some(link)) = (&agent.part, agent.link) {
        let part = match part.as_str() {
            "keeper" => Part::Keeper,
            _ => Part::BackEnd,
        };
        return run_part(&program, part, link).map(|()| 0);
    }
    let directory = &program.directory;
    for pool in &agent.drop {
        let pool = pool.clone();
        request(directory, &Request::Drop { pool }).map_err(|e| e.code(1))?;
    }
    if !agent.without.is_empty() {
        restart_without(directory, &agent.without).map_err(|e| e.code(1))?;
    }
    if agent.restart {
        request(directory, &Request::Restart {}).map_err(|e| e.code(1))?;
    }
    if agent.stop {
        request(directory, &Request::Stop {}).map_err(|e| e.code(1))?;
    }
    let ends_metrics = agent.metrics.as_deref() == Some("off");
    let needs_no_start = agent.status
        || agent.restart
        || agent.stop
        || ends_metrics
        || !agent.drop.is_empty()
        || !agent.without.is_empty();
    if !agent.pool.is_empty() || !needs_no_start {
        ensure(&program)?;
    }
    let asks_nothing = !needs_no_start && agent.pool.is_empty() && agent.metrics.is_none();
    if asks_nothing && columns().is_some() {
        tell!("The agent runs, and goes on. What it serves: vshmem agent --status. Its end: vshmem agent --stop.");
    }
    for pool in &agent.pool {
        let serve = Request::Serve { pool: pool.clone(), vectors: agent.vectors };
        if let Some(socket) = request(directory, &serve).map_err(|e| e.code(1))? {
            print(&format!("{}\n", socket.display()))?;
        }
    }
    if let Some(address) = &agent.metrics {
        let address = (address != "off").then(|| absolute(address)).transpose()?;
        let served = request(directory, &Request::Metrics { address }).map_err(|e| e.code(1))?;
        if let Some(served) = served {
            let served = served.display().to_string();
            let before = if served.contains('/') { "" } else { "http://" };
            let after = if served.contains('/') { "" } else { "/metrics" };
            print(&format!("{before}{served}{after}\n"))?;
        }
    }
    if agent.status {
        return show(status(directory)?, agent.json);
    }
    Ok(0)
}

fn program(agent: &Agent) -> Result<Program> {
    let path = std::env::current_exe().map_err(|e| error!("this program's own file is not known: {e}"))?;
    let directory = match &agent.directory {
        Some(directory) => directory.clone(),
        None => doorbell::directory()?,
    };
    let directory = std::path::absolute(&directory)
        .map_err(|e| error!("{} is no directory: {e}", directory.display()))?;
    Ok(Program {
        path,
        args: vec!["agent".into()],
        directory: Directory::named(&directory),
        transient: agent.transient,
    })
}

/// An address for metrics; a path is made absolute, since the back end has another working directory.
fn absolute(address: &str) -> Result<String> {
    if !address.contains('/') {
        return Ok(address.into());
    }
    let path = std::path::absolute(address).map_err(|e| error!("{address} is no path: {e}").code(2))?;
    Ok(path.to_string_lossy().into_owned())
}

fn show(status: Option<Status>, json: bool) -> Result<u8> {
    let Some(status) = status else {
        tell!("vshmem: no agent runs; start one with: vshmem agent POOL");
        return Ok(1);
    };
    if json {
        return print_document(&status).map(|()| 0);
    }
    let mut table = Table::new("POOL  PEER  NAME  PID  STATE");
    for pool in &status.pools {
        let state = match pool.quarantined {
            Some(_) => "quarantined",
            None => "connected",
        };
        table.row(&[&pool.name, &0, &"(host)", &status.pid, &state]);
        for peer in &pool.peers {
            let state = if peer.behind { "behind" } else { "connected" };
            table.row(&[&pool.name, &peer.peer, &peer.name, &peer.pid, &state]);
        }
    }
    print(&table.layout()).map(|()| 0)
}
