//! The kernel below an honest process, whose enemy writes while it is asked. Time is a number that grows when
//! somebody waits.

use super::enemy::Deed;
use super::lies::Names;
use crate::input::Input;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use vshmem_ipc::{Cred, Kernel, Waited};
use vshmem_pool::budget::ASK;
use vshmem_pool::layout::WAITING;
use vshmem_pool::tuning::LOCK_NS;
use vshmem_pool::Mem;

/// The honest process's pid.
pub const ME: u32 = 100;
/// A pid that lives, one that is dead, and one that is stopped for a while.
pub const LIVING: u32 = 101;
pub const DEAD: u32 = 102;
pub const STOPPED: u32 = 103;

/// Nanoseconds for which the one who is stopped stays so, as who waits for it sees it.
const STANDSTILL: u64 = 100_000_000_000;
/// Nanoseconds that a call may wait, between the sleeps that its caller wants: that long for all locks
/// together, and some pauses more, the last of which are those of locks that are found to be too much.
const DEADLINE: u64 = LOCK_NS + 2_000_000_000;
/// The processor's time for the same, whatever the call's budget. A call with all of a budget needs a third
/// of a second, and several times that where its memory is watched.
const BUSY: u64 = 6_000_000_000;
/// A question to the kernel takes so long.
const QUESTION: u64 = 200;
/// How often a thread that can get signals waits in a call, before one ends that.
const WAKES: u32 = 6;
/// What the enemy does while a call is under way, at the most.
const MOST_DEEDS: usize = 8;

/// Bytes that can be given back while an input is played.
const MOST_RELEASED: u64 = 8 << 20;
/// A call that is made again is made so often in all.
const OFTEN: u32 = 8;

/// The kernel of one input.
pub struct Fuzzed {
    mem: Mem,
    cred: Cred,
    /// What processes that the scene does not know are: a bit of it for each pid.
    strangers: u32,
    /// A device's memory is seen, as in a machine.
    in_machine: bool,
    clock: Cell<u64>,
    span: Span,
    waits: Cell<u32>,
    /// Signals are blocked.
    deaf: Cell<bool>,
    /// In this call: questions asked, and what the enemy does at which of them.
    asked: Cell<u32>,
    deeds: RefCell<Vec<(u32, Deed)>>,
    /// At which of them the next is due.
    due: Cell<u32>,
    /// The word of a lock, and the owners that it names by turns whenever somebody waits.
    flutters: Cell<Option<(u64, [u32; 2])>>,
    /// How often memory can be had, and how many bytes can be given back: here that takes time.
    room: Cell<u32>,
    released: Cell<u64>,
    signal: Cell<bool>,
}

/// A call, or what of it lies between two sleeps that its caller wants.
#[derive(Default)]
struct Span {
    /// When it began: by the kernel's clock, by the processor's time.
    begun: Cell<u64>,
    busy_at: Cell<u64>,
    /// Questions that it has asked, and how many it may.
    asked: Cell<u64>,
    most: Cell<u64>,
    /// Nanoseconds for which it has waited for who was stopped, and those of its last wait, which may have
    /// been one.
    stood: Cell<u64>,
    paused: Cell<u64>,
}

/// The processor's time that this thread has had, in nanoseconds.
fn busy() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

// SAFETY: there is one thread.
unsafe impl Sync for Fuzzed {}

impl Fuzzed {
    /// A kernel, as the input wants it.
    pub fn new(mem: Mem, input: &mut Input) -> Fuzzed {
        let how = input.byte();
        let uid = if how & 1 == 0 { 1000 } else { 2000 };
        Fuzzed {
            mem,
            cred: Cred { uid, gid: uid, caps: if how & 2 == 0 { 0 } else { u64::MAX } },
            strangers: u32::from(how >> 3) * 0x0842_1084,
            in_machine: how & 4 != 0,
            clock: Cell::new(1 << 40),
            span: Span::default(),
            waits: Cell::new(0),
            deaf: Cell::new(false),
            asked: Cell::new(0),
            deeds: RefCell::default(),
            due: Cell::new(u32::MAX),
            flutters: Cell::new(None),
            room: Cell::new(u32::MAX),
            released: Cell::new(MOST_RELEASED),
            signal: Cell::new(false),
        }
    }

    /// Before a call: what the enemy does meanwhile. Returns how often it is made.
    pub fn plan(&self, input: &mut Input) -> u32 {
        let how = input.byte();
        self.signal.set(how & 16 != 0);
        self.room.set(if how & 32 == 0 { u32::MAX } else { 0 });
        let names = Names::of(self.mem);
        let flutters = (how & 64 != 0).then(|| names.flutter(input));
        self.flutters.set(flutters);
        let mut deeds = self.deeds.borrow_mut();
        deeds.clear();
        let some = usize::from(how & 15).min(MOST_DEEDS);
        deeds.extend((0..some).map(|_| {
            let when = u32::from(input.byte());
            (when, Deed::choose(self.mem, input))
        }));
        if how & 128 == 0 {
            1
        } else {
            OFTEN
        }
    }

    /// A call begins that has so much to spend, and may ask `more` besides, as who looks at each entry of a
    /// table.
    pub fn begin(&self, budget: u64, more: u64) {
        self.span.most.set(more);
        self.may_spend(budget);
        self.asked.set(0);
        self.waits.set(0);
        let first = self.deeds.borrow().iter().map(|deed| deed.0).min();
        self.due.set(first.unwrap_or(u32::MAX));
        self.begin_span();
    }

