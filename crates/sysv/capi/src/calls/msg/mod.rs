//! `msgget`, `msgsnd`, `msgrcv`, `msgctl`.

mod ctl;
mod receive;
mod send;

pub use ctl::{ctl, ds, get, limits, MSG_INFO, MSG_STAT, MSG_STAT_ANY};
pub use receive::{receive, receive_or};
pub use send::{send, send_or};

use crate::calls::shortcut;
use vshmem_ipc::msg::shortcut::Shortcut;

/// The offset of a message's text in the program's memory: its type comes first.
const TEXT_AT: usize = size_of::<i64>();

/// Remembers a queue: the next message takes a shortcut.
#[cold]
#[inline(never)]
fn remember(id: i32) {
    shortcut::remember(
        |page| &page.queues,
        id,
        |ctx, stays| Shortcut::to(ctx, id, stays).map(|(shortcut, granted)| (shortcut.words(), granted)),
    );
}
