//! Heirs: processes that have this one's attachments although nobody has counted them, since they were made
//! by a system call that the library does not see. They map by the same source (`source.rs` in transport), so
//! whether there is one can be asked of the kernel once the process has unmapped what it detaches, and has
//! closed the source's descriptor. That would take several system calls for each `shmdt`; so a process first
//! looks whether it was copied at all since it last looked.
//!
//! Whatever copies a process, the kernel then lets both write to their private pages only by way of a fault,
//! in which a page is copied. So a process writes to a page, its *mark*, and takes the time: too short for a
//! fault means that there was no copy since it was last written to. In any other case there may have been
//! one.
//!
//! A fork that is counted is no reason to suspect heirs: parent and child write to their marks afterwards.
//! But a counted child may have had heirs and be gone, and then nothing else tells of them. So the source is
//! asked about what was attached before a fork, too, where it can tell: of a process's last attachment by it.

use crate::pools::table;
use crate::process::attachments::{Piece, TABLE};
use crate::process::gate::Inside;
use crate::process::raw::{self, syscall};
use crate::thread::cred;
use core::sync::atomic::{compiler_fence, AtomicPtr, AtomicU64, Ordering::*};

/// Alone in its mapping: a write to anything else on its page would have the page copied, too.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Attachments with lower numbers than this may have been inherited.
static SUSPECTED_BELOW: AtomicU64 = AtomicU64::new(0);

/// Attachments with lower numbers than this are older than a fork that was counted.
static FORKED_BELOW: AtomicU64 = AtomicU64::new(0);

/// Ticks of the time stamp counter: fewer than a fault on a page that was copied takes. Where this was
/// measured, that takes 6500, or 2600 if the copy is gone again, and a write without a fault about 50.
const FAULT_TICKS: u64 = 400;

fn mark() -> Option<&'static AtomicU64> {
    raw::map_once(&MARK, |_| ())?;
    // SAFETY: once published, it stays mapped for the process's life.
    Some(unsafe { &*MARK.load(Acquire) })
}

/// Was the process certainly not copied since the last time?
fn is_undivided() -> bool {
    let Some(mark) = mark() else { return false };
    // What is read is near afterwards, and reading takes no fault. Without waiting for it, a page walk on a
    // busy host would count as time for the write.
    mark.load(Relaxed);
    compiler_fence(SeqCst);
    let before = cred::ticks_after_loads();
    if before == 0 {
        let before = faults();
        mark.fetch_add(1, SeqCst);
        return before.is_some() && faults() == before;
    }
    compiler_fence(SeqCst);
    mark.fetch_add(1, SeqCst);
    compiler_fence(SeqCst);
    // A processor may read the counter ahead of the write, but reads it again after a fault.
    cred::ticks().wrapping_sub(before) < FAULT_TICKS
}

/// Faults of the calling thread so far.
fn faults() -> Option<i64> {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the structure.
    let asked = unsafe { syscall!(libc::SYS_getrusage, libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: it did.
    (asked == 0).then(|| unsafe { usage.assume_init() }.ru_minflt)
}

/// Looks whether the process was copied. Then all that is attached now may have been inherited, and what
/// comes is mapped by other sources. To be called before anything is mapped, and after it was unmapped.
pub fn look(gate: &Inside) {
    if !is_undivided() {
        suspect(gate);
    }
}

/// Takes it that there are heirs of all that is attached.
pub fn suspect(gate: &Inside) {
    SUSPECTED_BELOW.store(TABLE.next_order(gate), Relaxed);
    table::close_sources(gate);
}

/// May others have what was attached there?
pub fn may_have(piece: &Piece) -> bool {
    piece.order() < SUSPECTED_BELOW.load(Relaxed)
}

/// Takes it that a child will have all that is attached, whose sources are closed.
pub fn note_fork(gate: &Inside) {
    FORKED_BELOW.store(TABLE.next_order(gate), Relaxed);
}

/// May heirs of a child that is gone have what was attached there, and does the source tell? The piece is out
/// of the table.
pub fn may_be_of_a_child(gate: &Inside, piece: &Piece) -> bool {
    let mut tells = piece.order() < FORKED_BELOW.load(Relaxed);
    if tells {
        TABLE.each(gate, &mut |other| tells &= other.source != piece.source);
    }
    tells
}

/// May others have something of what was ever attached?
pub fn are_suspected() -> bool {
    SUSPECTED_BELOW.load(Relaxed) > 0
}

/// Notes a fork that was counted; called after it, in the parent and in the child.
pub extern "C" fn after_fork() {
    // SAFETY: as in `mark`.
    let mark = unsafe { MARK.load(Acquire).as_ref() };
    if let Some(mark) = mark.filter(|_| TABLE.count() > 0) {
        mark.fetch_add(1, SeqCst);
    }
}
