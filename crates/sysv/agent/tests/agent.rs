//! The back end as a machine's QEMU sees it, tested by a client of its protocol. The processes under test are
//! this program.

mod back_end;

use back_end::{eventually, guest, kill, open_handle, BackEnd, Guest, Test, TIMEOUT, VECTORS};
use rustix::io::{read, write};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_agent::ivshmem::client::request;
use vshmem_agent::ivshmem::{receive_message, Request};
use vshmem_agent::JoinedPool;
use vshmem_ipc::{msg, sem, shm};
use vshmem_pool::layout::{Kind, DONE, PAGE};
use vshmem_pool::memory_requests::Answer;
use vshmem_pool::{Budget, Pool, ProcId};
use vshmem_transport::{open, PoolRef};

impl BackEnd {
    /// Waits until the back end has removed this peer. Other peers are not told, for QEMU's sake.
    fn wait_removed(&self, id: i64) {
        let is_here = || self.status().peers.iter().any(|peer| i64::from(peer.peer) == id);
        eventually("the end of a connection", || !is_here());
    }

    fn kill_back_end(&self) {
        let before = self.pid();
        kill(before, libc::SIGKILL);
        eventually("another back end serves", || {
            let now = self.pid();
            now != 0 && now != before
        });
    }
}

/// A machine, as far as the protocol goes. It fails at messages that it should not get.
struct Machine {
    socket: UnixStream,
    id: i64,
    /// The doorbells of all peers that it knows.
    eventfds: BTreeMap<i64, Vec<OwnedFd>>,
}

impl Machine {
    fn join(path: &Path) -> Machine {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_eq!(receive_message(&socket).unwrap().unwrap().0, 0, "version");
        let id = receive_message(&socket).unwrap().unwrap().0;
        assert!((1..65536).contains(&id));
        let (memory, fd) = receive_message(&socket).unwrap().unwrap();
        assert_eq!((memory, fd.is_some()), (-1, true));
        let mut machine = Machine { socket, id, eventfds: BTreeMap::new() };
        machine.receive_until("its own vectors", |m| m.knows(id));
        assert!(machine.knows(0), "the host comes first");
        machine
    }

    fn knows(&self, id: i64) -> bool {
        self.eventfds.get(&id).map_or(0, Vec::len) == VECTORS
    }

    fn receive_until(&mut self, what: &str, is_so: impl Fn(&Machine) -> bool) {
        while !is_so(self) {
            let message =
                receive_message(&self.socket).unwrap_or_else(|e| panic!("{} waits for {what}: {e}", self.id));
            let (id, fd) = message.expect("the connection was closed");
            match fd {
                None => panic!("{} is told that {id} left", self.id),
                Some(fd) => {
                    let eventfds = self.eventfds.entry(id).or_default();
                    eventfds.push(fd);
                    assert!(eventfds.len() <= VECTORS, "too many vectors of {id}");
                }
            }
        }
    }

    /// Receives all messages that there are, also more than the vectors of a peer.
    fn receive_all(&mut self) {
        let short = Duration::from_millis(500);
        self.socket.set_read_timeout(Some(short)).unwrap();
        while let Ok(Some((id, fd))) = receive_message(&self.socket) {
            match fd {
                None => panic!("{} is told that {id} left", self.id),
                Some(fd) => self.eventfds.entry(id).or_default().push(fd),
            }
        }
        self.socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    }

    fn ring(&self, id: i64, vector: usize) {
        write(&self.eventfds[&id][vector], &1u64.to_ne_bytes()).unwrap();
    }

    fn was_rung(&self, vector: usize) -> bool {
        read(&self.eventfds[&self.id][vector], &mut [0u8; 8]).is_ok()
    }
}

/// Each rings each other's doorbell on every vector, and no other is rung.
fn all_ring(machines: &[&Machine]) {
    for from in machines {
        for to in machines {
            for vector in 0..VECTORS {
                from.ring(to.id, vector);
                for other in machines {
                    for v in 0..VECTORS {
                        let meant = other.id == to.id && v == vector;
                        assert_eq!(other.was_rung(v), meant, "{} to {}", from.id, to.id);
                    }
                }
            }
        }
    }
}

fn machines_ring_each_other_and_the_host(back_end: &BackEnd) {
    let mut a = Machine::join(&back_end.socket);
    let b = Machine::join(&back_end.socket);
    a.receive_until("the other", |m| m.knows(b.id));
    all_ring(&[&a, &b]);
    let before = back_end.status().rung;
    a.ring(0, 1);
    eventually("the host was rung", || back_end.status().rung > before);
    let left = b.id;
    drop(b);
    back_end.wait_removed(left);
    assert_eq!(back_end.status().peers.len(), 1);
}

