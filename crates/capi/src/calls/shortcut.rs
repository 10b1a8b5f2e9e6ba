//! Calls that remember the IPC object that they are on. A shortcut is for callers with the user of the one that
//! made it, in one pool.

use crate::page::{self, Page};
use crate::shortcuts::{place, Places};
use crate::{cred, interrupted, state};
use core::sync::atomic::{fence, Ordering};
use vshmem_ipc::Granted;
use vshmem_pool::Ctx;

/// The words of a shortcut to an IPC object that the calling thread may take. `of` chooses the kind.
#[inline(always)]
pub fn find<const WORDS: usize>(of: impl Fn(&Page) -> &Places<WORDS>, id: i32) -> Option<[u64; WORDS]> {
    let page = page::existing().filter(|_| !interrupted::is_waiting())?;
    place(of(page), id).read(state::current_key(id), cred::is_of)
}

/// Remembers a shortcut that `makes` makes, if it does: the calling process's, for whom it says.
#[inline]
pub fn remember<const WORDS: usize>(
    of: impl Fn(&Page) -> &Places<WORDS>,
    id: i32,
    makes: impl Fn(&Ctx) -> Option<([u64; WORDS], Granted)>,
) {
    let Some(page) = page::existing() else { return };
    let (place, key, pool) = (place(of(page), id), state::current_key(id), state::current());
    let made = || {
        let (words, granted) = makes(&state::known()?)?;
        Some((cred::word(granted)?, words))
    };
    if let Some((cred, words)) = place.may_be_written().then(made).flatten() {
        place.write(key, cred, &words);
        // If the pool is another by now, or the process is not known there any more: what makes it so does it
        // first, and has shortcuts forgotten then.
        fence(Ordering::SeqCst);
        if state::current_key(id) != key || page.memberships[pool].me.load(Ordering::Relaxed) == 0 {
            place.forget();
        }
    }
}
