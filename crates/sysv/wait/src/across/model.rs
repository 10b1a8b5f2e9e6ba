//! Doorbells under a model checker ([`vshmem_pool::model`]): a process of one kernel takes a token, and one
//! of another gives it, both by `semop`.
//!
//! The code that waits, wakes and rings is the one that is shipped, from the semaphore down to the pool's
//! words. [`Node`] stands for all below it: the table of sleepers in `kmod/sleep.c`, the host's futexes, and
//! the lines by which interrupts come. [`send_doorbells`] is the loop of the back end's `doorbell_sender`.
//! Sleeps on a record end only by a wake-up, so one that is lost is a deadlock, which the checker reports.
//!
//! A line orders what comes before a doorbell by itself. So the checker does not tell whether a waker needs
//! its fence before it rings.

mod node;

use self::node::Node;
use super::{Across, Heartbeat};
use crate::Waited;
use core::time::Duration;
use std::boxed::Box;
use std::vec::Vec;
use vshmem_ipc::{sem, Ctx, Errno, IPC_PRIVATE};
use vshmem_pool::atomic::{AtomicU32, Ordering::SeqCst};
use vshmem_pool::model::{Act, Process, Scene, World};
use vshmem_pool::tuning::LONGEST_NAP;
use vshmem_pool::{Budget, Cred, Kernel, Pool, ProcId};

/// A process of a node.
#[derive(Clone, Copy)]
struct User {
    node: Node,
    id: ProcId,
}

/// The kernel as a process of a node sees it.
struct NodeKernel<'a> {
    across: Across<'a, Node>,
    process: Process,
}

impl Kernel for NodeKernel<'_> {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> vshmem_pool::Waited {
        match self.across.wait(word, expected, timeout) {
            Waited::Woken => vshmem_pool::Waited::Woken,
            Waited::TimedOut => vshmem_pool::Waited::TimedOut,
            Waited::Interrupted => vshmem_pool::Waited::Interrupted,
        }
    }
    fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        self.across.wake(word, n)
    }
    fn alive(&self, slot: u32, pid: u32, started: u64) -> bool {
        self.process.alive(slot, pid, started)
    }
    fn block_signals(&self) -> u64 {
        self.process.block_signals()
    }
    fn restore_signals(&self, old: u64) {
        self.process.restore_signals(old);
    }
    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.process.reserve(offset, len)
    }
    fn now(&self) -> i64 {
        self.process.now()
    }
    fn monotonic(&self) -> u64 {
        self.process.monotonic()
    }
    fn cred(&self) -> Cred {
        self.process.cred()
    }
    fn spinning(&self) {
        self.process.spinning();
    }
}

impl User {
    /// Opens the pool, and changes the semaphore.
    fn semop(self, c: &Ctx, set: i32, by: i16) {
        let (node, heartbeat) = (self.node, Heartbeat::new());
        let across = Across { pool: c.pool, handle: &node, member: node.member, heartbeat: &heartbeat };
        across.join();
        let kernel = NodeKernel { across, process: node.process() };
        let c = &Ctx { kernel: &kernel, me: self.id, member: node.member, ..c.clone() };
        sem::op(c, set, &[sem::Sembuf { num: 0, op: by, flg: 0 }], None).unwrap();
    }
}

/// A semaphore of value 0, and a process of each of two nodes: the first is of a machine that is peer 1. The
/// second one's peer number is given.
fn two_nodes(actors: usize, peer: u16) -> (World, i32, [User; 2]) {
    let world = World::new(actors, LONGEST_NAP, || {});
    let pool = *world.pool();
    let users = [1, peer].map(|peer| {
        let member = pool.join([peer as u8; 16], b"").unwrap();
        let id = pool.claim_process(world.kernel(), &Budget::default(), member, 1, 1, &mut |_| true);
        User { node: Node { pool, member, peer, has_driver: peer != node::HOST }, id: id.unwrap() }
    });
    // It made the pool, and is gone.
    pool.declare_dead(0);
    let c = &world.observer();
    let set = sem::get(c, IPC_PRIVATE, 1, 0o666).unwrap();
    // From now on this process begins to look for a record at the first.
    let sop = sem::Sembuf { num: 0, op: -1, flg: 0 };
    assert_eq!(sem::op(c, set, &[sop], Some(Duration::ZERO)), Err(Errno::EAGAIN));
    (world, set, users)
}

fn act(does: impl Fn(&Ctx) + Send + Sync + 'static) -> Act<()> {
    Box::new(does)
}

/// Plays a scene; then the token is gone.
fn check(world: World, set: i32, acts: Vec<Act<()>>, preemptions: usize) {
    let after = move |world: &World, _| assert_eq!(sem::getval(&world.observer(), set, 0), Ok(0));
    Scene::new(world, acts, after).check(preemptions);
}

/// The machine's interrupt handler, once.
fn interrupt(pool: &Pool, machine: Node) {
    machine.wait_for_interrupt();
    machine.process().check_sleepers(&pool.waiter(0).unwrap().status);
}

/// The back end, until it has rung a doorbell.
fn send_doorbells(pool: &Pool, host: Node) {
    let word = pool.doorbell_requests();
    loop {
        let (seen, mut has_rung) = (word.load(SeqCst), false);
        pool.take_doorbell_requests(|peer| {
            host.notify(peer);
            has_rung = true;
        });
        if has_rung {
            return;
        }
        host.process().wait(word, seen, None);
    }
}

#[test]
fn a_machine_that_is_rung_wakes_its_waiter() {
    let (world, set, [taker, giver]) = two_nodes(3, 2);
    giver.node.join();
    let acts = std::vec![
        act(move |c| {
            taker.semop(c, set, -1);
            // A waker that is late, or that nobody waits for, rings no doorbell; this ends the handler.
            taker.node.notify(taker.node.peer);
        }),
        act(move |c| giver.semop(c, set, 1)),
        act(move |c| interrupt(c.pool, taker.node)),
    ];
    check(world, set, acts, 2);
}

#[test]
fn a_machine_that_the_host_has_rung_wakes_its_waiter() {
    let (world, set, [taker, giver]) = two_nodes(3, node::HOST);
    giver.node.join();
    world.pool().heartbeat(1);
    let acts = std::vec![
        act(move |c| {
            taker.semop(c, set, -1);
            // As above.
            let word = c.pool.request_doorbell(taker.node.member);
            giver.node.process().wake(word, 1);
        }),
        act(move |c| giver.semop(c, set, 1)),
        act(move |c| {
            send_doorbells(c.pool, giver.node);
            interrupt(c.pool, taker.node);
        }),
    ];
    check(world, set, acts, 3);
}

/// Nobody rings it, so it looks by itself.
#[test]
fn a_machine_beside_one_that_does_not_ring_naps() {
    let (world, set, [taker, mut giver]) = two_nodes(2, 2);
    giver.node.has_driver = false;
    let acts = std::vec![act(move |c| taker.semop(c, set, -1)), act(move |c| giver.semop(c, set, 1))];
    check(world, set, acts, 3);
}