fn a_killed_back_end_is_not_missed(back_end: &BackEnd) {
    let mut a = Machine::join(&back_end.socket);
    let mut b = Machine::join(&back_end.socket);
    a.receive_until("the other", |m| m.knows(b.id));
    for _ in 0..3 {
        back_end.kill_back_end();
        all_ring(&[&a, &b]);
        let c = Machine::join(&back_end.socket);
        a.receive_until("the new one", |m| m.knows(c.id));
        b.receive_until("the new one", |m| m.knows(c.id));
        all_ring(&[&a, &b, &c]);
        a.ring(0, 0);
        eventually("the host was rung", || back_end.status().rung > 0);
        let left = c.id;
        drop(c);
        back_end.wait_removed(left);
    }
}

fn connections_without_a_back_end_are_served_later(back_end: &BackEnd) {
    let mut a = Machine::join(&back_end.socket);
    let b = Machine::join(&back_end.socket);
    a.receive_until("the other", |m| m.knows(b.id));
    let left = b.id;
    let keeper = back_end.try_status().unwrap().keeper;
    // The keeper can't start another back end yet.
    kill(keeper, libc::SIGSTOP);
    kill(back_end.pid(), libc::SIGKILL);
    drop(b);
    let socket = back_end.socket.clone();
    let late = std::thread::spawn(move || Machine::join(&socket));
    sleep(Duration::from_millis(100));
    kill(keeper, libc::SIGCONT);
    let mut c = late.join().unwrap();
    a.receive_until("the other", |m| m.knows(c.id));
    c.receive_until("the other", |m| m.knows(a.id));
    assert!(c.id > left, "an id is never used again");
    back_end.wait_removed(left);
    all_ring(&[&a, &c]);
}

fn a_killed_keeper_is_replaced(back_end: &BackEnd) {
    let mut a = Machine::join(&back_end.socket);
    let keeper = || back_end.try_status().map_or(0, |status| status.keeper);
    let (pid, before) = (back_end.pid(), keeper());
    kill(before, libc::SIGKILL);
    eventually("another keeper", || ![0, before].contains(&keeper()));
    assert_eq!(back_end.pid(), pid);
    back_end.kill_back_end();
    let b = Machine::join(&back_end.socket);
    a.receive_until("the new one", |m| m.knows(b.id));
    all_ring(&[&a, &b]);
}

fn a_restart_is_not_noticed(back_end: &BackEnd) {
    let mut a = Machine::join(&back_end.socket);
    let pid = back_end.pid();
    for asked in [true, false] {
        if asked {
            request(&back_end.program.directory, &Request::Restart {}).unwrap();
        } else {
            kill(pid, libc::SIGHUP);
        }
        let mut b = Machine::join(&back_end.socket);
        a.receive_until("the new one", |m| m.knows(b.id));
        b.receive_until("the old one", |m| m.knows(a.id));
        all_ring(&[&a, &b]);
        assert_eq!(back_end.pid(), pid, "the process stays");
        let left = b.id;
        drop(b);
        back_end.wait_removed(left);
    }
}

fn kills_at_any_moment_are_survived(back_end: &BackEnd) {
    let mut a = Machine::join(&back_end.socket);
    for round in 0..10u64 {
        let pid = back_end.pid();
        let killer = std::thread::spawn(move || {
            sleep(Duration::from_micros(round * 150));
            kill(pid, libc::SIGKILL);
        });
        let joined = UnixStream::connect(&back_end.socket).is_ok();
        killer.join().unwrap();
        eventually("another back end serves", || ![0, pid].contains(&back_end.pid()));
        assert!(joined);
    }
    let b = Machine::join(&back_end.socket);
    eventually("only two are left", || back_end.status().peers.len() == 2);
    a.receive_all();
    assert!(a.knows(b.id) && a.knows(0), "{:?}", a.eventfds);
    all_ring(&[&a, &b]);
}

