//! The command `vshmem top`: pools, kernels, IPC objects with their traffic, and waiting threads, live.

mod frame;
mod screen;
mod watch;
mod web;

use crate::complete::values;
use crate::output::{columns, print};
use clap::Args;
use frame::{Sort, View};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_base::document::Document;
use vshmem_base::{interrupt, Result};
use vshmem_inspect::sample::Sample;
use watch::Watch;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem top                               all your pools; q quits
  vshmem top --pool cluster.default --sort waiting
  vshmem top --once                        the traffic of one second, as text
  vshmem top --json --interval 5 | jq .pools[].rates
  vshmem top --web                         a page, whose address is printed

Keys: q quit; m, b, w, u, i sort by rate, bytes, waiting, last use, id; r reverses; t shows the threads that wait
instead of the IPC objects; arrows, page keys and Home scroll. If the output is not a terminal, each sample is
printed in full. No lock is taken, so programs are not delayed.")]
pub struct Top {
    /// Only this pool: a name, or a path with a slash
    #[arg(long, short, value_name = "POOL", env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Seconds between samples, at least 0.1
    #[arg(long, short = 'n', default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub interval: f64,
    /// One sample, after one interval
    #[arg(long, short = '1')]
    pub once: bool,
    /// A line of JSON for each sample
    #[arg(long)]
    pub json: bool,
    /// Serve a page for a browser of this host at an address of the loopback interface: IP:PORT, or a port
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "0", conflicts_with_all = ["json", "once"])]
    pub web: Option<String>,
    /// How IPC objects are sorted
    #[arg(long, short, value_enum, default_value_t = Sort::Rate)]
    pub sort: Sort,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let good = number.filter(|seconds| (0.1..=3600.0).contains(seconds));
    good.ok_or_else(|| "an interval is a number of seconds from 0.1 to 3600".into())
}

/// One line of `--json`.
#[derive(Serialize, JsonSchema)]
pub struct Line<'a> {
    /// Seconds since the sample before.
    interval: f64,
    /// The pools.
    pools: &'a [Sample],
}

/// Runs until the user stops it.
pub fn top(top: &Top) -> Result<u8> {
    let mut watch = Watch::new(top.pool.clone());
    // A pool that was named must be usable before anything is shown.
    watch.sample()?;
    let interval = Duration::from_secs_f64(top.interval.clamp(0.1, 3600.0));
    if let Some(address) = &top.web {
        return web::serve(watch, address, interval);
    }
    let mut view = View::new(top.sort);
    let is_simple = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if !top.json && !top.once && !is_simple && io::stdout().is_terminal() {
        return screen::run(&mut watch, &mut view, interval);
    }
    interrupt::watch();
    loop {
        let due = Instant::now() + interval;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if let Some(signal) = interrupt::signal() {
                return Ok(128u8.saturating_add(signal as u8));
            }
            sleep(left.min(Duration::from_millis(100)));
        }
        watch.sample()?;
        let text = if top.json {
            let pools = &watch.samples;
            let interval = interval.as_secs_f64();
            Document::line(Line { interval, pools })
        } else {
            format!("{}\n", frame::text(&view, &watch.samples, columns()))
        };
        if !print_or_end(&text)? || top.once {
            return Ok(0);
        }
    }
}

/// Prints text; false if no process reads the output any more.
fn print_or_end(text: &str) -> Result<bool> {
    print(text)?;
    let mut out = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: one structure, which lives across the call.
    unsafe { libc::poll(&mut out, 1, 0) };
    Ok(out.revents & (libc::POLLERR | libc::POLLHUP) == 0)
}
