//! `shmat` and `shmdt`.

use super::remains::{Owners, Remains};
use super::{moved, pages, remains};
use crate::pools::caller::{caller_of, know_inherited, Caller};
use crate::pools::sizes::{self, SEGMENTS};
use crate::pools::{at_fork, heirs, mapping};
use crate::process::attachments::{Piece, TABLE};
use crate::process::gate;
use core::ffi::c_void;
use core::ops::Range;
use vshmem_ipc::{shm, Errno};
use vshmem_pool::lock::SignalsBlocked;

/// The address at which a segment is to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttachAddress {
    addr: Option<usize>,
    replace: bool,
}

impl AttachAddress {
    /// The address by the arguments of `shmat`. `page`: the unit of addresses (SHMLBA), in multiples of which
    /// the pool's memory is mapped.
    fn of(addr: usize, flags: i32, page: usize) -> Result<AttachAddress, Errno> {
        let replace = flags & libc::SHM_REMAP != 0;
        if addr == 0 {
            return if replace { Err(Errno::EINVAL) } else { Ok(AttachAddress { addr: None, replace }) };
        }
        let rounded = addr & !(page - 1);
        // Down to zero it is the kernel that says who may map something there.
        if rounded != addr && flags & libc::SHM_RND == 0 || rounded == 0 && replace {
            return Err(Errno::EINVAL);
        }
        Ok(AttachAddress { addr: Some(rounded), replace })
    }
}

fn protection(flags: i32) -> i32 {
    let write = if flags & libc::SHM_RDONLY != 0 { 0 } else { libc::PROT_WRITE };
    let execute = if flags & libc::SHM_EXEC != 0 { libc::PROT_EXEC } else { 0 };
    libc::PROT_READ | write | execute
}

/// `shmat` on a pool. Mapped first, counted when that has worked: an attempt in vain leaves no trace in the
/// segment's times.
pub fn attach(caller: &Caller, id: i32, addr: usize, flags: i32) -> Result<*mut c_void, Errno> {
    attach_range(caller, id, addr, flags).map(|range| range.start as *mut c_void)
}

/// `shmat` on a pool; returns the range of addresses.
pub fn attach_range(caller: &Caller, id: i32, addr: usize, flags: i32) -> Result<Range<usize>, Errno> {
    match attach_at(caller, id, addr, flags) {
        // A handler has forked while signals were let through, and this is the child.
        Err(Errno::EINTR) => attach_range(&caller_of(caller.pool_index())?, id, addr, flags),
        attached => attached.map_err(|error| caller.excuse(error)),
    }
}

fn attach_at(caller: &Caller, id: i32, addr: usize, flags: i32) -> Result<Range<usize>, Errno> {
    let page = caller.page_size()?;
    let address = AttachAddress::of(addr, flags, page)?;
    know_inherited();
    let mut owners = Owners::new();
    let attached = loop {
        match attach_inside(caller, id, flags, address, page, &mut owners) {
            Err(Errno::INSIDE) => owners.await_lock(caller)?,
            attached => break attached,
        }
    };
    owners.settle(0);
    attached
}

/// Attaches inside the gate, where no lock of a pool is waited for (INSIDE).
fn attach_inside(
    caller: &Caller,
    id: i32,
    flags: i32,
    address: AttachAddress,
    page: usize,
    owners: &mut Owners,
) -> Result<Range<usize>, Errno> {
    let gate = gate::enter()?;
    if caller.is_parents() {
        return Err(Errno::EINTR);
    }
    TABLE.reserve(&gate)?;
    let extent = shm::look(&caller.ctx, id, flags)?;
    SEGMENTS.check(caller.pool_index(), id, pages(extent.len))?;
    if address.replace && SEGMENTS.known(caller.pool_index(), id).is_none() {
        return Err(sizes::unknown("shmctl(IPC_STAT)"));
    }
    let len = (extent.len as usize).next_multiple_of(page);
    if address.addr.is_some_and(|a| a.checked_add(len).is_none()) {
        return Err(Errno::EINVAL);
    }
    let prot = protection(flags);
    heirs::look(&gate);
    let (first, source) = caller.map(&gate, extent.offset, len, address.addr, address.replace, prot)?;
    let first = first as usize;
    let pool = caller.pool_index();
    let mapped = address.addr.filter(|_| address.replace).unwrap_or(first);
    let range = mapped..mapped + len;
    let looks = address.replace || TABLE.count() <= MOST_LOOKED_THROUGH;
    let mut remains = Remains::default();
    // Before what is replaced is counted off, which may be all that keeps a removed segment alive.
    let piece = Piece::whole(range.clone(), extent.offset, id, pool, source);
    let counted = count(caller, &piece, flags, &extent, owners);
    let placed = counted.and_then(|()| {
        let counted = if looks { remains.count(&gate, &range, owners) } else { Ok(()) };
        // Last, so that a call that fails leaves what the program has there.
        let replaced = || if address.replace { caller.move_over(first..first + len, mapped) } else { Ok(()) };
        counted.and_then(|()| replaced()).inspect_err(|_| {
            remains.give_up(owners);
            owners.note(&piece);
        })
    });
    placed.inspect_err(|_| mapping::unmap(pool, first..first + len))?;
    if remains.any {
        TABLE.cut(&gate, &range, &mut |piece, n| match address.replace {
            true => remains.note(&piece, n, owners),
            false => moved::displaced(&gate, piece, n, mapped, &remains, owners),
        });
    }
    TABLE.insert(&gate, piece);
    at_fork::attachments_changed(&gate);
    Ok(range)
}

