//! What admits a thread to shortcuts: one word, so that nothing has to be asked.
//!
//! A shortcut is for one effective user, or for everybody. A thread's *pass* says since which *epoch* the
//! thread has been known to have the user that the epoch is for. It is a part of the key by which a shortcut
//! is found. A change of user begins another epoch and has all shortcuts forgotten, so threads that have a
//! pass of the one before find none. They ask who they are, and remember shortcuts anew.
//!
//! Users are changed by four functions of libc, and by `syscall`. This library has functions of these names,
//! which call libc's and begin an epoch (`capi/user_ids.rs`). Where the program does not find them before
//! libc's, as where this library is opened late, a thread whose user can change gets no pass. There remains
//! who makes the system call by the instruction itself, which no libc does but for its own functions. Then
//! the shortcuts of a process that may do so end with the second, and so does what they let through.

use crate::tls::{self, set_pass};
use crate::{cred, interrupted, page};
use core::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU64};
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use vshmem_ipc::Granted;

/// The epoch and, if somebody has asked since it began, [`TAKEN`] and the user that it is for:
/// `{user:32, TAKEN:1, epoch:31}`.
static EPOCH: AtomicU64 = AtomicU64::new(0);
const TAKEN: u64 = 1 << 32;
const NEXT: u64 = 1 << 33;

/// Bits of passes: [`TAKEN`], so that there is no pass 0, and as much of the epoch as keys have room for. A
/// thread would have to sleep while the user is changed 2^26 times to take an epoch for another.
pub const PASSES: u64 = ((1 << 27) - 1) << 32;

/// The user of a thread of this process may change.
static MAY_CHANGE: AtomicBool = AtomicBool::new(false);
/// The program finds this library's functions by which the user is changed.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// In which second a shortcut was last taken.
static SECOND: AtomicI64 = AtomicI64::new(0);

/// A pass, and the user whom it is for.
#[derive(Clone, Copy)]
pub struct Pass {
    word: u64,
    user: u32,
}

impl Pass {
    /// As a part of keys.
    pub fn word(self) -> u64 {
        self.word
    }

    /// Is what is granted granted to its user?
    pub fn admits(self, granted: Granted) -> bool {
        match granted {
            Granted::All => true,
            Granted::User(user) => user == self.user,
        }
    }

    /// Has nobody's user changed since its epoch began?
    pub fn is_valid(self) -> bool {
        EPOCH.load(SeqCst) & PASSES == self.word
    }
}

/// The calling thread's pass as it is now. The thread has it from now on. `None`: it gets none, since its
/// user changes unseen, or differs from that of another thread.
#[cold]
pub fn renew_pass() -> Option<Pass> {
    // Before the kernel is asked.
    let mut epoch = EPOCH.load(SeqCst);
    // SAFETY: the thread's own block.
    let own = unsafe { &mut (*tls::thread()).own_pass };
    let user = if epoch & TAKEN != 0 && *own == epoch & PASSES {
        epoch as u32
    } else {
        let (user, is_fixed) = cred::asked_uid();
        if !is_fixed {
            MAY_CHANGE.store(true, Relaxed);
            WATCHED.load(Relaxed).then_some(())?;
        }
        user
    };
    if epoch & TAKEN == 0 {
        let taken = epoch | TAKEN | u64::from(user);
        epoch = match EPOCH.compare_exchange(epoch, taken, SeqCst, SeqCst) {
            Ok(_) => taken,
            // Another thread has taken the same one, or the next time is another.
            Err(now) if now & !(TAKEN | 0xffff_ffff) == epoch => now,
            Err(_) => return None,
        };
    }
    if epoch as u32 != user {
        return None;
    }
    let word = epoch & PASSES;
    *own = word;
    set_pass(!interrupted::is_waiting());
    Some(Pass { word, user })
}

/// A thread's user has changed.
pub fn user_changed() {
    let next = |epoch| Some((epoch & !(TAKEN | 0xffff_ffff)) + NEXT);
    let _ = EPOCH.fetch_update(SeqCst, SeqCst, next);
    fence(SeqCst);
    if let Some(page) = page::existing() {
        page.forget_shortcuts();
    }
}

/// Says whether the program finds this library's functions by which the user is changed.
pub fn watch(found: bool) {
    WATCHED.store(found, Relaxed);
}

/// A shortcut was taken in this second.
#[inline(always)]
pub fn at(second: i64) {
    if SECOND.load(Relaxed) != second {
        begin_second(second);
    }
}

#[cold]
#[inline(never)]
fn begin_second(second: i64) {
    SECOND.store(second, Relaxed);
    if MAY_CHANGE.load(Relaxed) {
        user_changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_valid_until_the_user_changes() {
        watch(true);
        let pass = renew_pass().unwrap();
        assert!(pass.is_valid() && pass.word() == tls::pass() && pass.word() != 0);
        assert!(pass.admits(Granted::All) && !pass.admits(Granted::User(pass.user ^ 1)));
        // SAFETY: a plain question.
        assert!(pass.admits(Granted::User(unsafe { libc::geteuid() })));
        user_changed();
        assert!(!pass.is_valid());
        let next = renew_pass().unwrap();
        assert!(next.is_valid() && next.word() != pass.word());
        set_pass(false);
        assert_eq!(tls::pass(), 0);
        set_pass(true);
        assert_eq!(tls::pass(), next.word());
    }
}
