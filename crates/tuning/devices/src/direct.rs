//! Transfers between a GPU and other devices that don't go through the host's memory (GPUDirect): the
//! conditions for them outside of the machine.

use crate::address::Address;
use crate::function::{Function, DEVICES};
use crate::kind;
use crate::survey::Survey;
use crate::tree::Tree;
use schemars::JsonSchema;
use serde::Serialize;

/// Bytes of a large window. A GPU with a smaller one shows a part of its memory at a time.
const LARGE: u64 = 1 << 30;
/// Offset of the extended capabilities in a function's configuration.
const EXTENDED: usize = 0x100;
/// The capability by which a bridge says where transfers between devices below it go.
const ACS: u32 = 0x0d;
/// Its control: requests and completions between devices are sent up to the root.
const REDIRECTED: u16 = 0b1100;

/// The conditions for transfers between a GPU and other devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Direct {
    /// The GPU shows all of a large memory at once: a window of 1 GiB or more.
    pub large_bar: bool,
    /// Network adapters and NVMe drives, the nearest first.
    pub peers: Vec<Peer>,
}

/// A device that may reach a GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Peer {
    /// Its address.
    pub address: Address,
    /// The nearest bridge above both; without one they only meet at the processor, which may not pass
    /// transfers on.
    pub below: Option<Address>,
    /// Transfers between them are sent up to the processor (ACS), which costs speed; unknown without root.
    pub redirected: Option<bool>,
}

/// The peers of a GPU; `None` if it is none.
pub fn of(tree: &dyn Tree, survey: &Survey, gpu: &Function) -> Option<Direct> {
    if !kind::is(gpu.class, "gpu") && !kind::is(gpu.class, "accelerator") {
        return None;
    }
    let is_peer = |it: &&Function| kind::is(it.class, "network") || kind::is(it.class, "nvme");
    let mut near: Vec<(usize, Peer)> =
        survey.functions.iter().filter(is_peer).map(|other| peer(tree, gpu, other)).collect();
    near.sort_by_key(|(common, peer)| (usize::MAX - common, peer.address));
    Some(Direct {
        large_bar: gpu.largest_bar >= LARGE,
        peers: near.into_iter().map(|(_, peer)| peer).collect(),
    })
}

/// A peer, and the number of bridges above both.
fn peer(tree: &dyn Tree, gpu: &Function, other: &Function) -> (usize, Peer) {
    let common = gpu.bridges.iter().zip(&other.bridges).take_while(|(one, other)| one == other).count();
    let between = gpu.bridges[common..].iter().chain(&other.bridges[common..]);
    let redirected =
        between.map(|bridge| redirects(tree, *bridge)).try_fold(false, |any, one| Some(any | one?));
    let below = common.checked_sub(1).map(|last| gpu.bridges[last]);
    (common, Peer { address: other.address, below, redirected })
}

/// True if a bridge sends transfers between devices up; `None` if its configuration can't be read.
fn redirects(tree: &dyn Tree, bridge: Address) -> Option<bool> {
    let config = tree.bytes(&format!("{DEVICES}/{bridge}/config")).ok().filter(|it| it.len() > EXTENDED)?;
    let word = |at: usize| Some(u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?));
    let mut at = EXTENDED;
    // As many as there is room for: a damaged list may lead in a circle.
    for _ in 0..(4096 - EXTENDED) / 4 {
        let head = word(at)?;
        if head & 0xffff == ACS {
            return Some((word(at + 4)? >> 16) as u16 & REDIRECTED != 0);
        }
        at = (head >> 20) as usize;
        if at < EXTENDED {
            break;
        }
    }
    Some(false)
}
