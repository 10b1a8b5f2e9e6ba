//! Shortcuts of calls: finding one, and remembering another. A shortcut is for callers in one pool with the
//! user of the caller that made it.

use crate::pools::caller::known_in;
use crate::pools::current;
use crate::process::page::{self, Page};
use crate::process::shortcuts::{place, Places};
use crate::process::tls;
use crate::thread::permit;
use core::sync::atomic::{fence, Ordering};
use vshmem_ipc::Granted;
use vshmem_pool::tuning::SHORTCUT_ROUNDS;
use vshmem_pool::Ctx;
use vshmem_wait::spin;

/// The words of a shortcut to an IPC object that the calling thread may take. `of` chooses the kind.
#[inline(always)]
pub fn find<const WORDS: usize>(of: impl Fn(&Page) -> &Places<WORDS>, id: i32) -> Option<[u64; WORDS]> {
    place(of(page::of_shortcuts()), id).read(key(id))
}

/// The key by which the calling thread finds a shortcut.
#[inline(always)]
pub fn key(id: i32) -> u64 {
    current::key(id) ^ tls::permit()
}

/// Pauses before another look at an IPC object that is about to change; false if the caller has looked for
/// long enough.
pub fn looks_again(rounds: u32) -> bool {
    let looks_again = rounds < SHORTCUT_ROUNDS && spin::pays();
    if looks_again {
        spin::pause();
    }
    looks_again
}

/// Remembers a shortcut of the calling process, if `makes` makes one, for the users that this says. `makes`
/// is told whether the pool stays, and can't be taken away.
#[inline]
pub fn remember<const WORDS: usize>(
    of: impl Fn(&Page) -> &Places<WORDS>,
    id: i32,
    makes: impl Fn(&Ctx, bool) -> Option<([u64; WORDS], Granted)>,
) {
    let Some(page) = page::existing() else { return };
    // Another thread may have calls go to another pool, and back again.
    let index = current::place() % page.memberships.len();
    let (place, membership) = (place(of(page), id), &page.memberships[index].me);
    let made = || {
        let stays = page::unpack_staying(membership.load(Ordering::Relaxed)).is_some();
        let mine = permit::renew_permit()?;
        let (words, granted) = makes(&known_in(index)?, stays)?;
        mine.admits(granted).then_some((mine, words))
    };
    if let Some((mine, words)) = place.may_be_written().then(made).flatten() {
        place.write(current::key_in(index, id) ^ mine.word(), &words);
        // If the process is not known in the pool any more, or somebody's credentials have changed: what
        // makes it so does it first, and has shortcuts forgotten then.
        fence(Ordering::SeqCst);
        if membership.load(Ordering::Relaxed) == 0 || !mine.is_valid() {
            place.forget();
        }
    }
}
