//! The network between a cluster's machines: the first machine is wired to each of the others. A wire is a pair of
//! sockets, an end in each hypervisor process. In a machine its wires meet in a hub, so that they can be replaced when
//! the machine at the other end is started anew.

use crate::error::{Explain, Result};
use crate::state::machine::{state, MachineState};
use crate::state::record::{Machine, Record};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// A wire's end.
pub struct Wire {
    /// The index of the machine at the other end.
    pub to: u32,
    /// A stream socket.
    pub socket: OwnedFd,
}

/// The machine that is wired to all others.
const FIRST: u32 = 0;

/// The wires of each of so many machines.
pub fn all(machines: u32) -> Result<Vec<Vec<Wire>>> {
    let mut first = Vec::new();
    let mut others = Vec::new();
    for index in FIRST + 1..machines {
        let (one, other) = pair()?;
        first.push(Wire {
            to: index,
            socket: one,
        });
        others.push(vec![Wire {
            to: FIRST,
            socket: other,
        }]);
    }
    others.insert(0, first);
    Ok(others)
}

/// The machines that run and that one of this index is wired to.
pub fn neighbours(record: &Record, index: u32) -> impl Iterator<Item = &Machine> {
    let all = record.machines.iter();
    all.filter(move |other| {
        let are_neighbours = (other.index == FIRST) != (index == FIRST);
        are_neighbours && state(record, other) == MachineState::Running
    })
}

/// A new wire's two ends.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = UnixStream::pair().explain(|| "could not make a pair of sockets".into())?;
    Ok((pair.0.into(), pair.1.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_wired_to_all_others() {
        let ends: Vec<Vec<u32>> = all(3)
            .unwrap()
            .iter()
            .map(|wires| wires.iter().map(|wire| wire.to).collect())
            .collect();
        assert_eq!(ends, [vec![1, 2], vec![0], vec![0]]);
        assert!(all(1).unwrap()[0].is_empty());
    }
}
