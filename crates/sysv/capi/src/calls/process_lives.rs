//! Liveness of a process that the program knows by its pid alone.
//!
//! Pids are those of a kernel and a PID name space, and machines and containers that are made alike have
//! processes of the same pids, the caller's own among them. So the caller's attachments say which process is
//! meant: one that has made a segment, removed it, and named it only to processes that attach it.

use crate::pools::caller::Caller;
use crate::process::attachments::TABLE;
use crate::process::gate;
use vshmem_ipc::{liveness, pid_of, shm, Errno};

/// Processes of one pid that are told apart, at the most; more take as many machines and containers.
const MAX_PROCESSES: usize = 64;

/// Do all makers of the caller's removed segments live that have this pid? If there are none, does any
/// process of the pool that has it?
pub fn lives(caller: &Caller, pid: u32) -> Result<bool, Errno> {
    let (mut makers, mut count) = ([0; MAX_PROCESSES], 0);
    TABLE.each(&gate::enter()?, &mut |piece| {
        let mine = (piece.pool as usize == caller.pool_index()).then_some(piece.id);
        let maker = mine.and_then(|id| shm::maker_of_removed(&caller.ctx, id));
        let new = |maker: &u64| pid_of(*maker) as u32 == pid && !makers[..count].contains(maker);
        if let Some(maker) = maker.filter(new).filter(|_| count < MAX_PROCESSES) {
            makers[count] = maker;
            count += 1;
        }
    });
    let mut makers = makers[..count].iter();
    Ok(match count {
        0 => liveness::lives(&caller.ctx, pid),
        _ => makers.all(|maker| liveness::lives_by_word(&caller.ctx, *maker)),
    })
}
