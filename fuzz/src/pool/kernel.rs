//! The kernel below an honest process, whose enemy writes while it is asked. Time is a number that grows when somebody waits.

use super::enemy::Write;
use crate::input::Input;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use vshmem_ipc::{Cred, Kernel, Waited};
use vshmem_pool::Mem;

/// The honest process's pid.
pub const ME: u32 = 100;
/// A pid that lives, and one that is dead.
pub const LIVING: u32 = 101;
pub const DEAD: u32 = 102;

/// Nanoseconds that a call may take: 20 seconds for each lock that it may need. Those that clean up need every construct's.
const DEADLINE: u64 = 40 * 20_000_000_000;
/// A question to the kernel takes so long.
const QUESTION: u64 = 200;
/// How often a thread that can get signals waits in a call, before one ends that.
const WAKES: u32 = 6;
/// Writes while a call is under way.
const MOST_WRITES: usize = 8;

/// The kernel of one input.
pub struct Fuzzed {
    mem: Mem,
    cred: Cred,
    /// What processes that the scene does not know are: a bit of it for each pid.
    strangers: u32,
    /// A device's memory is seen, as in a machine.
    in_machine: bool,
    clock: Cell<u64>,
    begun: Cell<u64>,
    waits: Cell<u32>,
    /// Signals are blocked.
    deaf: Cell<bool>,
    /// In this call: questions asked, and what the enemy writes at which of them.
    asked: Cell<u32>,
    writes: RefCell<Vec<(u32, Write)>>,
    /// How often memory can be had.
    room: Cell<u32>,
    signal: Cell<bool>,
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
            cred: Cred {
                uid,
                gid: uid,
                caps: if how & 2 == 0 { 0 } else { u64::MAX },
            },
            strangers: u32::from(how >> 3) * 0x0842_1084,
            in_machine: how & 4 != 0,
            clock: Cell::new(1 << 40),
            begun: Cell::new(1 << 40),
            waits: Cell::new(0),
            deaf: Cell::new(false),
            asked: Cell::new(0),
            writes: RefCell::default(),
            room: Cell::new(u32::MAX),
            signal: Cell::new(false),
        }
    }

    /// Before a call: what the enemy does meanwhile.
    pub fn plan(&self, input: &mut Input) {
        self.begun.set(self.clock.get());
        self.asked.set(0);
        self.waits.set(0);
        let how = input.byte();
        self.signal.set(how & 16 != 0);
        self.room.set(if how & 32 == 0 { u32::MAX } else { 0 });
        let mut writes = self.writes.borrow_mut();
        writes.clear();
        let some = usize::from(how & 15).min(MOST_WRITES);
        writes.extend((0..some).map(|_| {
            let when = u32::from(input.byte());
            (when, Write::choose(self.mem, input))
        }));
    }

    /// After a call: has it come back in time?
    pub fn is_in_time(&self) {
        let took = self.clock.get() - self.begun.get();
        assert!(took < DEADLINE, "a call took {} s", took / 1_000_000_000);
    }

    /// Each question begins here.
    fn asked(&self) {
        let now = self.asked.get();
        self.asked.set(now.wrapping_add(1));
        self.clock.set(self.clock.get() + QUESTION);
        let due = |w: &&(u32, Write)| w.0 == now;
        for (_, write) in self.writes.borrow().iter().filter(due) {
            write.carry_out(self.mem);
        }
        if now & 0xffff == 0xffff {
            self.is_in_time();
        }
    }
}

impl Kernel for Fuzzed {
    fn alive(&self, _slot: u32, pid: u32, _started: u64) -> bool {
        self.asked();
        match pid {
            ME | LIVING => true,
            DEAD => false,
            _ => self.strangers >> (pid % 32) & 1 != 0,
        }
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
        !self.in_machine && self.mem.zero(offset, len)
    }
    fn room(&self) -> Option<u64> {
        Some(self.mem.len() as u64)
    }
    fn now(&self) -> i64 {
        self.asked();
        1_700_000_000 + (self.clock.get() >> 30) as i64
    }
    fn monotonic(&self) -> u64 {
        self.asked();
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
        if word.load(SeqCst) != expected {
            return Waited::Woken;
        }
        let time = timeout.unwrap_or(Duration::from_millis(1));
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.clock.set(self.clock.get().saturating_add(nanos));
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
    fn spin_rounds(&self) -> u32 {
        0
    }
}
