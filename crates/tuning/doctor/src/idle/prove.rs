//! The daemon's gain here: wake-ups as processors idle now, with the kernel's own polling (haltpoll), and
//! with the daemon's processes, by turns.

use super::spinner::Spinner;
use super::{admitted, Source};
use crate::checks::by_id;
use crate::cpus::Cpus;
use crate::examine::examine_one;
use crate::finding::Change;
use crate::guest::{counts_steal, polls};
use crate::instruments::energy::{self, Energy};
use crate::instruments::wake::{self, median, Wake};
use crate::instruments::Instruments;
use crate::look::{Hypervisor, Look};
use crate::remedy::{fix, undo, Done};
use crate::saved::Saved;
use crate::system::{System, Unseen};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::signal_descriptor::{Signals, TERMINATION};

/// Turns of each contender.
const TURNS: usize = 6;
/// Time before a turn is measured, in which its settings come into force.
const SETTLE: Duration = Duration::from_millis(50);
/// The check that knows haltpoll.
const CHECK: &str = "idle-exits";
const LIMIT: &str = "sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// The measurements of all contenders.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Proof {
    /// The source by which the daemon would know here that others want a core.
    pub source: Source,
    /// Turns of each contender.
    pub turns: usize,
    /// The ways to idle, and the times of wake-ups; the first one is the way of now.
    pub contenders: Vec<Contender>,
    /// The measurements that could not be made.
    pub missing: Vec<Missing>,
}

/// A way to idle.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// Microseconds from one processor to another that idles, and back; null: there is one processor.
    pub there_and_back: Option<Spread>,
    /// Microseconds by which a sleep of a millisecond is late.
    pub late: Spread,
    /// Pieces of work a second, of a thread that wants a processor all the time.
    pub work: Spread,
    /// Watts of the processors' packages meanwhile; null: this kernel can't tell.
    pub watts: Option<f64>,
}

/// The median of all turns, and their limits.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// A measurement that could not be made.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Missing {
    /// Its name.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// A contender, and its turns.
