//! `vshmem doctor --daemon idle`: keeps virtual processors from idling, so that they need not be woken
//! through the hypervisor; only where nobody else wants the cores (Song, Chen and Zang 2011, 3.2).
//!
//! | module | subject |
//! | --- | --- |
//! | `place` | whether it may run here, and what shows that a core is shared |
//! | `policy` | when a processor is kept busy: a pure function |
//! | `spinner` | the process that does so |
//! | `meter` | what others took of a core |
//! | `prove` | what it gains: wake-ups before, with haltpoll, and with the daemon |

mod meter;
mod place;
mod policy;
mod prove;
mod spinner;

pub use place::{counts_steal, polls, Source};
pub use prove::{prove, Contender, Missing, Proof, Spread};

use crate::cpus::{self, Cpus};
use crate::instruments::Instruments;
use crate::system::System;
use meter::{Meter, Taken};
use policy::{Settings, State, Why};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use schemars::JsonSchema;
use sd_notify::NotifyState;
use serde::Serialize;
use spinner::Spinner;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::signal_descriptor::{Signals, TERMINATION};

/// The time between two decisions.
const STEP: Duration = Duration::from_secs(1);

/// How it stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Status {
    /// Seconds since the daemon was started.
    pub seconds: f64,
    /// What tells that others want a core.
    pub source: Source,
    /// The virtual processors that it may use.
    pub processors: Vec<Processor>,
}

/// A virtual processor.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Processor {
    /// Its number.
    pub processor: usize,
    /// It is kept from idling.
    pub spins: bool,
    /// The part of its core that others took in the last second, in percent; null: it can't be told.
    pub taken: Option<f64>,
    /// Why it is kept from idling, or is not.
    pub why: String,
}

/// Keeps processors from idling until a signal asks it to end. `say` is told how it stands at the beginning,
/// and when that changes. This process must have one thread.
///
/// # Errors
/// It would gain nothing here, or take from others what it must not (the message says which), or nobody could
/// tell; or there can't be processes of the kind.
pub fn run(
    system: &System,
    instruments: &dyn Instruments,
    say: &mut dyn FnMut(&Status) -> Result<()>,
) -> Result<()> {
    let source = place::place(system, instruments)?;
    let signals = Signals::watch(&TERMINATION).explain(|| "could not wait for signals".into())?;
    let mut daemon = Daemon::new(system, source);
    daemon.follow_processors()?;
    daemon.obey();
    say(&daemon.status())?;
    tell_service(&[NotifyState::Ready, NotifyState::Status(&daemon.summary())]);
    while !asked_to_end(&signals)? {
        if daemon.step()? {
            say(&daemon.status())?;
            tell_service(&[NotifyState::Status(&daemon.summary())]);
        }
    }
    tell_service(&[NotifyState::Stopping]);
    Ok(())
}

/// Tells systemd, if it has started this. Whoever does not listen need not.
fn tell_service(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}

/// Waits for a step, or for a signal that asks this process to end.
fn asked_to_end(signals: &Signals) -> Result<bool> {
    let due = Instant::now() + STEP;
    while let Some(left) = due.checked_duration_since(Instant::now()) {
        let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        let came = poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&left));
        match came {
            Ok(0) => (),
            Ok(_) if signals.next().is_some() => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(error!("could not wait: {e}")),
        }
    }
    Ok(false)
}

/// The processors, and what is remembered of each.
struct Daemon<'a> {
    source: Source,
    settings: Settings,
    meter: Meter<'a>,
    begun: Instant,
    kept: BTreeMap<usize, Kept>,
}

/// A processor that may be kept from idling.
struct Kept {
    state: State,
    spinner: Option<Spinner>,
    taken: Option<f64>,
    why: String,
}

