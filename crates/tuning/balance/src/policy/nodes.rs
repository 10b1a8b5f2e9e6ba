//! The node that each active vCPU is on.

use super::board::Board;
use crate::moves::{Place, Why};

/// Gives each active vCPU a node, as far as so many may be moved. vCPUs that wait come first.
pub fn assign(board: &mut Board<'_>) {
    relieve(board);
    settle(board);
    if !(0..board.cores.len()).any(|node| board.fits(node)) {
        level(board);
    }
    come_near(board);
    swap(board);
}

/// Lets idle vCPUs hold no core. Each wakes up where a core is idle, wherever that is; where the host has too
/// few for all, on the node of its memory.
pub fn place_idle(board: &mut Board<'_>) {
    let shares = |node: usize| board.cores[node].is_empty() || board.history.shares(node);
    let all_share = board.wanted() >= board.topology.cores.len() as f64 && (0..board.cores.len()).all(shares);
    for item in 0..board.items.len() {
        if !board.items[item].active && !board.items[item].stays {
            board.items[item].place = match all_share {
                true => Place::Node(board.nearest(item)),
                false => Place::Anywhere,
            };
        }
    }
}

/// Moves vCPUs from nodes that have too few cores for them to nodes that have some left: those first that
/// lose least.
fn relieve(board: &mut Board<'_>) {
    let movable = board.movable();
    for (from, items) in movable.iter().enumerate() {
        if !board.is_over(from) {
            continue;
        }
        let free: Vec<_> = (0..board.cores.len()).filter(|node| board.fits(*node)).collect();
        let mut ways: Vec<_> = items
            .iter()
            .flat_map(|item| {
                free.iter().map(|to| (board.cost(*item, *to) - board.cost(*item, from), *item, *to))
            })
            .collect();
        ways.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, item, to) in ways {
            if !board.is_over(from) {
                break;
            }
            if board.fits(to) && board.items[item].home == Some(from) && !board.go(item, to, Why::Waits) {
                break;
            }
        }
    }
}

/// Gives vCPUs that have become active a node.
fn settle(board: &mut Board<'_>) {
    for item in 0..board.items.len() {
        let it = &board.items[item];
        if it.active && !it.stays && it.home.is_none() {
            if let Some(node) = best(board, item) {
                board.go(item, node, Why::Active);
            }
        }
    }
}

/// The best node for a vCPU that has none: of those with a free core the nearest to its memory, else the one
/// where it is fastest. It is left where it runs if others are hardly better.
fn best(board: &Board<'_>, item: usize) -> Option<usize> {
    let (settings, here) = (board.settings, board.runs_on(item));
    let away = |node: usize| Some(node) != here;
    let nodes = || (0..board.cores.len()).filter(|node| !board.cores[*node].is_empty());
    let near = |node: &usize| {
        let cost = board.cost(item, *node) + 0.01 * board.fullness(*node, 0);
        cost + if away(*node) { settings.least_gain } else { 0.0 }
    };
    let fast = |node: &usize| {
        let slowness = board.slowness(item, *node, board.count[*node] + 1);
        // It has slept: its caches are hardly warmer there.
        slowness * if away(*node) { 1.0 + settings.stall * settings.least_gain } else { 1.0 }
    };
    let free = nodes().filter(|node| board.fits(*node)).min_by(|a, b| near(a).total_cmp(&near(b)));
    free.or_else(|| nodes().min_by(|a, b| fast(a).total_cmp(&fast(b))))
}

/// Fills nodes equally that are all full.
fn level(board: &mut Board<'_>) {
    let mut movable = board.movable();
    let with_cores: Vec<_> = (0..board.cores.len()).filter(|node| !board.cores[*node].is_empty()).collect();
    let by_fullness =
        |board: &Board<'_>, a: &usize, b: &usize| board.fullness(*a, 0).total_cmp(&board.fullness(*b, 0));
    while board.can_displace(1) {
        let full = with_cores.iter().copied().filter(|node| !movable[*node].is_empty());
        let from = full.max_by(|a, b| by_fullness(board, a, b));
        let to = with_cores.iter().copied().min_by(|a, b| by_fullness(board, a, b));
        let (Some(from), Some(to)) = (from, to) else { return };
        if from == to {
            return;
        }
        let ratio = |item: usize| {
            let now = board.slowness(item, from, board.count[from]);
            board.slowness(item, to, board.count[to] + 1) / now
        };
        let ways = movable[from].iter().enumerate().map(|(at, item)| (at, *item, ratio(*item)));
        let pays = |(_, item, ratio): &(usize, usize, f64)| {
            *ratio <= 1.0 - board.settings.imbalance && board.may_gain(*item, 1.0 - ratio)
        };
        let Some((at, item, _)) = ways.filter(pays).min_by(|a, b| a.2.total_cmp(&b.2)) else { return };
        if !board.go(item, to, Why::LessFull) {
            return;
        }
        movable[from].swap_remove(at);
    }
}

/// Moves vCPUs nearer to their memory, to free cores or to nodes that are no fuller then, those first that
/// gain most.
fn come_near(board: &mut Board<'_>) {
    let mut far: Vec<_> = board.movable().into_iter().flatten().collect();
    far.retain(|item| gain(board, *item).is_some());
    far.sort_by(|a, b| {
        let gain = |item: &usize| gain(board, *item).map_or(0.0, |(gain, _)| gain);
        gain(b).total_cmp(&gain(a))
    });
    for item in far {
        if let Some((gain, node)) = gain(board, item) {
            if !board.go(item, node, Why::Near(gain)) {
                return;
            }
        }
    }
}

/// The most that a vCPU gains on a node where it waits no longer, and that node, if it pays.
fn gain(board: &Board<'_>, item: usize) -> Option<(f64, usize)> {
    let home = board.items[item].home?;
    let no_fuller =
        |node: usize| !board.cores[node].is_empty() && board.fullness(node, 1) <= board.fullness(home, 0);
    let free = (0..board.cores.len()).filter(|node| *node != home && (board.fits(*node) || no_fuller(*node)));
    let gains = free.map(|node| (board.cost(item, home) - board.cost(item, node), node));
    let (gain, node) = gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
    let pays = gain >= board.settings.least_gain && board.may_gain(item, board.settings.stall * gain);
    pays.then_some((gain, node))
}

/// Has pairs of vCPUs change places that are nearer to their memory then, both together.
fn swap(board: &mut Board<'_>) {
    let movable = board.movable();
    for a in 0..movable.len() {
        for b in a + 1..movable.len() {
            let to_b = by_gain(board, &movable[a], a, b);
            let to_a = by_gain(board, &movable[b], b, a);
            for ((there, one), (back, other)) in to_b.into_iter().zip(to_a) {
                let gain = there + back;
                if gain < 2.0 * board.settings.least_gain || !board.can_displace(2) {
                    break;
                }
                let each = board.settings.stall * gain / 2.0;
                if board.may_gain(one, each) && board.may_gain(other, each) {
                    board.go(one, b, Why::Swap(gain));
                    board.go(other, a, Why::Swap(gain));
                }
            }
        }
    }
}

/// vCPUs of a node with what they gain on another, the most first.
fn by_gain(board: &Board<'_>, items: &[usize], from: usize, to: usize) -> Vec<(f64, usize)> {
    let still = items.iter().filter(|item| board.items[**item].home == Some(from));
    let gain = |item: &usize| (board.cost(*item, from) - board.cost(*item, to), *item);
    let mut gains: Vec<_> = still.map(gain).collect();
    gains.sort_by(|a, b| b.0.total_cmp(&a.0));
    gains
}
