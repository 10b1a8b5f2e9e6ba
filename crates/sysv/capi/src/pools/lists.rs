//! Lists of `SEM_UNDO` adjustments that processes share: those of children of `clone` with CLONE_SYSVSEM and
//! without CLONE_VM, and of their parents. They are due when the last of them has ended.
//!
//! A list has a process slot that nobody lives in. Its liveness lock is held by a mapping that all have who
//! share the list, and that is copied to no other child. So the kernel lets go of it with the last of them,
//! and the slot is then found dead as any other. The slot names no pid, which would tell more than that.
//!
//! A process that shares a list hands over what it has when it begins to, and after each `semop`. A death in
//! between makes one operation's adjustment due early, and no more. So that none goes past that, the thread
//! that shares the list is marked (`interrupted.rs`): it takes no shortcuts.

use crate::process::gate::{self, Inside};
use crate::process::page::{self, unpack, Membership, MAX_POOLS};
use crate::thread::interrupted;
use core::sync::atomic::Ordering::{Acquire, Release};
use vshmem_pool::ProcId;
use vshmem_transport::Liveness;

/// The lists that a child is to share: the slot, as in [`Membership`], and its lock; 0: none.
pub type Lent = [(u64, Option<Liveness>); MAX_POOLS];

/// The place for the list in the pool at a place.
pub fn of(index: usize) -> Option<&'static Membership> {
    page::existing().map(|page| &page.lists[index])
}

/// The list that the calling process shares in the pool at a place.
pub fn shared(index: usize) -> Option<ProcId> {
    unpack(of(index)?.me.load(Acquire))
}

/// Does the calling process share any list?
pub fn any() -> bool {
    (0..MAX_POOLS).any(|index| shared(index).is_some())
}

/// Has the process share a list in the pool at a place from now on.
pub fn publish(_gate: &Inside, list: &Membership, me: u64, lock: Liveness) {
    // SAFETY: inside the gate.
    unsafe { *list.liveness.get() = Some(lock) };
    list.me.store(me, Release);
}

/// In the parent, when the child is there: later children don't have the lists. One that another thread has
/// made by `fork` meanwhile keeps them from ending before it ends or executes something.
pub fn lent(lists: &Lent) {
    // SAFETY: as `lend` has found them, in both processes.
    lists.iter().flat_map(|(_, lock)| lock).for_each(|lock| unsafe { lock.keep_in_child() });
}

/// In a child, which shares these from its first moment on.
pub fn begin_in_child(lists: &Lent) {
    let Some(page) = page::page() else { return };
    // What the thread was waiting on is its parent's, see `member`.
    interrupted::forget();
    page.pid();
    let Ok(gate) = gate::enter() else { return };
    lent(lists);
    for (list, (me, lock)) in page.lists.iter().zip(lists) {
        if let Some(lock) = lock {
            publish(&gate, list, *me, *lock);
        }
    }
    interrupted::mark(true);
}

/// The process shares its list in a pool no more: what is there is due when the others have ended.
pub fn leave(_gate: &Inside, index: usize) {
    let Some(list) = of(index).filter(|list| list.me.load(Acquire) != 0) else { return };
    list.me.store(0, Release);
    // SAFETY: inside the gate; the mapping is the process's own, and let go of once.
    unsafe {
        if let Some(lock) = (*list.liveness.get()).take() {
            lock.end();
        }
    }
}
