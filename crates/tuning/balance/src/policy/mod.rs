//! NUMA-first at run time: a pure function from an observation, and from what it remembers of earlier ones,
//! to moves.
//!
//! 1. Each active vCPU has a core to itself while there is one, wherever that is: none waits, and none shares
//!    a core with another as its SMT sibling, to stay near its memory.
//! 2. Of the cores that are free, it gets one near its memory. Idle vCPUs hold none.
//! 3. Where all cores are taken, nodes are filled equally, weighed by how far memory is; idle vCPUs wake up
//!    near their memory.
//! 4. Memory follows vCPUs that can't come to it, where that pays within [`Settings::horizon`].
//!
//! Moves for 2 and 3 must have paid for the move before: a vCPU stays as long as what it gains takes to make
//! up for its cold caches. So whatever machines do, at most half of the gain is lost on moves.

mod board;
mod cores;
mod history;
mod memory;
mod nodes;
mod settings;

pub use history::History;
pub use settings::Settings;

use crate::moves::{Migration, Note, Pin};
use crate::observation::Observation;
use board::Board;
use vshmem_place::topology::Topology;

/// A decision.
#[derive(Debug, Default)]
pub struct Decision {
    /// vCPUs that may run elsewhere from now on.
    pub pins: Vec<Pin>,
    /// Memory that moves.
    pub migrations: Vec<Migration>,
    /// Moves that would help and can't be made.
    pub notes: Vec<Note>,
    /// The history, for the next decision.
    pub history: History,
}

/// Decides on moves.
pub fn decide(topology: &Topology, settings: &Settings, seen: &Observation, history: History) -> Decision {
    let history = history.after(topology, settings, seen);
    let mut board = Board::new(topology, settings, seen, history);
    nodes::assign(&mut board);
    cores::assign(&mut board);
    nodes::place_idle(&mut board);
    let (migrations, notes) = memory::follow(&mut board);
    let (pins, history) = board.finish();
    Decision { pins, migrations, notes, history }
}
