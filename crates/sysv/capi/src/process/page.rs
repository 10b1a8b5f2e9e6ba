//! The page of the process alone: a child made by `fork` finds it empty.
//!
//! A library can't tell by itself that it now runs in another process: a fork by a raw system call runs no
//! handlers. So everything that must not be inherited (the process's slot in each pool, its liveness locks)
//! lies in memory that the kernel empties in a child (MADV_WIPEONFORK). A child finds zeros there and makes
//! itself known anew.

use crate::process::raw::{self, syscall};
use crate::process::shortcuts::{Place, Places};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use vshmem_ipc::{msg, sem};
use vshmem_transport::Liveness;

/// Pools that a process may have open at once.
pub const MAX_POOLS: usize = 8;

/// The process in one pool.
#[repr(C)]
pub struct Membership {
    /// `known | slot | generation`, see [`pack`]; 0: not known to the pool.
    pub me: AtomicU64,
    /// The liveness lock, if one could be had; written before `me`, under the gate. All zeros: none.
    pub liveness: UnsafeCell<Option<Liveness>>,
}

/// The page. All zeros at first, and again in every child. The fields that a child writes first lie side by
/// side, since each page that it touches costs it a fault.
#[repr(C)]
pub struct Page {
    /// Shortcuts to semaphore sets.
    pub sets: Places<{ sem::shortcut::WORDS }>,
    /// Shortcuts to queues.
    pub queues: Places<{ msg::shortcut::WORDS }>,
    /// The gate; see [`crate::process::gate`].
    pub gate: AtomicU32,
    /// Forks of the gate's owner that are under way: a handler may fork in the middle of another one.
    pub forks: AtomicU32,
    /// The process's pid; 0: not asked yet.
    pub pid: AtomicU32,
    /// The process in each open pool.
    pub memberships: [Membership; MAX_POOLS],
    /// The thread that is inside the gate, by the address of its thread-local block, or forks; 0: none.
    pub owner: AtomicUsize,
    /// Other processes in the same memory.
    pub sharers: [Sharer; 16],
    /// The lists of `SEM_UNDO` adjustments that the process shares with others, in each open pool; see
    /// [`crate::pools::lists`].
    pub lists: [Membership; MAX_POOLS],
}

/// A child in the same memory; see [`crate::pools::sharers`].
#[repr(C)]
pub struct Sharer {
    /// The thread that has made it, by the address of its thread-local block; 0: there is none.
    pub maker: AtomicUsize,
    /// Its pid; 0: not known yet.
    pub pid: AtomicU32,
    /// Whether its maker is done with it.
    pub is_made: AtomicBool,
    /// Its slot in each open pool, as in [`Membership::me`].
    pub me: [AtomicU64; MAX_POOLS],
}

// SAFETY: `liveness` is only touched under the gate; the rest is atomic.
unsafe impl Sync for Page {}

/// Bytes that are mapped for the page, and no more.
const BYTES: usize = size_of::<Page>().next_multiple_of(4096);

static PAGE: AtomicPtr<Page> = AtomicPtr::new(core::ptr::null_mut());

/// A page of zeros. Atomics all the same, so the compiler can't know that.
struct Blank(UnsafeCell<MaybeUninit<Page>>);
// SAFETY: nothing is ever written there.
unsafe impl Sync for Blank {}
static BLANK: Blank = Blank(UnsafeCell::new(MaybeUninit::zeroed()));

/// The page in which shortcuts are looked for: zeros before it is made, so that no call has to ask whether it
/// is.
static SHORTCUTS: AtomicPtr<Page> = AtomicPtr::new(BLANK.0.get().cast());

/// The page, if it was made.
#[inline(always)]
pub fn existing() -> Option<&'static Page> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: once published, the page stays mapped for the process's life.
    (!page.is_null()).then(|| unsafe { &*page })
}

/// The page for calls that look for a shortcut, and write nothing: there is none before the page was made.
#[inline(always)]
pub fn of_shortcuts() -> &'static Page {
    // SAFETY: once published, the page stays mapped for the process's life, and so does a static one; zeros
    // are a value of it.
    unsafe { &*SHORTCUTS.load(Ordering::Acquire) }
}

/// The page; made at the first call. `None`: there is no memory.
pub fn page() -> Option<&'static Page> {
    existing().or_else(make)
}

#[cold]
fn make() -> Option<&'static Page> {
    raw::map_once(&PAGE, |fresh| {
        if !asked_to_wipe(fresh) {
            // SAFETY: the handler stays in memory: the library can't be unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(wipe_in_child)) };
        }
    })?;
    SHORTCUTS.store(PAGE.load(Ordering::Acquire), Ordering::Release);
    existing()
}

