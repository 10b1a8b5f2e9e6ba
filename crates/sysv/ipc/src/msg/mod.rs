//! V-msgq: message queues (msgget(2), msgop(2), msgctl(2)).
//!
//! A queue is a [`ring`] of 64-byte cells. Positions count up for ever; a position's cell is the position
//! modulo the number of cells, its *lap* the quotient. A message takes consecutive cells, and has a [`mark`]
//! beside the first one, which counts only in its own lap. Senders own one end ([`end`]), receivers the
//! other. Cells are free up to a position that receivers move on ([`done`]).
//!
//! # Why it is correct
//! * *Fast send*: there are free cells after the tail; one compare-and-swap of the sending end takes them,
//!   checks and counts bytes and messages, and names the taker. Then the text is written, and the mark of the
//!   first cell becomes READY by one store: before it, receivers pass the message by, which is right, since
//!   `msgsnd` has not returned. Marks of earlier laps can't be taken for it: they are swept away long before
//!   laps come round ([`space`]).
//! * *Fast receive*: the mark at the head is READY in this lap; one compare-and-swap of the receiving end
//!   takes the message. Nobody else can have it then. Then the text is copied out, and the cells are set free
//!   ([`done`]), which in turn writes nothing near the text.
//! * *Death in between*: the end names the process that moved it last, and by how many cells. Before the next
//!   one moves it, it writes that name into the mark if the message is not finished. So every unfinished
//!   message has a name, and a process that finds its bearer dead drops the message: its sender had not
//!   returned, or its receiver took it to the grave, as with the kernel.
//! * *Slow path*: under the queue's lock, with both ends marked SLOW, so that no fast path begins. Unfinished
//!   cells of fast paths that had begun are left alone. Changes go through the redo log.
//! * *A process that is stopped in the middle* keeps its cells, but not the queue: that leaves the ring and
//!   goes on in another ([`retired`]).
//! * *No message waits beside a sleeping receiver*: a receiver registers with the sending end SLOW, so later
//!   senders come the slow way and hand their message over. Earlier ones that were not finished are visible
//!   as cells that are taken but not READY: as long as there are such, the receiver looks again soon instead
//!   of sleeping. The same holds for senders that wait for room.

mod cancel;
pub(crate) mod check;
mod choose;
mod ctl;
mod deliver;
mod done;
mod end;
mod get;
mod lock;
mod mark;
#[cfg(all(test, feature = "model"))]
mod model;
mod name;
mod pause;
mod queue;
mod receive;
mod remove;
mod retired;
mod ring;
mod scan;
mod send;
pub mod shortcut;
mod space;
mod spin;
mod take;
mod wait;
mod waiter;
mod wary;

pub(crate) use cancel::{drop_waiter, interrupt, reap_process};
pub use ctl::{highest, info, set, stat, stat_index, MsgDs, MsgInfo};
pub use get::get;
pub use receive::receive;
pub(crate) use remove::finish_removals;
pub use remove::remove;
pub use send::{send, Outgoing};

/// `MSG_NOERROR`: a text that is too long is cut.
pub const MSG_NOERROR: i32 = 0o10000;
/// `MSG_EXCEPT`: any type but the given one.
pub const MSG_EXCEPT: i32 = 0o20000;
/// `MSG_COPY`: copy the n-th message, leave it in the queue.
pub const MSG_COPY: i32 = 0o40000;
