//! V-msgq: message queues (msgget(2), msgop(2), msgctl(2)).
//!
//! A queue is a ring of 128-byte cells ([`cell`]). Positions count up for ever; a position's cell is the position modulo the
//! number of cells, its *lap* the quotient. A message takes consecutive cells. Senders own one end ([`end`]), receivers the other.
//!
//! # Why it is correct
//! * *Fast send*: the cells after the tail are free for this lap; one compare-and-swap of the sending end takes them, checks and
//!   counts bytes and messages, and names the taker. Then the text is written, and the state of the first cell becomes READY by one store:
//!   before it, receivers pass the message by, which is right, since `msgsnd` has not returned.
//! * *Fast receive*: the cell at the head is READY for this lap; one compare-and-swap of the receiving end takes the message. Nobody else
//!   can have it then. Then the text is copied out and the cells are set free for the next lap, the first one last.
//! * *Death in between*: the end names who moved it last and by how many cells. Before the next one moves it, it writes that name into
//!   the cell if the cell is not finished. So every unfinished cell has a name, and whoever finds its bearer dead drops the message: its sender had not
//!   returned, or its receiver took it to the grave, as with the kernel.
//! * *Slow path*: under the queue's lock, with both ends marked SLOW, so that no fast path begins. Unfinished cells of fast paths that
//!   had begun are left alone. Changes go through the redo log.
//! * *No message waits beside a sleeping receiver*: a receiver registers with the sending end SLOW, so later senders come the slow way
//!   and hand their message over. Earlier ones that were not finished are visible as cells that are taken but not READY: as long as
//!   there are such, the receiver looks again soon instead of sleeping. The same holds for senders that wait for room.

mod cell;
mod ctl;
mod deliver;
mod end;
mod get;
mod queue;
mod receive;
mod ring;
mod scan;
mod send;
mod wait;

pub use ctl::{highest, info, set, stat, stat_index, MsgDs, MsgInfo};
pub use get::{get, remove};
pub use receive::receive;
pub use send::send;
pub(crate) use wait::{drop_waiter, reap_process};

/// `MSG_NOERROR`: a text that is too long is cut.
pub const MSG_NOERROR: i32 = 0o10000;
/// `MSG_EXCEPT`: any type but the given one.
pub const MSG_EXCEPT: i32 = 0o20000;
/// `MSG_COPY`: copy the n-th message, leave it in the queue.
pub const MSG_COPY: i32 = 0o40000;