fn misbehaviour_harms_no_other(back_end: &BackEnd) {
    // Connects and never reads.
    let silent = UnixStream::connect(&back_end.socket).unwrap();
    // Connect and disconnect.
    for _ in 0..50 {
        drop(UnixStream::connect(&back_end.socket).unwrap());
    }
    // Sends something, which peers must not.
    let mut chatty = UnixStream::connect(&back_end.socket).unwrap();
    chatty.write_all(b"hello").unwrap();
    let mut a = Machine::join(&back_end.socket);
    for _ in 0..300 {
        let b = Machine::join(&back_end.socket);
        a.receive_until("the other", |m| m.knows(b.id));
        let left = b.id;
        drop(b);
        back_end.wait_removed(left);
    }
    let b = Machine::join(&back_end.socket);
    a.receive_until("the last", |m| m.knows(b.id));
    let behind = back_end.status().peers.iter().filter(|p| p.behind).count();
    assert_eq!(behind, 1, "one that never reads is behind");
    drop(b);
    eventually("only two are left", || back_end.status().peers.len() == 2);
    drop(silent);
    eventually("only one is left", || back_end.status().peers.len() == 1);
}

fn members_are_known_and_die(back_end: &BackEnd) {
    let pool = back_end.open();
    let machine = Machine::join(&back_end.socket);
    let member = pool.join([7; 16], b"guest").unwrap();
    pool.set_member_peer(member, machine.id as u16, 0);
    let find = |index: u16| {
        let members = back_end.status().members;
        members.into_iter().find(|m| m.member == index).unwrap()
    };
    eventually("the back end has bound it", || find(member).since.is_some());
    assert_eq!(find(member).peer, Some(machine.id as u16));
    assert!(find(member).alive);
    assert_eq!(find(0).peer, Some(0), "the host");
    drop(machine);
    eventually("the machine is dead", || pool.member_is_dead(member));

    // A member that has not written its peer id.
    let machine = Machine::join(&back_end.socket);
    let call = Request::Name { pid: std::process::id(), name: "named".into() };
    request(&back_end.program.directory, &call).unwrap();
    let before = pool.join([8; 16], b"named").unwrap();
    eventually("it is found by its name", || find(before).peer.is_some());
    // The first machine's entry is free for others, and comes before that one.
    eventually("an entry is vacant", || pool.dead_members() == 0);
    let after = pool.join([9; 16], b"named").unwrap();
    assert!(after < before || member == before);
    eventually("it was started anew", || pool.member_is_dead(before));
    assert!(find(after).alive);
    drop(machine);
    eventually("it is dead", || pool.member_is_dead(after));
    assert!(!pool.member_is_dead(0));
}

/// A pool is dropped, and served again: machines that connected before go on with the ids that they had.
fn ids_outlive_the_back_end(back_end: &BackEnd) {
    let pool = back_end.open();
    let before = Machine::join(&back_end.socket);
    let old = pool.join([7; 16], b"before").unwrap();
    pool.join_doorbells(old, before.id as u16);
    let name = back_end.status().name;
    request(&back_end.program.directory, &Request::Drop { pool: name }).unwrap();
    let serve = Request::Serve { pool: back_end.pool.to_str().unwrap().into(), vectors: VECTORS };
    request(&back_end.program.directory, &serve).unwrap();
    let after = Machine::join(&back_end.socket);
    assert_ne!(after.id, before.id, "that one is in use");
    let new = pool.join([8; 16], b"after").unwrap();
    pool.join_doorbells(new, after.id as u16);
    assert!(!pool.member_is_dead(old), "its id is not used again");
    drop(after);
    eventually("the new machine is dead", || pool.member_is_dead(new));
    assert!(!pool.member_is_dead(old), "the other one goes on");
}

/// Bytes of memory that the pool's file has.
fn memory_of(pool: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&fs::metadata(pool).unwrap()) * 512
}

/// A process of a machine, which writes its peer id.
fn process_in(pool: &Pool, machine: &Machine, boot: u8) -> (ProcId, u16) {
    let member = pool.join([boot; 16], b"guest").unwrap();
    pool.set_member_peer(member, machine.id as u16, 0);
    let me = pool.claim_process(&Guest, &Budget::default(), member, 77, 1, &mut |_| true);
    (me.unwrap(), member)
}

