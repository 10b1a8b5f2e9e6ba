//! The network between a cluster's machines: a star, in which the first machine is linked to each of the
//! others. A link is a pair of sockets, one in each hypervisor process. A machine's links meet in a hub, so
//! that one can be replaced when its peer is restarted.

use crate::state::machine::{state, MachineState};
use crate::state::record::{Machine, Record};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use vshmem_base::error::{Explain, Result};

/// One end of a link.
pub struct Link {
    /// The index of the machine at the other end.
    pub peer: u32,
    /// A stream socket.
    pub socket: OwnedFd,
}

/// The centre of the star.
const FIRST: u32 = 0;

/// The links of each machine.
pub fn star(machines: u32) -> Result<Vec<Vec<Link>>> {
    let mut first = Vec::new();
    let mut others = Vec::new();
    for index in FIRST + 1..machines {
        let (one, other) = socket_pair()?;
        first.push(Link { peer: index, socket: one });
        others.push(vec![Link { peer: FIRST, socket: other }]);
    }
    others.insert(0, first);
    Ok(others)
}

/// The running machines that the machine of this index is linked to.
pub fn neighbours(record: &Record, index: u32) -> impl Iterator<Item = &Machine> {
    let all = record.machines.iter();
    all.filter(move |other| {
        let are_neighbours = (other.index == FIRST) != (index == FIRST);
        are_neighbours && state(record, other) == MachineState::Running
    })
}

/// Both ends of a new link.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = UnixStream::pair().explain(|| "could not make a pair of sockets".into())?;
    Ok((pair.0.into(), pair.1.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_machine_is_linked_to_all_others() {
        let ends: Vec<Vec<u32>> =
            star(3).unwrap().iter().map(|links| links.iter().map(|link| link.peer).collect()).collect();
        assert_eq!(ends, [vec![1, 2], vec![0], vec![0]]);
        assert!(star(1).unwrap()[0].is_empty());
    }
}
