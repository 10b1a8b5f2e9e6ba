//! Hostile pools beside an honest one: whatever a pool contains, the others are served, and the back end
//! responds and ends in time.

mod back_end;

use back_end::{eventually, guest, kill, new_pool, open_pool, remove_pool, BackEnd, Guest, Test};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_agent::ivshmem::client::{request, restart_without};
use vshmem_agent::ivshmem::{PoolStatus, Request};
use vshmem_ipc::sem::{self, Sembuf};
use vshmem_ipc::Ctx;
use vshmem_pool::layout::{Kind, ID_BIT};
use vshmem_pool::{Budget, Pool, ProcId};

const SMALL: u64 = 1 << 20;
/// Large enough for the most of all kinds of objects.
const LARGE: u64 = 512 << 20;
/// Semaphores in the largest set that Linux admits.
const MAX_SEMAPHORES: u32 = 32_000;
/// A second, and two more for a busy machine.
const SOON: Duration = Duration::from_secs(3);

/// A hostile pool that is served beside the honest one.
struct HostilePool<'a> {
    back_end: &'a BackEnd,
    path: PathBuf,
    pool: Pool,
}

impl<'a> HostilePool<'a> {
    fn new(back_end: &'a BackEnd, name: &str, size: u64, forge: fn(&Pool)) -> HostilePool<'a> {
        let path = new_pool(&format!("hostile-{name}"), size);
        let pool = open_pool(&path);
        forge(&pool);
        let hostile = HostilePool { back_end, path, pool };
        back_end.serve(&hostile.path).unwrap();
        hostile
    }

    fn name(&self) -> String {
        name_of(&self.path)
    }

    fn status(&self) -> Option<PoolStatus> {
        let pools = self.back_end.try_status().unwrap().pools;
        pools.into_iter().find(|pool| pool.name == self.name())
    }
}

/// The name of a pool in this file.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().into()
}

impl Drop for HostilePool<'_> {
    fn drop(&mut self) {
        remove_pool(&self.path);
    }
}

/// Hostile pools of all kinds.
fn hostile_pools(back_end: &BackEnd) -> Vec<HostilePool<'_>> {
    type Forge = fn(&Pool);
    let forged: [(&str, Forge); 4] = [
        ("circles", circles_of_adjustments),
        ("circles2", circles_of_adjustments),
        ("owed", owed_by_many),
        ("everywhere", a_dead_process_that_may_have_been_everywhere),
    ];
    let hostile = |(name, forge)| HostilePool::new(back_end, name, LARGE, forge);
    forged.map(hostile).into()
}

/// A process of a machine.
fn process(pool: &Pool, boot: u8) -> (ProcId, u16) {
    let member = pool.join([boot; 16], b"guest").unwrap();
    let me = pool.claim_process(&Guest, &Budget::default(), member, 77, 1, &mut |_| true);
    (me.unwrap(), member)
}

fn new_set(c: &Ctx, semaphores: u32) -> i32 {
    sem::get(c, 0, semaphores as i32, 0o600).unwrap()
}

fn entry(c: &Ctx, id: i32) -> &'static vshmem_pool::layout::Sem {
    c.pool.sem(c.pool.ids().index(id)).unwrap()
}

/// A process dies that may have something in any object, so the reaper has to look at all of them.
fn die(pool: &Pool, (dead, member): (ProcId, u16)) {
    pool.proc(dead.slot).unwrap().overflow.store(1, SeqCst);
    pool.declare_dead(member);
}

fn add_with_undo(c: &Ctx, set: i32) {
    let add = Sembuf { num: MAX_SEMAPHORES as u16 - 1, op: 1, flg: 0o10000 };
    sem::op(c, set, &[add], None).unwrap();
}

/// Lists of undo records that lead back to their first one, in sets that a dead process may have used. To see
/// that a record is not empty takes as long as possible.
fn circles_of_adjustments(pool: &Pool) {
    let (alive, dead) = (process(pool, 7), process(pool, 8));
    let c = guest(pool, alive);
    for _ in 0..32 {
        let set = new_set(&c, MAX_SEMAPHORES);
        for process in [dead, alive] {
            add_with_undo(&guest(pool, process), set);
        }
        let first = entry(&c, set).undo.load(Relaxed);
        let next = pool.mem().word(first + 8).unwrap();
        next.store(first, SeqCst);
    }
    die(pool, dead);
}