/// Memory that a machine frees goes back to the host, also while the back end is killed again and again. Then
/// it reads as zeros.
fn memory_goes_back_to_the_host(back_end: &BackEnd) {
    const SIZE: u64 = 16 << 20;
    let pool = back_end.open();
    let machine = Machine::join(&back_end.socket);
    let c = guest(&pool, process_in(&pool, &machine, 7));
    for round in 0..6u64 {
        let id = shm::get(&c, 0, SIZE as usize, 0o600).unwrap();
        let extent = shm::look(&c, id, 0).unwrap();
        let words = || (extent.offset..extent.offset + SIZE).step_by(512);
        let swapped = |at| pool.mem().word_anywhere(at).unwrap().swap(u64::MAX, SeqCst);
        assert!(words().all(|at| swapped(at) == 0), "round {round}: not empty");
        let full = memory_of(&back_end.pool);
        shm::remove(&c, id).unwrap();
        if round > 0 {
            sleep(Duration::from_micros(900_000 + 37_000 * round));
            back_end.kill_back_end();
        }
        eventually("the memory is back", || memory_of(&back_end.pool) + SIZE <= full + 65536);
    }
    assert_eq!(back_end.status().members.iter().filter(|m| m.alive).count(), 2);
}

/// A machine can't back pages with memory itself.
fn requests_for_memory_are_served(back_end: &BackEnd) {
    let pool = back_end.open();
    let pages = pool.mem().len() as u64 / PAGE;
    let machine = Machine::join(&back_end.socket);
    let (_, member) = process_in(&pool, &machine, 7);
    assert!(pool.gives());
    let ask = |first, count| pool.request_memory(member, first, count).unwrap();
    let answered = |request| {
        let mut answer = Answer::Pending;
        eventually("there is an answer", || {
            answer = pool.answer_to_request(request);
            answer != Answer::Pending
        });
        answer
    };
    let before = memory_of(&back_end.pool);
    let request = ask(pages - 100, 100);
    machine.ring(0, 0);
    assert_eq!(answered(request), Answer::Given);
    assert!(memory_of(&back_end.pool) >= before + 100 * PAGE);
    eventually("the requester is rung", || machine.was_rung(0));
    let beyond = [ask(pages - 100, 101), ask(1 << 33, 1), ask(pages, 512)];
    machine.ring(0, 1);
    for request in beyond {
        assert_eq!(answered(request), Answer::Refused);
    }
    // Requests that are made while there is no back end are answered by the next one.
    kill(back_end.pid(), libc::SIGKILL);
    let request = ask(pages - 120, 20);
    assert_eq!(answered(request), Answer::Given);
    // Some of them may have had memory already.
    assert!(memory_of(&back_end.pool) > before + 110 * PAGE);
    // Requests of a process that died are dropped.
    let asked: Vec<_> = (0..16).map(|i| ask(i, 1)).collect();
    assert_eq!(pool.request_memory(member, 0, 1), None);
    machine.ring(0, 0);
    let mut fetched = None;
    eventually("there is room for another request", || {
        fetched = pool.request_memory(member, 0, 1);
        fetched.is_some()
    });
    assert_eq!(pool.answer_to_request(asked[0]), Answer::Lost);
}

/// The next back end takes over the pool's lock of one that died: machines can't tell that it is dead.
fn a_lock_of_the_dead_is_taken_over(back_end: &BackEnd) {
    let pool = back_end.open();
    let machine = Machine::join(&back_end.socket);
    let c = guest(&pool, process_in(&pool, &machine, 7));
    let is_back_end = |slot: &u32| pool.process(*slot).is_some_and(|(_, _, pid)| pid == back_end.pid());
    eventually("the back end takes part", || (0..8).any(|slot| is_back_end(&slot)));
    let slot = (0..8).find(is_back_end).unwrap();
    let (owner, _, _) = pool.process(slot).unwrap();
    let pid = back_end.pid();
    kill(pid, libc::SIGSTOP);
    pool.root().lock.store(1 << 30 | u32::from(owner.generation) << 16 | slot, SeqCst);
    kill(pid, libc::SIGKILL);
    eventually("the lock is free", || pool.root().lock.load(SeqCst) == 0);
    assert!(shm::get(&c, 0, 5000, 0o600).is_ok());
}

fn a_dead_machine_is_reaped(back_end: &BackEnd) {
    let pool = back_end.open();
    let machine = Machine::join(&back_end.socket);
    let (me, member) = process_in(&pool, &machine, 7);
    let c = guest(&pool, (me, member));
    let id = shm::get(&c, 0, 5000, 0o600).unwrap();
    shm::attach(&c, id, 0).unwrap();
    shm::remove(&c, id).unwrap();
    let set = sem::get(&c, 0, 1, 0o600).unwrap();
    sem::op(&c, set, &[sem::Sembuf { num: 0, op: 3, flg: 0o10000 }], None).unwrap();
    sleep(Duration::from_millis(1200));
    let segments = &pool.kind_root(Kind::Shm).used;
    assert_eq!((segments.load(SeqCst), sem::getval(&c, set, 0)), (1, Ok(3)));
    // It dies with the pool's lock.
    pool.root().lock.store(1 << 30 | u32::from(me.generation) << 16 | me.slot, SeqCst);
    drop(machine);
    eventually("the machine is dead", || pool.member_is_dead(member));
    eventually("its process is gone", || pool.process(me.slot).is_none_or(|(now, _, _)| now != me));
    assert_eq!(segments.load(SeqCst), 0, "the last attachment was its");
    let machine = Machine::join(&back_end.socket);
    let c = guest(&pool, process_in(&pool, &machine, 8));
    assert_eq!(sem::getval(&c, set, 0), Ok(0), "SEM_UNDO");
}

