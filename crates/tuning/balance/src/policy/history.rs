//! The policy's memory of earlier observations and decisions.

use super::settings::Settings;
use crate::moves::Place;
use crate::observation::{Observation, Vcpu};
use std::collections::HashMap;
use vshmem_place::topology::Topology;

/// Seconds over which the place of a machine's vCPUs is averaged: memory follows only what lasts.
const RESIDENCE_TIME: f64 = 5.0;
/// vCPUs by which that average may differ from what is seen now and is set to it: it would come ever closer
/// else, and memory that hardly pays would follow after any time.
const CLOSE_ENOUGH: f64 = 0.25;
/// Seconds over which the use of cores by others is averaged.
const OTHERS_TIME: f64 = 2.0;

/// The policy's memory of earlier observations and decisions.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Seconds of all observations.
    pub(super) clock: f64,
    pub(super) vcpus: HashMap<u64, Track>,
    pub(super) machines: HashMap<u64, Residence>,
    /// Use of each core by others, averaged.
    pub(super) others: Vec<f64>,
    /// The time until which each node's vCPUs share its cores.
    pub(super) shared_until: Vec<f64>,
}

/// The history of a vCPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    pub active: bool,
    /// The place where it may run.
    pub place: Place,
    /// The time at which it was last displaced.
    pub moved: f64,
}

/// The history of a machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Residence {
    /// Active vCPUs on each node, averaged.
    pub vcpus: Vec<f64>,
    /// The nodes from and to which its memory should go, and the time since which it should.
    pub way: Option<(usize, usize, f64)>,
}

impl History {
    /// The place where a vCPU may run, as far as was decided.
    pub fn place(&self, key: u64) -> Place {
        self.vcpus.get(&key).map(|track| track.place).unwrap_or_default()
    }

    /// Whether a node's vCPUs share its cores.
    pub(super) fn shares(&self, node: usize) -> bool {
        self.shared_until[node] > self.clock
    }

    /// The history with what is seen now; of what is gone nothing stays.
    pub(super) fn after(mut self, topology: &Topology, settings: &Settings, seen: &Observation) -> History {
        self.clock += seen.seconds;
        self.others.resize(topology.cores.len(), 0.0);
        self.shared_until.resize(topology.nodes.len(), 0.0);
        for (average, now) in self.others.iter_mut().zip(&seen.others) {
            *average += (now.clamp(0.0, 1.0) - *average) * part(seen.seconds, OTHERS_TIME);
        }
        let mut vcpus = std::mem::take(&mut self.vcpus);
        let mut machines = std::mem::take(&mut self.machines);
        for machine in &seen.machines {
            let mut here = vec![0.0; topology.nodes.len()];
            for vcpu in &machine.vcpus {
                let mut track = vcpus.remove(&vcpu.key).unwrap_or_default();
                track.active = is_active(settings, track.active, vcpu);
                if let Some(core) = vcpu.core.filter(|_| track.active) {
                    here[topology.cores[core].node] += vcpu.run + vcpu.wait;
                }
                self.vcpus.insert(vcpu.key, track);
            }
            let mut residence = machines.remove(&machine.key).unwrap_or_default();
            residence.vcpus.resize(topology.nodes.len(), 0.0);
            for (average, now) in residence.vcpus.iter_mut().zip(here) {
                *average += (now - *average) * part(seen.seconds, RESIDENCE_TIME);
                if (now - *average).abs() < CLOSE_ENOUGH {
                    *average = now;
                }
            }
            self.machines.insert(machine.key, residence);
        }
        self
    }
}

/// The weight of the last `seconds` in an average over `whole` seconds.
fn part(seconds: f64, whole: f64) -> f64 {
    1.0 - (-seconds / whole).exp()
}

fn is_active(settings: &Settings, was: bool, vcpu: &Vcpu) -> bool {
    let wants = vcpu.run + vcpu.wait;
    wants >= if was { settings.idle_below } else { settings.active_from }
}
