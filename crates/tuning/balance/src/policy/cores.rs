//! The core of its node that each active vCPU has.

use super::board::Board;
use crate::moves::{Place, Why};
use std::collections::HashMap;

/// Seconds for which vCPUs go on sharing the cores of their node when there are enough again: the next one
/// that becomes active does not have all of them moved.
const LINGER: f64 = 1.0;
/// Use of a core by others from which on a vCPU that waits there leaves it.
const BUSY: f64 = 0.6;
/// Use of a core by others up to which a vCPU may come for that.
const QUIET: f64 = 0.3;
/// Share of its time that a vCPU waits before it leaves a core for others' sake.
const WAITS: f64 = 0.2;

/// Gives each active vCPU a core of its node; where they are too many, they share all of them, and the
/// kernel's scheduler lets none be idle.
pub fn assign(board: &mut Board<'_>) {
    for node in 0..board.cores.len() {
        let items: Vec<_> =
            (0..board.items.len()).filter(|item| board.items[*item].home == Some(node)).collect();
        let clock = board.history.clock;
        if items.len() > board.cores[node].len() {
            board.history.shared_until[node] = clock + LINGER;
        }
        match board.history.shares(node) {
            true => share(board, node, &items),
            false => give_out(board, node, &items),
        }
    }
}

fn share(board: &mut Board<'_>, node: usize, items: &[usize]) {
    for item in items {
        let item = &mut board.items[*item];
        if !item.stays {
            item.place = Place::Node(node);
            item.why = item.why.or(Some(Why::Shares));
        }
    }
}

/// The cores of a node while they are given out.
struct Cores {
    /// The vCPU of each core that is given out.
    taken: HashMap<usize, usize>,
}

fn give_out(board: &mut Board<'_>, node: usize, items: &[usize]) {
    let mut cores = Cores { taken: HashMap::new() };
    // What must stay, then what is settled, then what runs on a free core, then the rest.
    for item in items.iter().filter(|item| board.items[**item].stays) {
        if let Some(core) = board.items[*item].core {
            cores.taken.insert(core, *item);
        }
    }
    let mut rest: Vec<_> = items.iter().copied().filter(|item| !board.items[*item].stays).collect();
    rest.retain(|item| match board.items[*item].before {
        Place::Core(core) => !keep(board, &mut cores, node, *item, core),
        _ => true,
    });
    rest.retain(|item| match board.items[*item].core {
        Some(core) => !keep(board, &mut cores, node, *item, core),
        None => true,
    });
    for item in rest {
        match choose(board, &cores, node, item) {
            Some(core) if board.displace(item) => take(board, &mut cores, item, core, Why::Settles),
            // The kernel's scheduler finds it one meanwhile.
            _ => board.items[item].place = Place::Node(node),
        }
    }
    avoid_others(board, &mut cores, node, items);
}

/// Lets a vCPU have a core of its node, if nobody has it.
fn keep(board: &mut Board<'_>, cores: &mut Cores, node: usize, item: usize, core: usize) -> bool {
    let is_free = board.topology.cores[core].node == node && !cores.taken.contains_key(&core);
    if is_free {
        take(board, cores, item, core, Why::Settles);
    }
    is_free
}

fn take(board: &mut Board<'_>, cores: &mut Cores, item: usize, core: usize, why: Why) {
    cores.taken.insert(core, item);
    let item = &mut board.items[item];
    item.place = Place::Core(core);
    item.why = item.why.or(Some(if item.before == Place::Anywhere { Why::Active } else { why }));
}

/// The best free core: not one that others use, then under the cache where most of its machine is, then under
/// the one with most room.
fn choose(board: &Board<'_>, cores: &Cores, node: usize, item: usize) -> Option<usize> {
    let machine = board.items[item].index.machine;
    let mut mates: HashMap<usize, (usize, usize)> = HashMap::new();
    for (core, other) in &cores.taken {
        let (own, all) = mates.entry(board.topology.cores[*core].cache).or_default();
        *own += usize::from(board.items[*other].index.machine == machine);
        *all += 1;
    }
    let free = board.cores[node].iter().copied().filter(|core| !cores.taken.contains_key(core));
    free.min_by_key(|core| {
        let (own, all) = mates.get(&board.topology.cores[*core].cache).copied().unwrap_or_default();
        (board.history.others[*core] >= BUSY, usize::MAX - own, all, *core)
    })
}

/// Moves vCPUs that wait for others than vCPUs to quiet cores.
fn avoid_others(board: &mut Board<'_>, cores: &mut Cores, node: usize, items: &[usize]) {
    for item in items.iter().copied() {
        let Place::Core(core) = board.items[item].place else { continue };
        let suffers = board.items[item].wait >= WAITS && board.history.others[core] >= BUSY;
        if !suffers || board.items[item].stays || !board.may_gain(item, board.items[item].wait) {
            continue;
        }
        let quiet = |core: &usize| board.history.others[*core] <= QUIET;
        if let Some(free) = choose(board, cores, node, item).filter(quiet) {
            if board.displace(item) {
                cores.taken.remove(&core);
                board.items[item].why = Some(Why::Others);
                take(board, cores, item, free, Why::Others);
            }
        }
    }
}
