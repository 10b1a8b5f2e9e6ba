//! The kernel that the calling process runs on, as far as a pool needs it.

use crate::atomic::AtomicU32;
use crate::layout::PAGE;
use core::time::Duration;

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or the word had changed already, or for no reason: look at the word.
    Woken,
    /// The time was up.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// A signal handler forked, and this is the child: it is its parent who waits. Nothing that belongs to
    /// the wait may be touched.
    Forked,
}

/// Effective credentials of a process, as `ipcperms` in Linux uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Effective capabilities, a bit each as in capabilities(7).
    pub caps: u64,
}

/// The kernel below: life, signals, memory, time, credentials, sleep. Implementations use no heap and keep no
/// lock, so that they can be called from signal handlers. By default a function answers as a kernel does that
/// can't do what is asked, or does not know.
pub trait Kernel: Sync {
    /// Is the process of this kernel that took `slot` alive? False only if that is certain.
    fn alive(&self, slot: u32, pid: u32, started: u64) -> bool;
    /// Is the process of this kernel that took `slot` alive, or was it a few dozen microseconds ago? For fast
    /// paths, where asking the kernel costs too much.
    fn alive_lately(&self, slot: u32, pid: u32, started: u64) -> bool {
        self.alive(slot, pid, started)
    }
    /// After [`Kernel::alive`] said no: is it only that the process runs another program now (exec)? It then
    /// has lost what was mapped, but keeps its `SEM_UNDO` adjustments.
    fn has_executed(&self, _pid: u32, _started: u64) -> bool {
        false
    }
    /// Is the process of this kernel that took a slot stopped now, by a signal or a debugger? False where
    /// that can't be known.
    fn is_stopped(&self, _pid: u32, _started: u64) -> bool {
        false
    }
    /// Is anything mapped by the source of this kernel with that number, by whatever process? False only if
    /// that is certain.
    fn is_mapped(&self, _source: u64) -> bool {
        false
    }
    /// May others have what the calling process has mapped, without the pool's knowledge?
    fn has_heirs(&self) -> bool {
        false
    }
    /// Blocks every signal for the calling thread; returns the mask before.
    fn block_signals(&self) -> u64;
    /// Puts the mask back.
    fn restore_signals(&self, old: u64);
    /// Signals are blocked: is there one that a handler will get when the mask is `old` again?
    fn handler_waits(&self, _old: u64) -> bool {
        false
    }
    /// Signals are blocked: is there one that does anything when the mask is `old` again?
    fn signal_waits(&self, old: u64) -> bool {
        self.handler_waits(old)
    }
    /// Backs a range of the pool with memory, so that touching it can't fail; false if there is no room.
    fn reserve(&self, offset: u64, len: u64) -> bool;
    /// Gives the memory of a range back to the host; true if the range reads as zeros from now on.
    fn release(&self, _offset: u64, _len: u64) -> bool {
        false
    }
    /// Fills a range that has memory, and is not mapped, with zeros; false if that can't be done.
    fn zero(&self, _offset: u64, _len: u64) -> bool {
        false
    }
    /// The size of a segment in bytes as the process was told by itself, whatever the pool says now.
    fn told(&self, _segment: i32) -> Option<u64> {
        None
    }
    /// The number of bytes of a range of the pool that have memory, if that can be told cheaply.
    fn backed(&self, _offset: u64, _len: u64) -> Option<u64> {
        None
    }
    /// Bytes that the pool has and could get of memory, taken together, if that is known.
    fn available_memory(&self) -> Option<u64> {
        None
    }
    /// Seconds since the epoch.
    fn now(&self) -> i64;
    /// Nanoseconds of a clock that never goes back.
    fn monotonic(&self) -> u64;
    /// The caller's credentials at this moment.
    fn cred(&self) -> Cred;
    /// The caller's effective user at this moment: cheaper than all of [`Kernel::cred`].
    fn uid(&self) -> u32 {
        self.cred().uid
    }
    /// Do capabilities of this kernel's processes count for all of the pool? So it is on the host, whose
    /// memory it is. Those of a virtual machine count for what was made in the same machine.
    fn rules_pool(&self) -> bool {
        true
    }
    /// Is the caller's effective group, or one of its supplementary groups, `gid`?
    fn in_group(&self, gid: u32) -> bool {
        self.cred().gid == gid
    }
    /// Is the calling process another one than `pid`: its child, by a handler's fork in the middle of the
    /// call?
    fn is_child_of(&self, _pid: u32) -> bool {
        false
    }
    /// From now on the calling thread stands in a queue of waiters, with the record that `word` is in;
    /// `None`: no more. Called while signals are blocked, so that a handler which leaves the wait for good,
    /// wherever it runs, leaves word of it.
    fn stands(&self, _word: Option<&AtomicU32>) {}
    /// Sleeps while `word` holds `expected`, `timeout` at the most.
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited;
    /// Nanoseconds that the caller may wait for a lock in all; `None`: as long as its owners make progress.
    /// Less than 3 ms is not enough to take a lock over from the dead.
    fn patience(&self) -> Option<u64> {
        None
    }
    /// Does the calling thread hold something that other threads of its process stand in line for? Then it
    /// must not sleep for others: it lets that go first.
    fn is_inside(&self) -> bool {
        false
    }
    /// Wakes up to `n` waiters of `word`; returns how many, 0 if that is unknown.
    fn wake(&self, word: &AtomicU32, n: u32) -> u32;
    /// Does a thread certainly sleep on `word` now? Then its process lives.
    fn has_sleeper(&self, _word: &AtomicU32) -> bool {
        false
    }
    /// Rounds of looking at a word that are worth it before sleeping; 0 on a single processor.
    fn spin_rounds(&self) -> u32 {
        0
    }
    /// Rounds of looking at a word that are worth it where changes come in a flow, as messages do: that the
    /// caller has just woken somebody is then no reason not to spin.
    fn rounds_in_flow(&self) -> u32 {
        self.spin_rounds()
    }
    /// Rounds of looking at a word that tell whether it changes all the time, where none are worth it.
    fn glance(&self) -> u32 {
        0
    }
    /// Lets others of this kernel have the processor without sleeping: a lock is held for microseconds, and
    /// who watches the process must not take that for a wait. False: it can't.
    fn give_way(&self) -> bool {
        false
    }
    /// Was it worth it the last time? For a few rounds before anything dearer is done.
    fn spinning_pays(&self) -> bool {
        false
    }
    /// Leaves a word that many want alone for so many pauses.
    fn back_off(&self, _pauses: u32) {}
    /// Called in each round of spinning: nothing else happens in this thread meanwhile.
    fn spinning(&self) {
        core::hint::spin_loop();
    }
    /// Tells whether spinning was worth it the last time, so that `spin_rounds` may adapt.
    fn spun(&self, _worth_it: bool) {}
}

/// Sees to it that a record of `len` bytes has memory, the next one of a table that is used in order: unless
/// it shares its page with the one before it, the page is given memory.
pub fn back_next(kernel: &dyn Kernel, table: u64, index: u64, len: u64) -> bool {
    let at = table + index * len;
    let shares = index > 0 && at % PAGE >= len;
    shares || kernel.reserve(at, (at + len).next_multiple_of(PAGE) - at)
}
