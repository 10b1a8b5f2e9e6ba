//! Tuning: how long threads spin, give way, nap and sleep, and how often they try again. All crates that wait
//! have these constants from here; SPECIFICATION.md names the limits that calls promise by them.
//!
//! A name says the unit:
//! * `_ROUNDS` are looks at a word, each followed by a pause of the processor: 10 to 50 ns, 30 as a rule.
//! * `_PAUSES` are such pauses without a look.
//! * `_NS` are nanoseconds of a clock that never goes back.
//! * A [`Duration`] is for how long a thread sleeps at the most.
//! * All others count what their line names.

use core::time::Duration;

// Spinning. A sleep and a wake-up cost some tens of microseconds.

/// Rounds of a wait that spins: some 30 us, so the worst case costs twice what sleeping at once costs.
pub const SPIN_ROUNDS: u32 = 1000;
/// Rounds below which spinning is not begun: some 2 us.
pub const FEWEST_SPIN_ROUNDS: u32 = 60;
/// Rounds of a new try where spinning was given up. Where both sides have come to sleep, the other one must
/// first be woken before it can be fast, so a try has to outlast a wake-up, or they would never find back.
pub const TRY_ROUNDS: u32 = 3 * SPIN_ROUNDS;
/// Rounds across machines for each one on one kernel, since a doorbell or a nap costs so much more.
pub const ROUNDS_ACROSS: u32 = 10;
/// Waits without spinning until a new try; twice as many each time that it fails.
pub const TRY_INTERVAL: u32 = 256;
/// Waits until a new try, at the most.
pub const LONGEST_TRY_INTERVAL: u32 = 4096;
/// Tries across machines for each one on one kernel.
pub const TRIES_ACROSS: u32 = 8;
/// Wakings in a flow that are left without a try, at the most.
pub const LONGEST_FLOW_INTERVAL: u32 = 63;
/// Time since its last sleep after which a process can spend a try each time.
pub const LEISURE_NS: u64 = 1_000_000;

/// Rounds of a P on a remembered set: as long as the answer takes in a ping-pong.
pub const SHORTCUT_ROUNDS: u32 = 40;
/// Attempts of a fast path before it leaves the call to the slow path. Another call is faster once or twice
/// as a rule.
pub const FAST_ATTEMPTS: u32 = 1000;

// Giving way: the processor is left to others between looks.

/// Time for which a caller gives way as long as anything changes.
pub const GIVE_WAY_NS: u64 = 10_000_000;
/// Time for which a caller gives way where nothing changes: longer than it takes to wake the next waiter.
pub const GIVE_WAY_STILL_NS: u64 = 500_000;
/// Times that a caller gives way at the least, since busy processors may be back late.
pub const FEWEST_GIVE_WAYS: u32 = 4;
/// Rounds between two times that a caller gives way.
pub const GIVE_WAY_ROUNDS: u32 = 20;
/// Returns to a semaphore on which giving way is not tried after it was in vain; twice as many each time.
pub const RETURNS_SKIPPED: u32 = 1;
/// Returns on which giving way is not tried, at the most.
pub const MOST_RETURNS_SKIPPED: u32 = 16;
/// Pauses of a sender after another one was first: senders stand in the way of the receiver, too.
pub const SENDER_PAUSES: u32 = 64;
/// Pauses of a receiver after another one was first.
pub const RECEIVER_PAUSES: u32 = 16;
/// Times that these pauses are doubled, at the most.
pub const MOST_DOUBLED: u32 = 2;
/// Times that an attempt pauses. A call that is beaten more often is up against a member that scribbles.
pub const MOST_BEATEN: u32 = 32;

// Sleeping at an IPC object. A sleeper looks now and then whether a process that it waits for is dead. No
// time is a round number, nor are its multiples: a program's alarm that goes off as a sleep's time is up
// would not be seen to have interrupted it.

