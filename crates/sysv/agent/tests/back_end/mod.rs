//! A back end for tests, in a directory of its own. Its processes are the test program itself.

use std::ffi::CString;
use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_agent::ivshmem::client::{ensure, request, status};
use vshmem_agent::ivshmem::{run_part, Directory, Part, PoolStatus, Program, Request};
use vshmem_ipc::Ctx;
use vshmem_pool::{Budget, Cred, Kernel, Params, Pool, ProcId, Waited};
use vshmem_transport::{create_local, open, remove_local, Handle, PoolRef};

pub const VECTORS: usize = 2;
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes a pool.
pub fn new_pool(test: &str, size: u64) -> PathBuf {
    let pool = PathBuf::from(format!("/dev/shm/va-{}-{test}", std::process::id()));
    let path = CString::new(pool.to_str().unwrap()).unwrap();
    create_local(&path, size, 0o600, &mut |memory| Pool::format(memory, &Params::default()).is_ok()).unwrap();
    pool
}

pub fn remove_pool(pool: &Path) {
    let path = CString::new(pool.to_str().unwrap()).unwrap();
    let _ = remove_local(&path);
}

pub fn open_pool(pool: &Path) -> Pool {
    Pool::open(open_handle(pool).mem()).unwrap()
}

pub fn open_handle(pool: &Path) -> Handle {
    open(&PoolRef::at(pool.to_str().unwrap().as_bytes()).unwrap()).unwrap()
}

/// A back end with one pool, in a directory of its own.
pub struct BackEnd {
    pub program: Program,
    pub pool: PathBuf,
    pub socket: PathBuf,
}

impl BackEnd {
    pub fn new(test: &str, size: u64) -> BackEnd {
        let root = std::env::temp_dir().join(format!("va-{}-{test}", std::process::id()));
        let pool = new_pool(test, size);
        let program = Program {
            path: std::env::current_exe().unwrap(),
            args: vec![],
            directory: Directory::named(&root.join("agent")),
            transient: false,
        };
        fs::create_dir(&root).unwrap();
        assert!(ensure(&program).unwrap());
        assert!(!ensure(&program).unwrap());
        let mut back_end = BackEnd { program, pool, socket: PathBuf::new() };
        back_end.socket = back_end.serve(&back_end.pool).unwrap();
        back_end
    }

    /// Has a pool served; returns the socket to which machines connect.
    pub fn serve(&self, pool: &Path) -> vshmem_base::Result<PathBuf> {
        let serve = Request::Serve { pool: pool.to_str().unwrap().into(), vectors: VECTORS };
        Ok(request(&self.program.directory, &serve)?.unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.try_status().map_or(0, |status| status.pid)
    }

    pub fn try_status(&self) -> Option<vshmem_agent::ivshmem::Status> {
        status(&self.program.directory).ok().flatten()
    }

    pub fn status(&self) -> PoolStatus {
        self.try_status().unwrap().pools.remove(0)
    }

    pub fn open(&self) -> Pool {
        open_pool(&self.pool)
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        let _ = request(&self.program.directory, &Request::Stop {});
        remove_pool(&self.pool);
        let root = self.program.directory.path().parent().unwrap();
        let gone = Instant::now() + TIMEOUT;
        while root.exists() && Instant::now() < gone {
            sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_dir_all(root);
    }
}

pub fn kill(pid: u32, signal: i32) {
    assert!(pid > 1);
    // SAFETY: plain values.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// A test's name, the size of its pool, and the test.
pub type Test = (&'static str, u64, fn(&BackEnd));

/// Runs the tests, or those that the arguments name. Or runs the part of the agent that they name.
pub fn run(tests: &[Test]) {
    let args: Vec<String> = std::env::args().collect();
    if let Some((program, part, link)) = part_of_args(&args) {
        if let Err(error) = run_part(&program, part, link) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        return;
    }
    let wanted = args.get(1).filter(|arg| !arg.starts_with('-'));
    let mut failed = 0;
    for (name, size, test) in tests {
        if wanted.is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        let begun = Instant::now();
        let back_end = BackEnd::new(name, *size);
        let passed = catch_unwind(AssertUnwindSafe(|| test(&back_end))).is_ok();
        drop(back_end);
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("{name} ... {verdict} ({:.2} s)", begun.elapsed().as_secs_f64());
        failed += u32::from(!passed);
    }
    assert_eq!(failed, 0, "tests failed");
}

fn part_of_args(args: &[String]) -> Option<(Program, Part, i32)> {
    let after = |option: &str| {
        let at = args.iter().position(|arg| arg == option)?;
        args.get(at + 1)
    };
    let part = match after("--part")?.as_str() {
        "keeper" => Part::Keeper,
        _ => Part::BackEnd,
    };
    let program = Program {
        path: std::env::current_exe().ok()?,
        args: vec![],
        directory: Directory::named(Path::new(after("--directory")?)),
        transient: false,
    };
    Some((program, part, after("--link")?.parse().ok()?))
}

pub fn guest<'a>(pool: &'a Pool, (me, member): (ProcId, u16)) -> Ctx<'a> {
    Ctx { pool, kernel: &Guest, me, pid: 77, namespace: 0, member, budget: Budget::default() }
}

/// The kernel of a machine: all pages have memory, which can't be given back.
pub struct Guest;

impl Kernel for Guest {
    fn alive(&self, _slot: u32, _pid: u32, _started: u64) -> bool {
        true
    }
    fn block_signals(&self) -> u64 {
        0
    }
    fn restore_signals(&self, _old: u64) {}
    fn reserve(&self, _offset: u64, _len: u64) -> bool {
        true
    }
    fn now(&self) -> i64 {
        0
    }
    fn monotonic(&self) -> u64 {
        0
    }
    fn cred(&self) -> Cred {
        Cred { uid: 1, gid: 1, caps: u64::MAX }
    }
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout: Option<Duration>) -> Waited {
        // So that a budget outlasts a lock owner that is not scheduled at the moment.
        sleep(Duration::from_millis(1));
        Waited::TimedOut
    }
    fn wake(&self, _word: &AtomicU32, _n: u32) -> u32 {
        0
    }
}