    /// What is called has a budget of its own as well.
    pub fn may_spend(&self, budget: u64) {
        // Who asks pays for one question, and looks at the clock before and after; signals may be blocked
        // before that, and let through after.
        let most = &self.span.most;
        most.set(most.get() + budget / ASK * 5);
    }

    fn begin_span(&self) {
        self.span.begun.set(self.clock.get());
        self.span.busy_at.set(busy());
        self.span.asked.set(0);
        self.span.stood.set(0);
        self.span.paused.set(0);
    }

    /// Has it come back in time? By all clocks that there are: what was waited, what was asked, and the
    /// processor's time.
    pub fn is_in_time(&self) {
        let span = &self.span;
        let took = self.clock.get() - span.begun.get();
        let most = DEADLINE + span.stood.get();
        assert!(took < most, "a call took {} s", took / 1_000_000_000);
        let (asked, most) = (span.asked.get(), span.most.get());
        assert!(asked <= most, "a call asked {asked} questions, not {most}");
        let took = busy() - span.busy_at.get();
        assert!(took < BUSY, "a call was busy for {} ms", took / 1_000_000);
    }

    fn is_alive(&self, pid: u32) -> bool {
        match pid {
            ME | LIVING | STOPPED => true,
            DEAD => false,
            _ => self.strangers >> (pid % 32) & 1 != 0,
        }
    }

    /// Each question begins here.
    fn asked(&self) {
        let now = self.asked.get();
        self.asked.set(now.wrapping_add(1));
        self.span.asked.set(self.span.asked.get() + 1);
        self.clock.set(self.clock.get() + QUESTION);
        if now == self.due.get() {
            let deeds = self.deeds.borrow();
            let due = |deed: &&(u32, Deed)| deed.0 == now;
            deeds.iter().filter(due).for_each(|d| d.1.carry_out(self.mem));
            let later = deeds.iter().map(|deed| deed.0).filter(|at| *at > now);
            self.due.set(later.min().unwrap_or(u32::MAX));
        }
        if now & 0xfff == 0xfff {
            self.is_in_time();
        }
    }

    /// Somebody waits for a lock, whose word changes.
    fn flutter(&self) {
        let Some((at, owners)) = self.flutters.get() else {
            return;
        };
        if let Some(word) = self.mem.at::<AtomicU32>(at) {
            word.store(owners[self.asked.get() as usize / 2 % 2], SeqCst);
        }
    }
}

impl Kernel for Fuzzed {
    fn alive(&self, _slot: u32, pid: u32, _started: u64) -> bool {
        self.asked();
        self.is_alive(pid)
    }
    fn alive_lately(&self, slot: u32, pid: u32, started: u64) -> bool {
        // Who lives is known to do so for a while.
        self.is_alive(pid) || self.alive(slot, pid, started)
    }
    fn is_stopped(&self, pid: u32, _started: u64) -> bool {
        self.asked();
        let stood = self.span.stood.get();
        let stands = pid == STOPPED && stood < STANDSTILL;
        if stands {
            self.span.stood.set(stood + self.span.paused.take());
        }
        stands
    }
    fn block_signals(&self) -> u64 {
        self.asked();
        self.deaf.replace(true).into()
    }
    fn restore_signals(&self, old: u64) {
        self.asked();
        self.deaf.set(old != 0);
    }
    fn handler_waits(&self, _old: u64) -> bool {
        self.signal.get()
    }
    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.asked();
        let left = self.room.get();
        self.room.set(left.saturating_sub(1));
        left > 0 && self.mem.bytes(offset, len).is_some()
    }
    fn release(&self, offset: u64, len: u64) -> bool {
        self.asked();
        let left = self.released.get().checked_sub(len);
        self.released.set(left.unwrap_or(0));
        left.is_some() && !self.in_machine && self.mem.zero(offset, len)
    }
    fn available_memory(&self) -> Option<u64> {
        Some(self.mem.len() as u64)
    }
    fn now(&self) -> i64 {
        self.asked();
        1_700_000_000 + (self.clock.get() >> 30) as i64
    }
    fn monotonic(&self) -> u64 {
        // No question: each one's time is taken.
        self.clock.set(self.clock.get() + 20);
        self.clock.get()
    }
    fn cred(&self) -> Cred {
        self.asked();
        self.cred
    }
    fn rules_pool(&self) -> bool {
        !self.in_machine
    }
    fn in_group(&self, gid: u32) -> bool {
        self.cred.gid == gid
    }
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        self.asked();
        self.flutter();
        if word.load(SeqCst) != expected {
            // Who waits for a lock that never stands still looks at it for as long as it waits, and at the
            // clock: that is what ends it.
            self.span.most.set(self.span.most.get() + 4);
            return Waited::Woken;
        }
        let sleeps = expected == WAITING;
        if sleeps {
            assert!(!self.deaf.get(), "a call sleeps, and no signal can end that");
            self.is_in_time();
        }
        let time = timeout.unwrap_or(Duration::from_millis(1));
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.clock.set(self.clock.get().saturating_add(nanos));
        self.span.paused.set(nanos);
        if sleeps {
            self.begin_span();
        }
        if !self.deaf.get() {
            self.waits.set(self.waits.get() + 1);
        }
        if !self.deaf.get() && self.waits.get() > WAKES {
            Waited::Interrupted
        } else if timeout.is_some() {
            Waited::TimedOut
        } else {
            Waited::Woken
        }
    }
    fn wake(&self, _word: &AtomicU32, _n: u32) -> u32 {
        self.asked();
        0
    }
}
