//! Names of those who live, stand still and are dead where they have nothing, ids that are nearly others, and
//! deeds that they seem to have begun.

use super::names::{Lie, Names};
use std::sync::atomic::Ordering::Relaxed;
use vshmem_pool::layout::*;

pub fn known_everywhere(n: &Names, lie: Lie) -> Option<()> {
    let process = n.proc(u64::from(lie.a) % 8)?;
    process.overflow.store(u32::from(lie.a >> 7 == 0), Relaxed);
    let reference = Names::kind(lie.b).reference(u32::from(lie.c) % 4);
    if lie.b & 128 != 0 {
        for (i, touched) in process.touched.iter().enumerate() {
            touched.store(reference ^ (i as u32 & u32::from(lie.c >> 6)), Relaxed);
        }
    }
    Some(())
}

pub fn a_lock_is_held(n: &Names, lie: Lie) -> Option<()> {
    let contended = u32::from(lie.c) << 31;
    let word = n.holder(lie.b) | contended;
    n.lock(lie.a)?.store(word, Relaxed);
    Some(())
}

/// A record is somebody else's.
pub fn an_owner(n: &Names, lie: Lie) -> Option<()> {
    let (owner, index) = (n.owner(lie.b), Lie::one(lie.c));
    match lie.a % 4 {
        0 => n.waiter(index)?.owner.store(owner, Relaxed),
        1 => {
            let at = n.shm(index % 2)?.holds.load(Relaxed);
            n.put(at, owner)?;
        }
        2 => {
            let at = n.sem(index % 2)?.undo.load(Relaxed);
            n.put(at, owner)?;
        }
        _ => {
            // The adjustment beside a semaphore.
            let (slot, generation) = n.process(lie.b);
            let at = n.sem(0)?.cells.load(Relaxed) + index * 16 + 8;
            n.put(at, (slot + 1) | generation << 16 | u64::from(lie.a) << 32)?;
        }
    }
    Some(())
}

/// Somebody has moved an end of a queue, and not written that it is done.
pub fn a_mover(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let end = if lie.a & 2 == 0 { &queue.send } else { &queue.receive };
    let counts = end.at.hi.load(Relaxed) & 0xffff_ffff;
    let by = u64::from(lie.c) << (lie.a >> 3 & 7) & 0x7fff;
    let slow = u64::from(lie.a >> 7);
    let moved = counts | (n.process(lie.b).0 + 1) << 32 | by << 48 | slow << 63;
    end.at.hi.store(moved, Relaxed);
    let pos = end.at.lo.load(Relaxed);
    if lie.a & 4 != 0 {
        end.at.lo.store(pos & !0xffff_ffff | (pos as u32).wrapping_add(by as u32) as u64, Relaxed);
    }
    Some(())
}

pub fn nearly_another_id(n: &Names, lie: Lie) -> Option<()> {
    let kind = Names::kind(lie.a);
    let (one, other) = (n.head(kind, Lie::one(lie.b))?, n.head(kind, Lie::one(lie.b / 8))?);
    let id = one.id.load(Relaxed);
    let bit = 1 << (lie.c % 31);
    other.id.store(if lie.c & 32 == 0 { id } else { id ^ bit }, Relaxed);
    if lie.c & 64 != 0 {
        other.key.store(one.key.load(Relaxed), Relaxed);
    }
    if lie.c & 128 != 0 {
        other.flags.fetch_xor(1 << (8 + lie.a / 8 % 13), Relaxed);
    }
    Some(())
}

/// What the next one is to finish who takes a lock from the dead: words of the pool's heads and of its lists.
pub fn a_committed_log(n: &Names, lie: Lie) -> Option<()> {
    let log = match lie.a % 3 {
        0 => POOL_LOG,
        1 => n.sem(0)?.log.load(Relaxed),
        _ => n.msg(u64::from(lie.a >> 7))?.log.load(Relaxed),
    };
    let at = [POOL_LOG, ROOT, log, n.table(2, 0, 0), n.table(4, 0, 0)][usize::from(lie.b) % 5];
    for i in 0..16 {
        n.put(log + 16 + i * 16, at.wrapping_add(i * 8 * u64::from(lie.b >> 5)))?;
        n.put(log + 24 + i * 16, u64::from(lie.c) << (i * 4))?;
    }
    n.put(log, if lie.c & 1 == 0 { 16 } else { u64::MAX })
}