/// Asks for the page to be emptied in children. False if that won't be: emulators of another processor's user
/// mode answer that they will, and don't. They say so of a file's memory, too, which no kernel empties.
fn asked_to_wipe(fresh: *mut u8) -> bool {
    let wipe = |at: usize, len: usize| {
        // SAFETY: advice for a later fork, on a mapping of our own or on code, where it is refused.
        unsafe { syscall!(libc::SYS_madvise, at, len, libc::MADV_WIPEONFORK) == 0 }
    };
    let code = make as *const () as usize & !4095;
    wipe(fresh as usize, BYTES) && !wipe(code, 4096)
}

/// Empties the page of a child, where the kernel has not.
extern "C" fn wipe_in_child() {
    // The gate was closed before the fork.
    if let Some(page) = existing().filter(|page| page.gate.swap(0, Ordering::Relaxed) != 0) {
        let bytes = (page as *const Page).cast_mut().cast::<u8>();
        // SAFETY: the child has one thread, which is here; zeros are valid for every field.
        unsafe { core::ptr::write_bytes(bytes, 0, size_of::<Page>()) };
    }
}

const KNOWN: u64 = 1 << 63;
/// The pool may be taken away while it is in use.
const MAY_GO: u64 = 1 << 62;

/// The process's name in a pool as one word that is never 0.
#[inline(always)]
pub fn pack(me: vshmem_pool::ProcId, may_go: bool) -> u64 {
    let known = if may_go { KNOWN | MAY_GO } else { KNOWN };
    known | u64::from(me.slot) << 16 | u64::from(me.generation)
}

/// Is it the word of a pool that may be taken away while it is in use?
#[inline(always)]
pub fn may_go(word: u64) -> bool {
    word & MAY_GO != 0
}

/// Reads a word of [`pack`] for a pool that stays; `None`: one that may be taken away, or not known.
#[inline(always)]
pub fn unpack_staying(word: u64) -> Option<vshmem_pool::ProcId> {
    (word & (KNOWN | MAY_GO) == KNOWN)
        .then_some(vshmem_pool::ProcId { slot: (word >> 16) as u32, generation: word as u16 })
}

/// Reads a word of [`pack`]; `None`: not known.
#[inline(always)]
pub fn unpack(word: u64) -> Option<vshmem_pool::ProcId> {
    (word & KNOWN != 0).then_some(vshmem_pool::ProcId { slot: (word >> 16) as u32, generation: word as u16 })
}

impl Page {
    /// Forgets all shortcuts: the process is not known to a pool any more.
    pub fn forget_shortcuts(&self) {
        fence(Ordering::SeqCst);
        self.sets.iter().for_each(Place::forget);
        self.queues.iter().for_each(Place::forget);
    }

    /// The process's pid.
    #[inline(always)]
    pub fn pid(&self) -> u32 {
        match self.pid.load(Ordering::Relaxed) {
            0 => self.ask_pid(),
            pid => pid,
        }
    }

    #[cold]
    fn ask_pid(&self) -> u32 {
        let pid = raw::getpid();
        self.pid.store(pid, Ordering::Relaxed);
        pid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_pool::ProcId;

    #[test]
    fn names_survive_packing() {
        for me in [ProcId { slot: 0, generation: 0 }, ProcId { slot: 65535, generation: 65535 }] {
            assert_eq!(unpack(pack(me, false)), Some(me));
            assert_eq!(unpack_staying(pack(me, false)), Some(me));
            assert_eq!(unpack(pack(me, true)), Some(me));
            assert_eq!(unpack_staying(pack(me, true)), None);
            assert!(may_go(pack(me, true)) && !may_go(pack(me, false)));
        }
        assert_eq!((unpack(0), unpack_staying(0)), (None, None));
    }

    #[test]
    fn a_child_empties_a_page_that_was_closed_for_the_fork() {
        let page = page().unwrap();
        let left_after = |gate| {
            page.gate.store(gate, Ordering::Relaxed);
            page.pid.store(7, Ordering::Relaxed);
            wipe_in_child();
            page.pid.load(Ordering::Relaxed)
        };
        // SAFETY: the child makes raw calls only and leaves at once.
        let child = unsafe { syscall!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let good = left_after(1) == 0 && left_after(0) == 7;
            // SAFETY: ends the child.
            unsafe { syscall!(libc::SYS_exit_group, i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child as i32, &mut status, 0) };
        assert_eq!(status, 0);
    }

    #[test]
    fn a_raw_fork_finds_the_page_empty() {
        let page = page().unwrap();
        assert_eq!(page.pid(), std::process::id());
        // SAFETY: the child makes raw calls only and leaves at once.
        let child = unsafe { syscall!(libc::SYS_clone, libc::SIGCHLD, 0usize, 0usize, 0usize, 0usize) };
        if child == 0 {
            let empty = page.pid.load(Ordering::Relaxed) == 0 && page.pid() == raw::getpid();
            // SAFETY: ends the child.
            unsafe { syscall!(libc::SYS_exit_group, i32::from(!empty)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child as i32, &mut status, 0) };
        assert_eq!(status, 0);
    }
}