/// A process of the host that adds 3 to a semaphore with `SEM_UNDO`, and then sleeps; with `executes`, as
/// another program.
fn host_process(back_end: &BackEnd, executes: bool) -> u32 {
    // SAFETY: this process has one thread, so the child may do anything.
    let child = unsafe { libc::fork() };
    if child != 0 {
        return child as u32;
    }
    let reference = PoolRef::at(back_end.pool.as_os_str().as_encoded_bytes()).unwrap();
    let handle = open(&reference).unwrap();
    let pool = Pool::open(handle.mem()).unwrap();
    let member = handle.join(&pool).unwrap();
    let joined = JoinedPool::for_agent(handle, pool, member);
    let mut liveness = None;
    let (pid, started) = (std::process::id(), vshmem_transport::process::started());
    let claimed = pool.claim_process(&joined, &Budget::default(), joined.member, pid, started, &mut |slot| {
        liveness = joined.handle.claim_liveness(slot);
        liveness.is_some()
    });
    let c = joined.context(claimed.unwrap());
    let set = sem::get(&c, 99, 1, 0o1666).unwrap();
    sem::op(&c, set, &[sem::Sembuf { num: 0, op: 3, flg: 0o10000 }], None).unwrap();
    if executes {
        let error = std::os::unix::process::CommandExt::exec(std::process::Command::new("sleep").arg("100"));
        panic!("{error}");
    }
    loop {
        sleep(TIMEOUT);
    }
}

/// No other process needs what they hold, or looks for them.
fn dead_processes_of_the_host_are_reaped(back_end: &BackEnd) {
    let pool = back_end.open();
    let machine = Machine::join(&back_end.socket);
    let c = guest(&pool, process_in(&pool, &machine, 9));
    for executes in [false, true] {
        let child = host_process(back_end, executes);
        let slot_of = || (0..pool.proc_slots()).find(|i| pool.process(*i).is_some_and(|p| p.2 == child));
        let value = || sem::get(&c, 99, 1, 0).and_then(|set| sem::getval(&c, set, 0));
        eventually("it has added", || value() == Ok(3));
        sleep(Duration::from_millis(2500));
        assert_eq!(value(), Ok(3), "it lives");
        assert!(slot_of().is_some());
        kill(child, libc::SIGKILL);
        // SAFETY: waits for a child of this process.
        unsafe { libc::waitpid(child as i32, std::ptr::null_mut(), 0) };
        eventually("its slot is free", || slot_of().is_none());
        assert_eq!(value(), Ok(0), "SEM_UNDO");
    }
}

/// There are 64 entries for members.
fn more_machines_come_than_there_are_entries(back_end: &BackEnd) {
    let pool = back_end.open();
    let mut segment = 0;
    for batch in 0..3 {
        let machines: Vec<_> = (0..30).map(|_| Machine::join(&back_end.socket)).collect();
        for (i, machine) in machines.iter().enumerate() {
            let process = process_in(&pool, machine, 1 + batch * 30 + i as u8);
            if (batch, i) == (0, 5) {
                segment = shm::get(&guest(&pool, process), 0, 5000, 0o600).unwrap();
            }
        }
        let alive = || back_end.status().members.iter().filter(|m| m.alive).count();
        eventually("all are known", || alive() == 31);
        drop(machines);
        eventually("all are dead", || alive() == 1);
        eventually("all but one are forgotten", || pool.dead_members().count_ones() == 1);
    }
    let named = back_end.status().members;
    let dead: Vec<_> = named.iter().filter(|m| !m.alive).collect();
    assert_eq!(dead.len(), 1, "the maker of a segment is not forgotten");
    let machine = Machine::join(&back_end.socket);
    let process = process_in(&pool, &machine, 99);
    assert!(process.1 < 62);
    shm::remove(&guest(&pool, process), segment).unwrap();
    eventually("the last one is, too", || pool.dead_members() == 0);
    assert!(!pool.member_is_dead(process.1));
}

