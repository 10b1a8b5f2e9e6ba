//! Counting off what is attached no more, or only in part.

use crate::attach::Piece;
use crate::{heirs, state};
use vshmem_ipc::shm;

/// A new mapping has replaced a part of an attachment, or all of it: as the kernel does it, each piece
/// counts. Without SHM_REMAP, that part had been unmapped behind our back: otherwise the kernel had not given
/// the addresses out again.
pub fn count_rests(piece: Piece, rests: usize) {
    let Ok(owner) = state::caller_of(piece.pool as usize) else {
        return;
    };
    // Where the caller may not attach it any more, it just counts less.
    let attach = |_: &usize| shm::attach_by(&owner.ctx, piece.id, libc::SHM_RDONLY, piece.source).is_ok();
    // A rest that is not counted is what was counted as a whole.
    if (0..rests).filter(attach).count() == rests {
        shm::detach_by(&owner.ctx, piece.id, piece.source, heirs::may_have(&piece));
    }
}
