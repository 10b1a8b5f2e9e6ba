//! Memory that follows vCPUs which can't come to it.

use super::board::Board;
use crate::moves::{Migration, Note};

/// Bytes that stay free on a node: the host's own programs need some.
const SPARE: u64 = 256 << 20;
/// Seconds in which vCPUs may still come to their memory before it follows them: to move them costs less.
const FOLLOWS_AFTER: f64 = 3.0;

/// The memory that moves in this step, and notes of machines whose memory should move and can't.
pub fn follow(board: &mut Board<'_>) -> (Vec<Migration>, Vec<Note>) {
    let (mut ways, mut notes) = (Vec::new(), Vec::new());
    for machine in 0..board.seen.machines.len() {
        let best = best(board, machine);
        let clock = board.history.clock;
        let residence = residence(board, machine);
        let since = match (best, residence.way) {
            (Some(way), Some((from, to, since))) if (way.from, way.to) == (from, to) => since,
            _ => clock,
        };
        residence.way = best.map(|way| (way.from, way.to, since));
        let Some(way) = best.filter(|_| clock - since >= FOLLOWS_AFTER) else { continue };
        match &board.seen.machines[machine].memory_stays {
            None => ways.push(way),
            Some(why) => {
                let nodes = &board.topology.nodes;
                let (from, to) = (nodes[way.from].number, nodes[way.to].number);
                let name = board.seen.machines[machine].name.clone();
                let text = format!("its memory should go from node {from} to node {to}, and can't: {why}");
                notes.push(Note { machine: name, text });
            }
        }
    }
    // What pays most for each byte comes first.
    ways.sort_by(|a, b| (b.gain / b.bytes as f64).total_cmp(&(a.gain / a.bytes as f64)));
    let mut left = (board.settings.memory_rate * board.seen.seconds) as u64;
    let mut free = board.seen.free.clone();
    let mut migrations = Vec::new();
    for way in ways {
        let room = free.get(way.to).copied().flatten().map_or(u64::MAX, |free| free.saturating_sub(SPARE));
        let bytes = way.bytes.min(left).min(room);
        if bytes == 0 {
            continue;
        }
        left -= bytes;
        if let Some(Some(free)) = free.get_mut(way.to) {
            *free -= bytes;
        }
        migrations.push(Migration { bytes, ..way });
    }
    (migrations, notes)
}

fn residence<'a>(board: &'a mut Board<'_>, machine: usize) -> &'a mut super::history::Residence {
    let key = board.seen.machines[machine].key;
    board.history.machines.get_mut(&key).expect("each machine has one")
}

/// The move of a machine's memory from one node to another that gains most for each byte and pays. One that
/// is under way pays as long as it gains at all.
fn best(board: &Board<'_>, machine: usize) -> Option<Migration> {
    let seen = &board.seen.machines[machine];
    let residence = &board.history.machines[&seen.key];
    let all: u64 = seen.memory.iter().sum();
    let nodes = 0..board.topology.nodes.len();
    let sources = seen.memory.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
    let pairs = sources.flat_map(|(from, bytes)| nodes.clone().map(move |to| (from, to, *bytes)));
    let ways = pairs.filter(|(from, to, _)| from != to).map(|(from, to, bytes)| {
        let nearer = |(at, vcpus): (usize, &f64)| {
            let distance = |memory: usize| board.topology.distance(at, memory) as f64 / 10.0;
            vcpus * (distance(from) - distance(to))
        };
        let nearer: f64 = residence.vcpus.iter().enumerate().map(nearer).sum();
        let gain = board.settings.stall * nearer * bytes as f64 / all as f64;
        Migration { machine, from, to, bytes, gain }
    });
    let pays = |way: &Migration| {
        let cost = way.bytes as f64 * board.settings.copy;
        let has_begun = residence.way.is_some_and(|(from, to, since)| {
            (from, to) == (way.from, way.to) && board.history.clock - since > FOLLOWS_AFTER
        });
        match has_begun {
            true => way.gain > 0.0,
            false => way.gain * board.settings.horizon > 2.0 * cost,
        }
    };
    // A node takes only what it has room for; the rest stays.
    let has_room = |way: &Migration| {
        board.seen.free.get(way.to).copied().flatten().is_none_or(|free| free > SPARE + way.bytes.min(SPARE))
    };
    let ways = ways.filter(|way| pays(way) && has_room(way));
    ways.max_by(|a, b| (a.gain / a.bytes as f64).total_cmp(&(b.gain / b.bytes as f64)))
}