fn the_heartbeat_is_seen(back_end: &BackEnd) {
    let pool = back_end.open();
    let (count, at) = pool.last_heartbeat().unwrap();
    eventually("the next heartbeat", || pool.last_heartbeat().is_some_and(|(c, t)| c > count && t > at));
    let drop_it = Request::Drop { pool: back_end.status().name };
    request(&back_end.program.directory, &drop_it).unwrap();
    assert_eq!(pool.last_heartbeat(), None);
}

fn sleepers_of_the_host_are_woken(back_end: &BackEnd) {
    let handle = open_handle(&back_end.pool);
    let pool = Pool::open(handle.mem()).unwrap();
    let machine = Machine::join(&back_end.socket);
    // A process without a liveness lock would be reaped.
    let mut liveness = None;
    let mut claim = |slot| {
        liveness = handle.claim_liveness(slot);
        liveness.is_some()
    };
    let budget = Budget::default();
    let me = pool.claim_process(&Guest, &budget, 0, std::process::id(), 0, &mut claim);
    let waiter = pool.waiter(3).unwrap();
    waiter.owner.store(me.unwrap().word(), SeqCst);
    waiter.status.store(DONE, Release);
    pool.root().waiter_high.store(4, SeqCst);
    let sleeper = std::thread::spawn(move || {
        let begun = Instant::now();
        vshmem_wait::wait(&waiter.status, DONE, Some(TIMEOUT), vshmem_wait::Scope::Kernel);
        begun.elapsed()
    });
    sleep(Duration::from_millis(100));
    assert!(!sleeper.is_finished());
    machine.ring(0, 0);
    assert!(sleeper.join().unwrap() < TIMEOUT, "it was woken");
    // A count that a hostile member wrote.
    pool.root().waiter_high.store(u32::MAX, SeqCst);
    machine.ring(0, 1);
    eventually("the host was rung", || back_end.status().rung >= 2);
    assert_eq!(waiter.status.load(Acquire), DONE);
}

fn listen_for_metrics(back_end: &BackEnd, address: &str) -> String {
    let address = Some(address.into());
    let address = request(&back_end.program.directory, &Request::Metrics { address }).unwrap();
    address.unwrap().to_str().unwrap().into()
}

