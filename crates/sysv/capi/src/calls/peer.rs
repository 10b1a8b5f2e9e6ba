//! Whether a peer lives that the program knows by its pid alone.
//!
//! Pids are those of a kernel and a PID name space, and machines and containers that are made alike have
//! processes of the same pids, the caller's own among them. So the caller's attachments say which process is
//! meant: one that has made a segment, removed it, and told only its peers.

use crate::pools::caller::Caller;
use crate::process::attachments::TABLE;
use crate::process::gate;
use vshmem_ipc::{liveness, pid_of, shm, Errno};

/// Most processes of one pid that are told apart; it takes more than so many machines and containers.
const MOST: usize = 64;

/// Do all peers of that pid live; or if the caller has none, does any process of the pool?
pub fn lives(caller: &Caller, pid: u32) -> Result<bool, Errno> {
    let (mut makers, mut count) = ([0; MOST], 0);
    TABLE.each(&gate::enter()?, &mut |piece| {
        let mine = (piece.pool as usize == caller.pool_index()).then_some(piece.id);
        let maker = mine.and_then(|id| shm::maker_of_removed(&caller.ctx, id));
        let new = |maker: &u64| pid_of(*maker) as u32 == pid && !makers[..count].contains(maker);
        if let Some(maker) = maker.filter(new).filter(|_| count < MOST) {
            makers[count] = maker;
            count += 1;
        }
    });
    let mut peers = makers[..count].iter();
    Ok(match count {
        0 => liveness::lives(&caller.ctx, pid),
        _ => peers.all(|peer| liveness::lives_by_word(&caller.ctx, *peer)),
    })
}