/// Sets with an adjustment at each semaphore, each of another dead process.
fn owed_by_many(pool: &Pool) {
    let (alive, dead) = (process(pool, 7), process(pool, 8));
    for _ in 0..32 {
        let set = new_set(&guest(pool, alive), MAX_SEMAPHORES);
        add_with_undo(&guest(pool, dead), set);
        let cells = entry(&guest(pool, alive), set).cells.load(Relaxed);
        for number in 0..u64::from(MAX_SEMAPHORES) {
            let word = pool.mem().word(cells + number * 16 + 8).unwrap();
            word.store((number + 100) | 1 << 32, Relaxed);
        }
    }
    die(pool, dead);
}

/// A dead process that may have something in the most IPC objects that there can be.
fn a_dead_process_that_may_have_been_everywhere(pool: &Pool) {
    let dead = process(pool, 8);
    for kind in Kind::ALL {
        let capacity = pool.capacity(kind);
        pool.kind_root(kind).high.store(capacity.into(), Relaxed);
        for index in 0..capacity {
            pool.head(kind, index).unwrap().id.store(ID_BIT | index, Relaxed);
            // The owner of the lock is unknown, so it is taken over each time, with a log of some size.
            if let (Kind::Sem, Some(sem)) = (kind, pool.sem(index)) {
                sem.nsems.store(60_000, Relaxed);
                sem.cells.store(pool.geometry().small.base, Relaxed);
            }
        }
    }
    die(pool, dead);
}

/// For this time, the back end must make heartbeats in the pool, and respond.
fn is_well_served(back_end: &BackEnd, pool: &Pool, time: Duration) {
    let heartbeat = || pool.root().heartbeat.load(SeqCst);
    let begun = Instant::now();
    let (mut last, mut since) = (heartbeat(), Instant::now());
    while begun.elapsed() < time {
        let asked = Instant::now();
        assert!(back_end.try_status().is_some());
        assert!(asked.elapsed() < SOON, "an answer took {:?}", asked.elapsed());
        if heartbeat() != last {
            (last, since) = (heartbeat(), Instant::now());
        }
        assert!(since.elapsed() < SOON, "no heartbeat for {:?}", since.elapsed());
        sleep(Duration::from_millis(20));
    }
}

fn others_are_served(back_end: &BackEnd) {
    let pool = back_end.open();
    let hostile_pools = hostile_pools(back_end);
    is_well_served(back_end, &pool, Duration::from_secs(6));
    for hostile in &hostile_pools {
        // Hostile pools have heartbeats, too.
        is_well_served(back_end, &hostile.pool, Duration::from_secs(2));
        let waited = Instant::now();
        let drop = Request::Drop { pool: hostile.name() };
        request(&back_end.program.directory, &drop).unwrap();
        assert!(waited.elapsed() < SOON, "{:?}", waited.elapsed());
        assert!(hostile.status().is_none());
    }
    is_well_served(back_end, &pool, Duration::from_secs(2));
}

fn the_back_end_ends_and_begins_in_time(back_end: &BackEnd) {
    let pool = back_end.open();
    let _hostile_pools = hostile_pools(back_end);
    for round in 0..4 {
        // At some point of the workers' passes.
        sleep(Duration::from_millis(300 * round + 200));
        let (before, begun) = (back_end.pid(), Instant::now());
        match round {
            0 => drop(request(&back_end.program.directory, &Request::Restart {}).unwrap()),
            1 => kill(before, libc::SIGHUP),
            _ => {
                kill(before, libc::SIGKILL);
                eventually("another back end", || ![0, before].contains(&back_end.pid()));
            }
        }
        is_well_served(back_end, &pool, Duration::from_secs(1));
        let took = begun.elapsed();
        assert!(took < SOON + Duration::from_secs(1), "round {round}: {took:?}");
        assert_eq!(back_end.try_status().unwrap().pools.len(), 5);
    }
    let (pid, asked) = (back_end.pid(), Instant::now());
    kill(pid, libc::SIGTERM);
    eventually("it has ended", || !Path::new(&format!("/proc/{pid}")).exists());
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    eventually("nothing is left", || !back_end.program.directory.path().exists());
}

