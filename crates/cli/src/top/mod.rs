//! The command `vshmem top`: pools, kernels, IPC objects with their traffic, and waiting threads, live.

mod frame;
mod screen;
mod watch;

use crate::args;
use crate::output::print;
use frame::View;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_base::document::Document;
use vshmem_base::{interrupt, Result};
use vshmem_inspect::sample::Sample;
use watch::Watch;

/// One line of `--json`.
#[derive(Serialize, JsonSchema)]
pub struct Line<'a> {
    /// Seconds since the sample before.
    interval: f64,
    /// The pools.
    pools: &'a [Sample],
}

/// Runs until the user stops it.
pub fn top(top: &args::Top) -> Result<u8> {
    let mut watch = Watch::new(top.pool.clone());
    let interval = Duration::from_secs_f64(top.interval.clamp(0.1, 3600.0));
    let mut view = View::new(top.sort);
    // A pool that was named must be usable before anything is shown.
    watch.sample()?;
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
            format!("{}\n", frame::text(&view, &watch.samples))
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
