//! A process of the world, and the kernel as it sees it.

use crate::world::{world, Task};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;
use vshmem_ipc::{liveness, Ctx};
use vshmem_pool::{Budget, Cred, Kernel, ProcId, Waited};

/// A process of the world, and the kernel as it sees it.
pub struct Process {
    pid: AtomicU32,
    slot: AtomicU32,
    generation: AtomicU32,
    dead: AtomicBool,
    boot: u8,
    member: AtomicU32,
    /// It dies after so many more stores; 0: it does not.
    fuse: AtomicU64,
    /// It is stopped for a while after so many more stores; 0: it is not.
    stall: AtomicU64,
}

impl Process {
    /// A new process, with a slot.
    pub fn new() -> &'static Process {
        let p = Process::newcomer(7);
        p.start(Process::claim).wait();
        p
    }

    /// One that has not joined yet, of the kernel with that boot id.
    pub fn newcomer(boot: u8) -> &'static Process {
        let p: &'static Process = Box::leak(Box::new(Process {
            pid: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            boot,
            member: AtomicU32::new(0),
            fuse: AtomicU64::new(0),
            stall: AtomicU64::new(0),
        }));
        p.pid.store(world().add(p), Relaxed);
        p
    }

    /// Joins the pool and takes a slot.
    pub fn claim(&'static self) {
        let pool = world().pool();
        let member = pool.join([self.boot; 16], b"test").expect("a member");
        self.member.store(member.into(), Relaxed);
        let me = liveness::claim(pool, self, member, self.pid(), 1, &mut |_| true);
        let me = me.expect("a process slot");
        self.slot.store(me.slot, Relaxed);
        self.generation.store(me.generation.into(), Relaxed);
    }

    /// A process that was made by fork: its slot is claimed by its parent.
    pub fn child_of(&'static self, parent: &'static Process) {
        let pool = world().pool();
        let member = parent.member.load(Relaxed) as u16;
        self.member.store(member.into(), Relaxed);
        let me = liveness::claim(pool, parent, member, self.pid(), 1, &mut |_| true);
        let me = me.expect("a process slot");
        self.slot.store(me.slot, Relaxed);
        self.generation.store(me.generation.into(), Relaxed);
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.pid.load(Relaxed)
    }

    /// Its name.
    pub fn id(&self) -> ProcId {
        ProcId { slot: self.slot.load(Relaxed), generation: self.generation.load(Relaxed) as u16 }
    }

    /// What the library's calls need.
    pub fn context(&'static self) -> Ctx<'static> {
        Ctx {
            pool: world().pool(),
            kernel: self,
            me: self.id(),
            pid: self.pid(),
            namespace: 0,
            member: self.member.load(Relaxed) as u16,
            budget: Budget::default(),
        }
    }

    /// It is stopped for a while after `stall` stores that are seen, and dies after `fuse`; 0: it is not, or
    /// does not.
    pub fn set_fate(&self, stall: u64, fuse: u64) {
        self.stall.store(stall, Relaxed);
        self.fuse.store(fuse, Relaxed);
    }

    /// It has stored something. Returns if it lives, as late as that may be.
    pub fn meets_fate(&self) {
        if burns_down(&self.fuse) {
            self.kill();
            // Never comes back.
            world().stop();
        }
        if burns_down(&self.stall) {
            let nap = Duration::from_millis(world().draw(40));
            world().sleep(&AtomicU32::new(0), Some(nap));
        }
    }

    /// Kills it.
    pub fn kill(&self) {
        self.dead.store(true, SeqCst);
    }

    /// Is it dead?
    pub fn is_dead(&self) -> bool {
        self.dead.load(SeqCst)
    }

    /// Makes a call and waits until it is over.
    pub fn call<T: 'static>(&'static self, body: impl FnOnce(&Ctx<'static>) -> T + 'static) -> T {
        self.begin(body).wait()
    }

    /// Begins a call.
    pub fn begin<T: 'static>(&'static self, body: impl FnOnce(&Ctx<'static>) -> T + 'static) -> Task<T> {
        self.start(|p| body(&p.context()))
    }
}

/// Counts down to 0; whether it came there now.
fn burns_down(count: &AtomicU64) -> bool {
    let n = count.load(Relaxed);
    count.store(n.saturating_sub(1), Relaxed);
    n == 1
}

impl Kernel for Process {
    fn alive(&self, _slot: u32, pid: u32, _started: u64) -> bool {
        !world().is_dead(pid)
    }
    fn block_signals(&self) -> u64 {
        0
    }
    fn restore_signals(&self, _old: u64) {}
    fn reserve(&self, offset: u64, len: u64) -> bool {
        world().pool().mem().range(offset, len).is_some()
    }
    fn release(&self, offset: u64, len: u64) -> bool {
        world().pool().mem().zero(offset, len)
    }
    fn available_memory(&self) -> Option<u64> {
        Some(world().pool().mem().len() as u64)
    }
    fn now(&self) -> i64 {
        world().seconds()
    }
    fn monotonic(&self) -> u64 {
        world().tick()
    }
    fn cred(&self) -> Cred {
        Cred { uid: 1000, gid: 1000, caps: u64::MAX }
    }
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        if word.load(SeqCst) != expected {
            return Waited::Woken;
        }
        world().sleep(word, timeout)
    }
    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        world().wake(word, n)
    }
    fn has_sleeper(&self, word: &AtomicU32) -> bool {
        world().has_sleeper(word)
    }
}