/// The answer to a scrape.
fn metrics_of(back_end: &BackEnd) -> String {
    let address = Some("socket".into());
    let path = request(&back_end.program.directory, &Request::Metrics { address });
    let mut stream = UnixStream::connect(path.unwrap().unwrap()).unwrap();
    let get = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(get).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn a_hostile_pool_is_quarantined(back_end: &BackEnd) {
    let pool = back_end.open();
    let hostile = HostilePool::new(back_end, "quarantine", LARGE, circles_of_adjustments);
    let begun = Instant::now();
    let since = || hostile.status().unwrap().quarantined;
    while since().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never");
        sleep(Duration::from_millis(50));
    }
    assert_eq!(back_end.status().quarantined, None, "the honest one is not");
    let text = metrics_of(back_end);
    for (name, quarantined) in [(name_of(&back_end.pool), 0), (hostile.name(), 1)] {
        let line = format!("vshmem_pool_quarantined{{pool=\"{name}\"}} {quarantined}");
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
    let log = std::fs::read_to_string(back_end.program.directory.log()).unwrap();
    let said = format!("the pool {} is in quarantine", hostile.name());
    assert_eq!(log.matches(&said).count(), 1, "{log}");
    // No worker is busy any more; heartbeats go on.
    let time_of = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", back_end.pid())).unwrap();
        let after = stat.rsplit(')').next().unwrap();
        let field = |n: usize| after.split(' ').nth(n).unwrap().parse::<u64>().unwrap();
        field(12) + field(13)
    };
    sleep(SOON);
    let before = time_of();
    is_well_served(back_end, &hostile.pool, Duration::from_secs(3));
    assert!(time_of() - before < 60, "{} of 300", time_of() - before);
    is_well_served(back_end, &pool, Duration::from_secs(1));
}

fn metrics_of_hostile_pools_hold_up_nothing(back_end: &BackEnd) {
    let pool = back_end.open();
    let _hostile_pools = hostile_pools(back_end);
    let over = Instant::now() + Duration::from_secs(5);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < over {
                let text = metrics_of(back_end);
                assert!(text.contains("vshmem_pools 5"), "{text}");
            }
        });
        is_well_served(back_end, &pool, Duration::from_secs(5));
    });
}

fn a_back_end_restarts_without_a_pool(back_end: &BackEnd) {
    let pool = back_end.open();
    let hostile_pools = hostile_pools(back_end);
    let unwanted: Vec<String> = hostile_pools[..2].iter().map(HostilePool::name).collect();
    restart_without(&back_end.program.directory, &unwanted).unwrap();
    let names = || {
        let pools = back_end.try_status().unwrap().pools;
        let mut names: Vec<_> = pools.into_iter().map(|pool| pool.name).collect();
        names.sort();
        names
    };
    let mut left = vec![name_of(&back_end.pool), hostile_pools[2].name(), hostile_pools[3].name()];
    left.sort();
    assert_eq!(names(), left);
    // The keeper has removed them.
    kill(back_end.pid(), libc::SIGKILL);
    eventually("another back end", || back_end.pid() != 0);
    assert_eq!(names(), left);
    // A back end that does not respond.
    let before = back_end.pid();
    kill(before, libc::SIGSTOP);
    restart_without(&back_end.program.directory, &[hostile_pools[2].name()]).unwrap();
    assert_ne!(back_end.pid(), before);
    left.retain(|name| *name != hostile_pools[2].name());
    assert_eq!(names(), left);
    // It is served again when that is asked for.
    back_end.serve(&hostile_pools[2].path).unwrap();
    assert_eq!(names().len(), 3);
    is_well_served(back_end, &pool, Duration::from_secs(1));
    let nonsense = restart_without(&back_end.program.directory, &["a/b".into()]);
    assert!(nonsense.unwrap_err().to_string().contains("--status"));
}

/// A pool's file is truncated while it is served: the back end survives, drops that pool, and goes on with
/// the others.
fn a_pool_is_truncated(back_end: &BackEnd) {
    let (pool, pid) = (back_end.open(), back_end.pid());
    for (round, length) in [0, 1 << 19, 0, 4096].into_iter().enumerate() {
        let hostile = HostilePool::new(back_end, &format!("short{round}"), SMALL, |_| {});
        sleep(Duration::from_millis(300 * round as u64));
        let file = std::fs::File::options().write(true).open(&hostile.path);
        file.unwrap().set_len(length).unwrap();
        eventually("it is served no longer", || hostile.status().is_none());
        is_well_served(back_end, &pool, Duration::from_secs(1));
        assert_eq!(back_end.pid(), pid);
        // `remove_pool` would leave it, as it is no pool any more.
        std::fs::remove_file(&hostile.path).unwrap();
    }
}

fn main() {
    let tests: [Test; 6] = [
        ("others", SMALL, others_are_served),
        ("ends", SMALL, the_back_end_ends_and_begins_in_time),
        ("quarantine", SMALL, a_hostile_pool_is_quarantined),
        ("metrics", SMALL, metrics_of_hostile_pools_hold_up_nothing),
        ("truncated", SMALL, a_pool_is_truncated),
        ("without", SMALL, a_back_end_restarts_without_a_pool),
    ];
    back_end::run(&tests);
}
