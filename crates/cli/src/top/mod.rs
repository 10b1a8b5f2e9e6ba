//! `vshmem top`: pools, kernels and constructs, what passes and who waits, as it goes.

mod frame;
mod screen;

use crate::json::line;
use crate::{args, print};
use frame::View;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_cluster::sample::{Sample, Watched};
use vshmem_cluster::view::{name_of, pools};
use vshmem_cluster::{interrupt, Result};

/// One line of `--json`.
#[derive(Serialize, JsonSchema)]
pub struct Line<'a> {
    /// Seconds since the sample before.
    interval: f64,
    /// The pools.
    pools: &'a [Sample],
}

/// Shows it until it is told to stop.
pub fn top(top: &args::Top) -> Result<u8> {
    let mut watch = Watch::new(top.pool.clone());
    let interval = Duration::from_secs_f64(top.interval.clamp(0.1, 3600.0));
    let mut view = View::new(top.sort);
    // An error in a pool that was named is one before anything is shown.
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
            line(Line { interval, pools })
        } else {
            format!("{}\n", frame::text(&view, &watch.samples))
        };
        if !print_or_end(&text)? || top.once {
            return Ok(0);
        }
    }
}

/// Prints; false if nobody reads any more.
fn print_or_end(text: &str) -> Result<bool> {
    print(text)?;
    let mut out = libc::pollfd {
        fd: libc::STDOUT_FILENO,
        events: 0,
        revents: 0,
    };
    // SAFETY: one structure, which lives across the call.
    unsafe { libc::poll(&mut out, 1, 0) };
    Ok(out.revents & (libc::POLLERR | libc::POLLHUP) == 0)
}

/// The pools that are looked at, and how they were.
pub struct Watch {
    only: Option<String>,
    open: Vec<Watched>,
    samples: Vec<Sample>,
}

impl Watch {
    fn new(only: Option<String>) -> Watch {
        Watch {
            only,
            open: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Looks at all pools that there are now.
    fn sample(&mut self) -> Result<()> {
        self.open.retain(|pool| !pool.is_gone());
        for found in pools(self.only.as_deref())? {
            let name = name_of(&found);
            if self.open.iter().any(|pool| pool.name() == name) {
                continue;
            }
            match Watched::open(&found) {
                Ok(pool) => self.open.push(pool),
                // It may have gone a moment ago, or come back.
                Err(error) if self.only.is_some() && self.samples.is_empty() => return Err(error),
                Err(_) => (),
            }
        }
        self.open.sort_by(|a, b| a.name().cmp(b.name()));
        let before = std::mem::take(&mut self.samples);
        for pool in &self.open {
            let mut sample = pool.sample();
            if let Some(before) = before.iter().find(|before| before.pool == sample.pool) {
                sample.compare(before);
            }
            self.samples.push(sample);
        }
        Ok(())
    }
}