/// Counts an attachment of what was mapped, unless the segment has gone in between.
fn count(
    caller: &Caller,
    piece: &Piece,
    flags: i32,
    mapped: &shm::Extent,
    owners: &mut Owners,
) -> Result<(), Errno> {
    if shm::attach_by(&caller.ctx, piece.id, flags, piece.source)? != *mapped {
        owners.note(piece);
        return Err(Errno::EIDRM);
    }
    Ok(())
}

/// Attachments that each `shmat` looks through, at the most.
const MOST_LOOKED_THROUGH: usize = 64;

/// Counts an attachment that a program has doubled: the one at an address is mapped in another range, too. If
/// that can't be counted, or not soon, the process is taken for an heir of the first one.
pub fn double(addr: usize, to: Range<usize>) {
    know_inherited();
    let mut owners = Owners::new();
    while let Err(pool) = double_inside(addr, &to, &mut owners) {
        if !owners.await_lock_briefly(pool) {
            return;
        }
    }
}

/// Counts a doubled attachment inside the gate. An error: the pool whose lock is to be waited for first.
fn double_inside(addr: usize, to: &Range<usize>, owners: &mut Owners) -> Result<(), usize> {
    let Ok(gate) = gate::enter() else { return Ok(()) };
    let mut doubled = None;
    TABLE.each(&gate, &mut |p| {
        if p.range().contains(&addr) {
            doubled = Some(p.doubled(addr, to.clone()));
        }
    });
    let Some(piece) = doubled else { return Ok(()) };
    let counted = TABLE.reserve(&gate).and_then(|()| owners.attach(&piece));
    match counted {
        Ok(()) => TABLE.put_back(&gate, &piece),
        Err(_) => heirs::suspect(&gate),
    }
    match counted {
        Err(Errno::INSIDE) => Err(piece.pool.into()),
        _ => Ok(()),
    }
}

/// `shmdt`, for an address where a pool's segment is attached; `Ok(false)`: there is none.
pub fn detach(addr: usize) -> Result<bool, Errno> {
    if TABLE.count() == 0 {
        return Ok(false);
    }
    know_inherited();
    let (mut whole, mut n, mut owners) = (None, 0, Owners::new());
    let gate = gate::enter()?;
    moved::follow(&gate, addr, &mut owners);
    let was_attached = TABLE.take(&gate, addr, &mut |piece| {
        mapping::unmap(piece.pool as usize, piece.range());
        (whole, n) = (Some(piece), n + 1);
    });
    let owner = whole.and_then(|piece| caller_of(piece.pool as usize).ok());
    let noted = owner.zip(whole).map(|(owner, piece)| {
        heirs::look(&gate);
        let mut what = remains::given_up(&piece, n);
        what.has_heirs |= heirs::may_be_of_a_child(&gate, &piece);
        // Before anybody forks.
        let is_noted = shm::note_detached(&owner.ctx, &what);
        (owner, what, is_noted, Some(piece.len as u64).filter(|_| n == 1))
    });
    at_fork::attachments_changed(&gate);
    drop(gate);
    let mut waited = 0;
    if let Some((owner, what, is_noted, told)) = noted {
        shm::settle(&owner.ctx, &SignalsBlocked::brief(owner.ctx.kernel), &what, is_noted, told);
        waited = owner.ctx.budget.waited();
    }
    owners.settle(waited);
    Ok(was_attached)
}

/// Is any segment of the pool at that place attached?
pub fn is_attached(gate: &gate::Inside, pool: usize) -> bool {
    let mut any = false;
    TABLE.each(gate, &mut |a| any |= a.pool as usize == pool);
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged_as_linux_does() {
        let at = |addr, replace| Ok(AttachAddress { addr: Some(addr), replace });
        let of = |addr, flags| AttachAddress::of(addr, flags, 4096);
        assert_eq!(of(0, 0), Ok(AttachAddress { addr: None, replace: false }));
        assert_eq!(of(0, libc::SHM_REMAP), Err(Errno::EINVAL));
        assert_eq!(of(0x10_0001, 0), Err(Errno::EINVAL));
        assert_eq!(of(0x10_0001, libc::SHM_RND), at(0x10_0000, false));
        assert_eq!(of(0x10_0000, libc::SHM_REMAP), at(0x10_0000, true));
        let of = |addr, flags| AttachAddress::of(addr, flags, 2 << 20);
        assert_eq!(of(0x10_0000, 0), Err(Errno::EINVAL));
        assert_eq!(of(0x30_1000, libc::SHM_RND), at(0x20_0000, false));
        assert_eq!(of(0x10_0000, libc::SHM_RND), at(0, false));
        assert_eq!(of(0x10_0000, libc::SHM_RND | libc::SHM_REMAP), Err(Errno::EINVAL));
    }

    #[test]
    fn protection_follows_the_flags() {
        assert_eq!(protection(0), libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(protection(libc::SHM_RDONLY), libc::PROT_READ);
        assert_eq!(protection(libc::SHM_RDONLY | libc::SHM_EXEC), libc::PROT_READ | libc::PROT_EXEC);
    }
}