/// The response to a request.
fn ask(mut stream: impl std::io::Read + Write, text: &str) -> String {
    let mut answer = String::new();
    // The connection may be closed before all of it is sent.
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

fn metrics_are_served(back_end: &BackEnd) {
    let pool = back_end.open();
    let mut machine = Machine::join(&back_end.socket);
    let process = process_in(&pool, &machine, 7);
    let c = guest(&pool, process);
    shm::get(&c, 0, 5000, 0o600).unwrap();
    msg::get(&c, 0, 0o600).unwrap();
    let address = listen_for_metrics(back_end, "0");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let answer = ask(connect(&address), GET);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    let name = back_end.status().name;
    for line in [
        format!("vshmem_pool_constructs{{pool=\"{name}\",kind=\"segment\"}} 1"),
        format!("vshmem_pool_constructs{{pool=\"{name}\",kind=\"queue\"}} 1"),
        format!("vshmem_pool_segment_bytes{{pool=\"{name}\"}} 8192"),
        format!("vshmem_machine_up{{pool=\"{name}\",machine=\"guest\",member=\"{}\"}} 1", process.1),
        format!("vshmem_machine_processes{{pool=\"{name}\",machine=\"guest\",member=\"{}\"}} 1", process.1),
    ] {
        assert!(body.lines().any(|l| l == line), "{line} is not in {body}");
    }
    assert!(ask(connect(&address), "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let endless = ask(connect(&address), &"x".repeat(20_000));
    assert!(endless.starts_with("HTTP/1.1 431 ") || endless.is_empty(), "{endless}");

    // The endpoint outlives the back end, and a restart.
    back_end.kill_back_end();
    assert!(ask(connect(&address), GET).contains("vshmem_pools 1\n"));
    request(&back_end.program.directory, &Request::Restart {}).unwrap();
    assert!(ask(connect(&address), GET).contains("vshmem_pools 1\n"));
    assert_eq!(back_end.try_status().unwrap().metrics.as_deref(), Some(&*address));

    // Clients that send nothing, or no complete request, don't keep others waiting for long.
    let silent: Vec<_> = (0..40).map(|_| connect(&address)).collect();
    for mut stream in &silent {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
    }
    let before = back_end.status().rung;
    machine.ring(0, 0);
    eventually("the host was rung", || back_end.status().rung > before);
    machine.receive_until("nothing more", |_| true);
    let begun = Instant::now();
    let mut last = connect(&address);
    last.set_read_timeout(Some(2 * TIMEOUT)).unwrap();
    let answer = ask(&mut last, GET);
    let after = begun.elapsed();
    assert!(answer.contains("vshmem_pools 1\n"), "after {after:?}: {answer:?}");
    drop(silent);

    let path = back_end.program.directory.path().join("metrics.sock");
    assert_eq!(listen_for_metrics(back_end, "socket"), path.to_str().unwrap());
    assert!(TcpStream::connect(&address).is_err(), "the old address is closed");
    assert!(ask(UnixStream::connect(&path).unwrap(), GET).contains("vshmem_pools 1\n"));
    let none = Request::Metrics { address: None };
    assert_eq!(request(&back_end.program.directory, &none).unwrap(), None);
    assert!(!path.exists());
    // A file that is no socket is not replaced.
    let file = back_end.program.directory.path().join("file");
    fs::write(&file, "x").unwrap();
    let address = Some(file.to_str().unwrap().to_string());
    assert!(request(&back_end.program.directory, &Request::Metrics { address }).is_err());
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

/// A process of the host wakes a thread of one machine: the back end rings the doorbell of that machine and
/// no other.
fn machines_are_rung_for_the_host(back_end: &BackEnd) {
    let reference = PoolRef::at(back_end.pool.to_str().unwrap().as_bytes()).unwrap();
    let handle = open(&reference).unwrap();
    let pool = Pool::open(handle.mem()).unwrap();
    let machines = [Machine::join(&back_end.socket), Machine::join(&back_end.socket)];
    let members = [1, 2].map(|boot| pool.join([boot; 16], b"machine").unwrap());
    for (member, machine) in members.iter().zip(&machines) {
        pool.join_doorbells(*member, machine.id as u16);
    }
    let host = (0..64).find(|i| pool.member_peer(*i).is_some_and(|(peer, _)| peer == 0));
    let member = host.expect("the back end has joined");
    let across = vshmem_wait::Across {
        pool: &pool,
        handle: &handle,
        member,
        heartbeat: &vshmem_wait::Heartbeat::new(),
    };
    let waiter = pool.waiter(3).unwrap();
    let serve_for = |member| {
        let claimed = pool.claim_process(&Guest, &Budget::default(), member, 1, 0, &mut |_| true);
        waiter.owner.store(claimed.unwrap().word(), SeqCst);
        waiter.status.store(DONE, SeqCst);
        assert_eq!(across.wake(&waiter.status, 1), 0, "how many is not known");
    };
    let rung = |i: usize| machines[i].was_rung(0);
    serve_for(members[0]);
    eventually("the first is rung", || rung(0));
    serve_for(members[1]);
    eventually("the second is rung", || rung(1));
    assert!(!rung(0), "only the sleeper's machine is rung");
    waiter.owner.store(0, SeqCst);
    across.wake(&waiter.status, 1);
    // Requests that are made while there is no back end are carried out by the next one.
    let before = back_end.pid();
    kill(before, libc::SIGKILL);
    serve_for(members[1]);
    eventually("the second is rung by another back end", || rung(1));
    assert!(!rung(0));
    eventually("its pid is known", || back_end.pid() != before);
    // An owner that a hostile member wrote, and bits of members that don't exist.
    waiter.owner.store(u64::MAX, SeqCst);
    across.wake(&waiter.status, 1);
    pool.root().doorbells_to_ring.store(u64::MAX, SeqCst);
    serve_for(members[0]);
    eventually("the first is rung all the same", || rung(0));
}

/// A member may sleep until its doorbell is rung if it has a peer id, and all other members ring doorbells.
fn a_member_that_rings_no_doorbells_keeps_others_from_sleeping(back_end: &BackEnd) {
    let pool = back_end.open();
    let machine = pool.join([1; 16], b"machine").unwrap();
    assert!(!pool.is_rung_by_all(machine), "it has no peer id");
    pool.join_doorbells(machine, 1);
    assert!(pool.is_rung_by_all(machine), "the host rings by the back end");
    let mute = pool.join([2; 16], b"mute").unwrap();
    assert!(!pool.is_rung_by_all(machine));
    pool.join_doorbells(mute, 2);
    pool.set_member_peer(mute, 3, 5);
    assert_eq!(pool.member_peer(mute), Some((3, 5)));
    assert!(pool.is_rung_by_all(machine), "another id changes nothing");
    pool.leave_doorbells(mute);
    assert_eq!(pool.member_peer(mute), Some((3, 5)));
    assert!(!pool.is_rung_by_all(machine));
    pool.declare_dead(mute);
    assert!(pool.is_rung_by_all(machine), "the dead serve nobody");
    request(&back_end.program.directory, &Request::Stop {}).unwrap();
    eventually("the back end leaves the pool", || !pool.is_rung_by_all(machine));
}

fn bad_requests_are_answered(back_end: &BackEnd) {
    let none = Request::Serve { pool: "/dev/shm/no-such-pool".into(), vectors: 2 };
    let error = request(&back_end.program.directory, &none).unwrap_err();
    assert!(error.to_string().contains("could not open"), "{error}");
    let other = Request::Serve { pool: back_end.pool.to_str().unwrap().into(), vectors: 5 };
    let error = request(&back_end.program.directory, &other).unwrap_err();
    assert!(error.to_string().contains("2 vectors"), "{error}");
    let mut stream = UnixStream::connect(back_end.program.directory.control()).unwrap();
    stream.write_all(b"nonsense\n{\"list\":{}}\n").unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream));
    assert!(lines.next().unwrap().unwrap().contains("error"));
    assert!(lines.next().unwrap().unwrap().contains("\"pools\""));
    // Many requests at once, whose responses are read late, by a client that says no more.
    const MANY: usize = 3000;
    let mut stream = UnixStream::connect(back_end.program.directory.control()).unwrap();
    stream.write_all(&b"{\"list\":{}}\n".repeat(MANY)).unwrap();
    sleep(Duration::from_millis(100));
    let responses = std::io::BufRead::lines(std::io::BufReader::new(&stream)).take(MANY);
    assert_eq!(responses.filter(|line| line.as_ref().unwrap().contains("\"pools\"")).count(), MANY);
    stream.write_all(b"{\"list\":{}}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut last = String::new();
    std::io::Read::read_to_string(&mut stream, &mut last).unwrap();
    assert!(last.contains("\"pools\""), "{last}");
    let mut endless = UnixStream::connect(back_end.program.directory.control()).unwrap();
    let line = vec![b'x'; 1 << 20];
    assert!(endless.write_all(&line).is_err(), "a line has an end");
}

fn nothing_is_left_after_the_end(back_end: &BackEnd) {
    let status = back_end.try_status().unwrap();
    request(&back_end.program.directory, &Request::Stop {}).unwrap();
    eventually("the directory is gone", || !back_end.program.directory.path().exists());
    for pid in [status.pid, status.keeper] {
        eventually("the process is gone", || !Path::new(&format!("/proc/{pid}")).exists());
    }
}

fn main() {
    const SIZE: u64 = 1 << 20;
    let tests: [Test; 22] = [
        ("ring", SIZE, machines_ring_each_other_and_the_host),
        ("killed", SIZE, a_killed_back_end_is_not_missed),
        ("meanwhile", SIZE, connections_without_a_back_end_are_served_later),
        ("keeper", SIZE, a_killed_keeper_is_replaced),
        ("restart", SIZE, a_restart_is_not_noticed),
        ("moments", SIZE, kills_at_any_moment_are_survived),
        ("hostile", SIZE, misbehaviour_harms_no_other),
        ("members", SIZE, members_are_known_and_die),
        ("numbers", SIZE, ids_outlive_the_back_end),
        ("memory", 64 << 20, memory_goes_back_to_the_host),
        ("memory-requests", SIZE, requests_for_memory_are_served),
        ("lock", SIZE, a_lock_of_the_dead_is_taken_over),
        ("dead", SIZE, a_dead_machine_is_reaped),
        ("host", SIZE, dead_processes_of_the_host_are_reaped),
        ("many", SIZE, more_machines_come_than_there_are_entries),
        ("metrics", SIZE, metrics_are_served),
        ("heartbeat", SIZE, the_heartbeat_is_seen),
        ("sleepers", SIZE, sleepers_of_the_host_are_woken),
        ("doorbell_sender", SIZE, machines_are_rung_for_the_host),
        ("mute", SIZE, a_member_that_rings_no_doorbells_keeps_others_from_sleeping),
        ("requests", SIZE, bad_requests_are_answered),
        ("end", SIZE, nothing_is_left_after_the_end),
    ];
    back_end::run(&tests);
}
