//! Permits, which admit threads to shortcuts: one word each, so that nothing has to be asked.
//!
//! A shortcut is for one effective user, or for everybody. A thread's *permit* says since which *epoch* the
//! thread has been known to have the user that the epoch is for. It is a part of the key by which a shortcut
//! is found. A change of user begins another epoch and has all shortcuts forgotten, so threads that have a
//! permit of the one before find none. They ask who they are, and remember shortcuts anew.
//!
//! Users are changed by four functions of libc, and by `syscall`. This library has functions of these names,
//! which call libc's and begin an epoch (`capi/names/user_ids.rs`). Where the program does not find them
//! before libc's, as where this library is opened late, a thread whose user can change gets no permit. There
//! remain programs that make the system call by the instruction itself, which no libc does but for its own
//! functions. Then the shortcuts of a process that may do so end with the second, and so does what they let
//! through.

use crate::process::page;
use crate::process::tls::{self, set_permit};
use crate::thread::{cred, interrupted};
use core::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU64};
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use vshmem_ipc::Granted;

/// The epoch and, if somebody has asked since it began, [`TAKEN`] and the user that it is for:
/// `{user:32, TAKEN:1, epoch:31}`.
static EPOCH: AtomicU64 = AtomicU64::new(0);
const TAKEN: u64 = 1 << 32;
const NEXT: u64 = 1 << 33;

/// Bits of permits: [`TAKEN`], so that there is no permit 0, and as much of the epoch as keys have room for.
/// A thread would have to sleep while the user is changed 2^26 times to take an epoch for another.
pub const PERMITS: u64 = ((1 << 27) - 1) << 32;

/// Whether the user of a thread of this process may change.
static MAY_CHANGE: AtomicBool = AtomicBool::new(false);
/// Whether the program finds this library's functions by which the user is changed.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// The second in which a shortcut was last taken.
static SECOND: AtomicI64 = AtomicI64::new(0);

/// A permit, and the user whom it is for.
#[derive(Clone, Copy)]
pub struct Permit {
    word: u64,
    user: u32,
}

impl Permit {
    /// The permit as a part of keys.
    pub fn word(self) -> u64 {
        self.word
    }

    /// Is this granted to its user?
    pub fn admits(self, granted: Granted) -> bool {
        match granted {
            Granted::All => true,
            Granted::User(user) => user == self.user,
        }
    }

    /// Has no thread's user changed since its epoch began?
    pub fn is_valid(self) -> bool {
        EPOCH.load(SeqCst) & PERMITS == self.word
    }
}

/// The calling thread's permit as it is now. The thread has it from now on. `None`: it gets none, since its
/// user changes unseen, or differs from that of another thread.
#[cold]
pub fn renew_permit() -> Option<Permit> {
    // Before the kernel is asked.
    let mut epoch = EPOCH.load(SeqCst);
    // SAFETY: the thread's own block.
    let own = unsafe { &mut (*tls::thread()).own_permit };
    let user = if epoch & TAKEN != 0 && *own == epoch & PERMITS {
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
    let word = epoch & PERMITS;
    *own = word;
    set_permit(!interrupted::must_look());
    Some(Permit { word, user })
}

/// Begins another epoch, since a thread's user has changed.
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

/// Notes that a shortcut was taken in this second.
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
    fn a_permit_is_valid_until_the_user_changes() {
        watch(true);
        let permit = renew_permit().unwrap();
        assert!(permit.is_valid() && permit.word() == tls::permit() && permit.word() != 0);
        assert!(permit.admits(Granted::All) && !permit.admits(Granted::User(permit.user ^ 1)));
        // SAFETY: a plain question.
        assert!(permit.admits(Granted::User(unsafe { libc::geteuid() })));
        user_changed();
        assert!(!permit.is_valid());
        let next = renew_permit().unwrap();
        assert!(next.is_valid() && next.word() != permit.word());
        set_permit(false);
        assert_eq!(tls::permit(), 0);
        set_permit(true);
        assert_eq!(tls::permit(), next.word());
    }
}