/// First sleep of a `semop`. It is short, since the caller has not asked for all who may be dead; but longer
/// than a tick of a kernel's clock (4 ms), or each sleep would set the processor's timer and set it back,
/// which in a virtual machine takes as long as the sleep's system call.
pub const FIRST_SEMOP_SLEEP: Duration = Duration::from_micros(5_170);
/// First sleep of a `msgsnd` or `msgrcv`.
pub const FIRST_MESSAGE_SLEEP: Duration = Duration::from_micros(9_370);
/// Longest sleep before the next look.
pub const LONGEST_SLEEP: Duration = Duration::from_micros(243_170);
/// First sleep of a receiver while a sender has begun a message and not finished it.
pub const FIRST_UNFINISHED_SLEEP: Duration = Duration::from_micros(50);
/// Longest sleep of a receiver while a sender has begun a message and not finished it.
pub const LONGEST_UNFINISHED_SLEEP: Duration = Duration::from_millis(1);

/// First nap of a call that waits for another call in the middle of a message.
pub const FIRST_MESSAGE_NAP: Duration = Duration::from_micros(5);
/// Longest nap of a call that waits for another call in the middle of a message.
pub const LONGEST_MESSAGE_NAP: Duration = Duration::from_millis(5);
/// Naps after which a process in the middle of a message counts as stopped. One that is only not running now,
/// though it might, takes no longer.
pub const STOPPED_AFTER: Duration = Duration::from_millis(20);
/// Naps after which a call gives up a message that another call does not finish.
pub const LONGEST_MESSAGE_WAIT: Duration = Duration::from_secs(10);

/// Looks of a newcomer to a full pool whether the process that cleans up has made room.
pub const SLOT_LOOKS: u32 = 200;
/// Nap between two of these looks.
pub const SLOT_NAP: Duration = Duration::from_millis(5);

// Waiting where other machines change words.

/// First nap. The kernel's timer slack makes it about 50 us longer.
pub const FIRST_NAP: Duration = Duration::from_micros(2);
/// Longest nap: how late a sleeper may be.
pub const LONGEST_NAP: Duration = Duration::from_millis(2);
/// Time without a heartbeat after which a back end is dead.
pub const SILENCE_NS: u64 = 3_000_000_000;
/// Time in which a back end that lives answers a memory request.
pub const ANSWER_NS: u64 = 3_000_000_000;
/// Repetitions of a memory request after a lost answer, each for as long as the first: a machine that is
/// paused for long loses one.
pub const ANSWERS_LOST: u32 = 2;
/// Sleep between two looks for an answer.
pub const ANSWER_SLEEP: Duration = Duration::from_millis(1);
/// Passes of the back end after which an answer is thrown away that its requester has not fetched.
pub const UNFETCHED_PASSES: u8 = 2;
/// Looks for the lock by which one process of a kernel at a time marks a pool's file, or makes its entry.
pub const MARKING_LOOKS: u32 = 1000;
/// Nap between two of these looks.
pub const MARKING_NAP_NS: i64 = 1_000_000;

// Waiting for a lock. Owners need microseconds.

/// Time for which others are given way before the first sleep.
pub const LOCK_AWAKE_NS: u64 = 200_000;
/// First sleep. Nobody is woken by a death, so sleepers look again.
pub const FIRST_LOCK_SLEEP: Duration = Duration::from_millis(1);
/// Longest sleep.
pub const LONGEST_LOCK_SLEEP: Duration = Duration::from_millis(50);
/// Sleep from which on a wait counts as one that takes long, in which signals are listened for.
pub const LISTENING_SLEEP: Duration = Duration::from_millis(8);
/// Time for which a wait may not be ended by a signal.
pub const DEAF_NS: u64 = 50_000_000;
/// Time for which an owner that lives may keep others waiting: for one whose machine is paused, or for a
/// scribbled lock word.
pub const LOCK_NS: u64 = 20_000_000_000;
/// Time for a call that can note instead what is to be done: longer than a busy machine keeps an owner from
/// running.
pub const BRIEF_LOCK_NS: u64 = 1_000_000_000;
/// Time for a call that can do without the lock: as long as it takes to find that an owner is dead, and some
/// more.
pub const HURRIED_LOCK_NS: u64 = 20_000_000;
