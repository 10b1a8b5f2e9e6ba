//! A pool of the test's own, and other processes that run a test of the same program.
#![allow(dead_code)] // not every test uses all of it

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;
use vshmem::Pool;

const POOL: &str = "VSHMEM_TEST_POOL";

static POOL_OF_TESTS: OnceLock<(Pool, PathBuf)> = OnceLock::new();

extern "C" fn clean_up() {
    if let (Some((_, path)), None) = (POOL_OF_TESTS.get(), std::env::var_os(POOL)) {
        let _ = std::fs::remove_file(path);
    }
}

/// A path in shared memory that no other program uses.
pub fn path(name: &str) -> PathBuf {
    let name = format!("vshmem-bindings-{}-{name}", std::process::id());
    PathBuf::from("/dev/shm").join(name)
}

/// Makes the pool of this program's tests the current one; in a child its parent's.
pub fn pool() {
    POOL_OF_TESTS.get_or_init(|| {
        let (pool, path) = match std::env::var_os(POOL) {
            Some(given) => (Pool::open(&given).unwrap(), given.into()),
            None => {
                let path = path("pool");
                let pool = Pool::create(&path, 64 << 20, 0o600).unwrap();
                // SAFETY: a function that may be called at exit.
                unsafe { libc::atexit(clean_up) };
                (pool, path)
            }
        };
        pool.make_current().unwrap();
        (pool, path)
    });
}

/// Starts a process that runs one ignored test of this program in the same pool.
pub fn start(test: &str) -> Child {
    pool();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--quiet"])
        .env(POOL, &POOL_OF_TESTS.get().unwrap().1)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for processes that must succeed.
pub fn all_succeed(children: impl IntoIterator<Item = Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}
