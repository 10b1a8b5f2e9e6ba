//! `vshmem doctor --daemon idle`: keeps virtual processors from idling, so that they need not be woken
//! through the hypervisor; only where nobody else wants the cores (Song, Chen and Zang 2011, 3.2).
//!
//! | module | subject |
//! | --- | --- |
//! | `place` | the kernels in which it may run, and the source that shows that a core is shared |
//! | `policy` | the decision to keep a processor busy: a pure function |
//! | `spinner` | the process that does so |
//! | `meter` | the part of a core that others took |
//! | `prove` | its gain: wake-ups before, with haltpoll, and with the daemon |

mod meter;
mod place;
mod policy;
mod prove;
mod spinner;

pub use place::Source;
pub use prove::{prove, Contender, Missing, Proof, Spread};

use crate::cpus::{self, Cpus};
use crate::instruments::Instruments;
use crate::system::System;
use meter::{Meter, Taken};
use policy::{Reason, Settings, State};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use schemars::JsonSchema;
use sd_notify::NotifyState;
use serde::Serialize;
use spinner::Spinner;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::signal_descriptor::{Signals, TERMINATION};

/// The time between two decisions. Steal is counted in hundredths of a second, so a shorter one would see
/// little of it.
const STEP: Duration = Duration::from_secs(1);

/// The daemon's status.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Status {
    /// Seconds since the daemon was started.
    pub seconds: f64,
    /// The source of the knowledge that others want a core.
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
    /// The reason why it is kept from idling, or is not.
    pub why: String,
}

/// Keeps processors from idling until a signal asks it to end. `say` is told the status at the beginning,
/// and when it changes. This process must have one thread.
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

/// Tells systemd, if it has started this. A failure does no harm.
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

/// The processors, with the state of each.
struct Daemon<'a> {
    source: Source,
    settings: Settings,
    meter: Meter<'a>,
    begun: Instant,
    candidates: BTreeMap<usize, Candidate>,
}

/// A processor that may be kept from idling.
struct Candidate {
    state: State,
    spinner: Option<Spinner>,
    taken: Option<f64>,
    why: String,
}

impl<'a> Daemon<'a> {
    fn new(system: &'a System, source: Source) -> Daemon<'a> {
        let settings = Settings::default();
        let meter = Meter::new(system, source);
        Daemon { source, settings, meter, begun: Instant::now(), candidates: BTreeMap::new() }
    }

    /// Decides anew; true if anything is done otherwise than before.
    fn step(&mut self) -> Result<bool> {
        let taken = self.look();
        let mut changed = self.decide(&taken);
        changed |= self.follow_processors()?;
        changed |= self.obey();
        Ok(changed)
    }

    /// The parts of cores that others took since the last look.
    fn look(&mut self) -> Taken {
        let cpus: Cpus = self.candidates.keys().copied().collect();
        let spent =
            self.candidates.iter().filter_map(|(cpu, it)| Some((*cpu, it.spinner.as_ref()?.spent()?)));
        self.meter.look(&cpus, spent.collect())
    }

    fn decide(&mut self, taken: &Taken) -> bool {
        let mut changed = false;
        for (cpu, candidate) in &mut self.candidates {
            candidate.taken = taken.get(cpu).copied();
            let ended = candidate.spinner.as_mut().and_then(Spinner::ended);
            // A process that has ended is one that can't tell.
            let seen = if ended.is_some() { None } else { candidate.taken };
            let (state, why) = candidate.state.step(seen, &self.settings);
            candidate.state = state;
            if ended.is_some() {
                candidate.spinner = None;
            }
            if let Some(why) = why {
                candidate.why = reason(why, &state, self.source, ended);
                changed = true;
            }
        }
        changed
    }

    /// Follows processors that come and go, also by this process's control group.
    fn follow_processors(&mut self) -> Result<bool> {
        let now = admitted()?;
        let before = self.candidates.len();
        self.candidates.retain(|cpu, _| now.contains(cpu));
        let mut changed = self.candidates.len() != before;
        for cpu in now {
            self.candidates.entry(cpu).or_insert_with(|| {
                changed = true;
                let (state, why) = (State::new(&self.settings), "nobody is known to want its core".into());
                Candidate { state, spinner: None, taken: None, why }
            });
        }
        Ok(changed)
    }

    /// Lets processes spin as was decided; true if one could not be started, so that its processor rests.
    fn obey(&mut self) -> bool {
        let (mut refused, mut started) = (false, false);
        for (cpu, candidate) in &mut self.candidates {
            let spins = candidate.state.spins();
            if spins && candidate.spinner.is_none() {
                match Spinner::start(*cpu) {
                    Ok(spinner) => (candidate.spinner, started) = (Some(spinner), true),
                    Err(why) => {
                        candidate.state = candidate.state.step(None, &self.settings).0;
                        candidate.why =
                            reason(Reason::Unseen, &candidate.state, self.source, Some(&why.to_string()));
                        refused = true;
                    }
                }
            }
            // One that has ended is noticed in the next step.
            let _ = candidate.spinner.as_mut().map(|spinner| spinner.set(spins));
        }
        if started {
            // What comes before their first step is no part of it.
            self.look();
        }
        refused
    }

    fn status(&self) -> Status {
        let processors = self.candidates.iter().map(|(cpu, candidate)| Processor {
            processor: *cpu,
            spins: candidate.state.spins(),
            taken: candidate.taken,
            why: candidate.why.clone(),
        });
        let seconds = (self.begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        Status { seconds, source: self.source, processors: processors.collect() }
    }

    /// The status in a line.
    fn summary(&self) -> String {
        let (spin, all) =
            (self.candidates.values().filter(|it| it.state.spins()).count(), self.candidates.len());
        let rests = self.candidates.iter().filter(|(_, it)| !it.state.spins());
        let why: Vec<String> = rests.map(|(cpu, it)| format!("; processor {cpu}: {}", it.why)).collect();
        format!("{spin} of {all} processors are kept from idling{}", why.concat())
    }
}

/// The processors that this process may use.
fn admitted() -> Result<Cpus> {
    cpus::admitted().explain(|| "could not ask for this process's processors".into())
}

fn reason(why: Reason, state: &State, source: Source, ended: Option<&str>) -> String {
    let rest = match state {
        State::Rests { left, .. } => format!("; another try in {left} s"),
        State::Spins { .. } => String::new(),
    };
    match (why, source, ended) {
        (Reason::Taken(part), Source::Steal, _) => {
            format!("the hypervisor took {part:.0} % of a second{rest}")
        }
        (Reason::Taken(part), Source::HoldUps, _) => {
            format!("something outside took {part:.0} % of a second{rest}")
        }
        (Reason::Unseen, _, Some(ended)) => format!("{ended}{rest}"),
        (Reason::Unseen, ..) => format!("it can't be told whether others want its core{rest}"),
        (Reason::Trial, ..) => "its rest is over: another try".into(),
    }
}
