//! Rules that decide where vCPUs may run.

use super::esxi::{Esxi, Orders};
use vshmem_balance::observation::Observation;
use vshmem_balance::policy::{decide, History, Settings};
use vshmem_place::topology::Topology;

/// A rule that is asked every so often.
pub enum Rule {
    /// None: vCPUs stay where they may run at first.
    KernelAlone,
    /// The policy of this crate.
    NumaFirst {
        /// Seconds between decisions.
        interval: f64,
        /// It is a part of the scheduler: it sees who can run at this moment.
        inside: bool,
        /// Its constants.
        settings: Settings,
        /// The history that it remembers.
        history: History,
    },
    /// A rule like ESXi's.
    Esxi(Esxi),
}

impl Rule {
    /// The policy, asked at this interval.
    pub fn numa_first(interval: f64, settings: Settings) -> Rule {
        Rule::NumaFirst { interval, inside: false, settings, history: History::default() }
    }

    /// The policy as a part of the scheduler, which has steps this long.
    pub fn scheduler(step: f64, settings: Settings) -> Rule {
        Rule::NumaFirst { interval: step, inside: true, settings, history: History::default() }
    }

    /// A rule like ESXi's, which moves memory at this rate.
    pub fn esxi(memory_rate: f64) -> Rule {
        Rule::Esxi(Esxi::new(memory_rate))
    }

    /// Seconds between decisions.
    pub fn interval(&self) -> f64 {
        match self {
            Rule::KernelAlone => f64::INFINITY,
            Rule::NumaFirst { interval, .. } => *interval,
            Rule::Esxi(_) => super::esxi::INTERVAL,
        }
    }

    /// Whether it sees who can run at the moment of its decision, and not who ran before.
    pub fn sees_at_once(&self) -> bool {
        matches!(self, Rule::NumaFirst { inside: true, .. })
    }

    /// Decides.
    pub fn decide(&mut self, topology: &Topology, seen: &Observation) -> Orders {
        match self {
            Rule::KernelAlone => Orders::default(),
            Rule::NumaFirst { settings, history, .. } => {
                let decision = decide(topology, settings, seen, std::mem::take(history));
                *history = decision.history;
                (decision.pins.iter().map(|pin| (pin.index, pin.to)).collect(), decision.migrations)
            }
            Rule::Esxi(esxi) => esxi.decide(topology, seen),
        }
    }
}