struct Way {
    name: String,
    changes: Vec<(&'static str, Change)>,
    daemon: bool,
    turns: Vec<Wake>,
    /// Joules, and seconds.
    energy: (f64, f64),
    /// The reason why it has no more turns.
    refused: Option<String>,
}

impl Way {
    fn new(name: &str, changes: Vec<(&'static str, Change)>, daemon: bool) -> Way {
        Way { name: name.into(), changes, daemon, turns: Vec::new(), energy: (0.0, 0.0), refused: None }
    }
}

/// Measures. Changes are in `file` before they are made, and undone after each turn. This process must have
/// one thread.
///
/// # Errors
/// No processor leaves a machine here when it idles; or it can't be measured, or was interrupted.
pub fn prove(system: &System, instruments: &dyn Instruments, file: &Path) -> Result<Proof> {
    let saved = Saved::default();
    let mut look = Look::new(system, instruments, &saved);
    let (mut ways, mut missing) = ways(&mut look)?;
    let steal = counts_steal(&mut look).map_err(unseen)?;
    let source = if steal { Source::Steal } else { Source::HoldUps };
    let signals = Signals::watch(&TERMINATION).explain(|| "could not wait for signals".into())?;
    let cpus = admitted()?;
    let spinners = cpus.iter().map(|cpu| Spinner::start(*cpu)).collect::<std::io::Result<Vec<_>>>();
    let mut spinners = spinners.explain(|| "could not start processes".into())?;
    let mut watts = energy::read(system);
    for turn in 0..TURNS {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        // The next one the other way round, so that a machine that gets slower meets all alike.
        if turn % 2 == 1 {
            order.reverse();
        }
        for place in order {
            if signals.next().is_some() {
                return Err(Error::new("interrupted; what was changed has been undone").code(130));
            }
            let way = &mut ways[place];
            if way.refused.is_none() {
                take_turn(system, file, way, &cpus, &mut spinners, &mut watts)?;
            }
        }
    }
    if let Some(why) = no_watts(watts) {
        missing.push(Missing { what: "watts".into(), why });
    }
    let mut contenders = Vec::new();
    for way in ways {
        match way.refused {
            Some(why) => missing.push(Missing { what: way.name, why }),
            None => contenders.push(summary(way)),
        }
    }
    Ok(Proof { source, turns: TURNS, contenders, missing })
}

fn unseen(unseen: Unseen) -> Error {
    error!("it can't be told how processors idle here: {unseen}")
}

/// The contenders; the first one is the way in which processors idle now.
fn ways(look: &mut Look<'_>) -> Result<(Vec<Way>, Vec<Missing>)> {
    if look.hypervisor().map_err(unseen)? == Some(Hypervisor::Nothing) {
        return Err(error!(
            "this kernel runs on the hardware, where a processor that idles leaves no machine"
        ));
    }
    const IDLE: &str = "idle processes";
    match polls(look).map_err(unseen)?.as_deref() {
        None => {
            let check = by_id(CHECK).expect("it is in the table");
            let found = examine_one(check, look.system, look.instruments, look.saved);
            let mut ways = vec![Way::new("as it is", Vec::new(), false), Way::new(IDLE, Vec::new(), true)];
            let mut missing = Vec::new();
            match found.changes.is_empty() {
                true => missing.push(Missing { what: "haltpoll".into(), why: found.why }),
                false => {
                    let changes = found.changes.into_iter().map(|change| (CHECK, change)).collect();
                    ways.insert(1, Way::new("haltpoll", changes, false));
                }
            }
            Ok((ways, missing))
        }
        // The daemon takes the place of that polling.
        Some("haltpoll") => {
            let off = || Ok(vec![(CHECK, look.change(LIMIT, "0").map_err(unseen)?)]);
            let ways = vec![
                Way::new("haltpoll, as it is", Vec::new(), false),
                Way::new("halting at once", off()?, false),
                Way::new(IDLE, off()?, true),
            ];
            Ok((ways, Vec::new()))
        }
        Some(how) => Err(error!("idle processors poll always ({how}): there is nothing to compare")),
    }
}

/// A turn, for which its settings are in force.
fn take_turn(
    system: &System,
    file: &Path,
    way: &mut Way,
    cpus: &Cpus,
    spinners: &mut [Spinner],
    watts: &mut std::result::Result<Option<Energy>, Unseen>,
) -> Result<()> {
    let done = if way.changes.is_empty() { Vec::new() } else { fix(system, file, &way.changes)? };
    way.refused = refusal(done);
    let spin = |spinners: &mut [Spinner], spins: bool| spinners.iter_mut().try_for_each(|it| it.set(spins));
    let measured = (|| {
        if way.refused.is_some() {
            return Ok(None);
        }
        spin(spinners, way.daemon)?;
        std::thread::sleep(SETTLE);
        if let Some(why) = spinners.iter_mut().find_map(Spinner::ended) {
            return Err(std::io::Error::other(why));
        }
        let (before, begun) = (energy::read(system), Instant::now());
        let wake = wake::measure(cpus)?;
        *watts = energy::read(system);
        if let (Ok(Some(before)), Ok(Some(after))) = (before, &*watts) {
            way.energy.0 += after.since(&before);
            way.energy.1 += begun.elapsed().as_secs_f64();
        }
        Ok(Some(wake))
    })();
    let _ = spin(spinners, false);
    // Also if the turn has failed.
    let undone = if way.changes.is_empty() { Vec::new() } else { undo(system, file)? };
    way.turns.extend(measured.explain(|| format!("could not measure \"{}\"", way.name))?);
    match refusal(undone) {
        Some(why) => Err(Error::new(format!("what \"{}\" has changed could not be undone: {why}", way.name))
            .hint("Try again: vshmem doctor --undo.")),
        None => Ok(()),
    }
}

fn refusal(done: Vec<Done>) -> Option<String> {
    done.into_iter().find_map(|it| match it {
        Done::No(why) => Some(why),
        _ => None,
    })
}

fn no_watts(watts: std::result::Result<Option<Energy>, Unseen>) -> Option<String> {
    match watts {
        Ok(Some(_)) => None,
        Ok(None) => Some(
            "this kernel counts no energy (RAPL), which only hardware shows: read them on the host".into(),
        ),
        Err(unseen) => Some(unseen.to_string()),
    }
}

fn summary(way: Way) -> Contender {
    let spread = |of: &dyn Fn(&Wake) -> f64| Spread::of(way.turns.iter().map(of).collect());
    let there_and_back = way.turns.iter().map(|turn| turn.there_and_back).collect::<Option<Vec<f64>>>();
    let (joules, seconds) = way.energy;
    Contender {
        there_and_back: there_and_back.map(Spread::of),
        late: spread(&|turn| turn.late),
        work: spread(&|turn| turn.work),
        watts: (seconds > 0.0).then(|| joules / seconds),
        name: way.name,
    }
}

impl Spread {
    fn of(values: Vec<f64>) -> Spread {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        Spread { median: median(values), least, most }
    }
}