impl<'a> Daemon<'a> {
    fn new(system: &'a System, source: Source) -> Daemon<'a> {
        let settings = Settings::default();
        let meter = Meter::new(system, source);
        Daemon { source, settings, meter, begun: Instant::now(), kept: BTreeMap::new() }
    }

    /// Decides anew; whether anything is done otherwise than before.
    fn step(&mut self) -> Result<bool> {
        let taken = self.look();
        let mut changed = self.decide(&taken);
        changed |= self.follow_processors()?;
        changed |= self.obey();
        Ok(changed)
    }

    /// What others took since the last look.
    fn look(&mut self) -> Taken {
        let cpus: Cpus = self.kept.keys().copied().collect();
        let spent = self.kept.iter().filter_map(|(cpu, it)| Some((*cpu, it.spinner.as_ref()?.spent()?)));
        self.meter.look(&cpus, spent.collect())
    }

    fn decide(&mut self, taken: &Taken) -> bool {
        let mut changed = false;
        for (cpu, kept) in &mut self.kept {
            kept.taken = taken.get(cpu).copied();
            let ended = kept.spinner.as_mut().and_then(Spinner::ended);
            // A process that has ended is one that can't tell.
            let seen = if ended.is_some() { None } else { kept.taken };
            let (state, why) = kept.state.step(seen, &self.settings);
            kept.state = state;
            if ended.is_some() {
                kept.spinner = None;
            }
            if let Some(why) = why {
                kept.why = reason(why, &state, self.source, ended);
                changed = true;
            }
        }
        changed
    }

    /// Follows processors that come and go, also by this process's control group.
    fn follow_processors(&mut self) -> Result<bool> {
        let now = admitted()?;
        let before = self.kept.len();
        self.kept.retain(|cpu, _| now.contains(cpu));
        let mut changed = self.kept.len() != before;
        for cpu in now {
            self.kept.entry(cpu).or_insert_with(|| {
                changed = true;
                let (state, why) = (State::new(&self.settings), "nobody is known to want its core".into());
                Kept { state, spinner: None, taken: None, why }
            });
        }
        Ok(changed)
    }

    /// Has processes spin as was decided; whether one could not be started, so that its processor rests.
    fn obey(&mut self) -> bool {
        let (mut refused, mut started) = (false, false);
        for (cpu, kept) in &mut self.kept {
            let spins = kept.state.spins();
            if spins && kept.spinner.is_none() {
                match Spinner::start(*cpu) {
                    Ok(spinner) => (kept.spinner, started) = (Some(spinner), true),
                    Err(why) => {
                        kept.state = kept.state.step(None, &self.settings).0;
                        kept.why = reason(Why::Unseen, &kept.state, self.source, Some(&why.to_string()));
                        refused = true;
                    }
                }
            }
            // One that has ended is noticed in the next step.
            let _ = kept.spinner.as_mut().map(|spinner| spinner.set(spins));
        }
        if started {
            // What comes before their first step is no part of it.
            self.look();
        }
        refused
    }

    fn status(&self) -> Status {
        let processors = self.kept.iter().map(|(cpu, kept)| Processor {
            processor: *cpu,
            spins: kept.state.spins(),
            taken: kept.taken,
            why: kept.why.clone(),
        });
        let seconds = (self.begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        Status { seconds, source: self.source, processors: processors.collect() }
    }

    /// How it stands, in a line.
    fn summary(&self) -> String {
        let (spin, all) = (self.kept.values().filter(|it| it.state.spins()).count(), self.kept.len());
        let rests = self.kept.iter().filter(|(_, it)| !it.state.spins());
        let why: Vec<String> = rests.map(|(cpu, it)| format!("; processor {cpu}: {}", it.why)).collect();
        format!("{spin} of {all} processors are kept from idling{}", why.concat())
    }
}

/// The processors that this process may use.
fn admitted() -> Result<Cpus> {
    cpus::admitted().explain(|| "could not ask for this process's processors".into())
}

fn reason(why: Why, state: &State, source: Source, ended: Option<&str>) -> String {
    let rest = match state {
        State::Rests { left, .. } => format!("; another try in {left} s"),
        State::Spins { .. } => String::new(),
    };
    match (why, source, ended) {
        (Why::Taken(part), Source::Steal, _) => format!("the hypervisor took {part:.0} % of a second{rest}"),
        (Why::Taken(part), Source::HoldUps, _) => {
            format!("something outside took {part:.0} % of a second{rest}")
        }
        (Why::Unseen, _, Some(ended)) => format!("{ended}{rest}"),
        (Why::Unseen, ..) => format!("it can't be told whether others want its core{rest}"),
        (Why::Trial, ..) => "its rest is over: another try".into(),
    }
}
