//! The contract of a transport, for local pools in all the ways in which they are reached.
//!
//! Without the test harness: the checks fork, so this process must have one thread.

use std::ffi::{CStr, CString};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use vshmem_pool::layout::MAGIC;
use vshmem_pool::Mem;
use vshmem_transport::contract::{run, Subject, Verdict};
use vshmem_transport::{create_local, create_with_head, remove_local, Local, PoolRef};

const SIZE: u64 = 4 << 20;

fn main() -> ExitCode {
    let mut good = true;
    for (way, check) in [
        ("by name", by_name as fn() -> bool),
        ("by path on tmpfs", by_path_on_tmpfs),
        ("by path on the disk", by_path_on_disk),
        ("behind a head", behind_a_head),
        ("memory file of another process", memory_file),
        ("bind-mounted into a mount namespace", bind_mounted),
    ] {
        println!("local pool, {way}:");
        good &= check();
    }
    println!("local pool, after mlockall:");
    good &= stays_sparse();
    ExitCode::from(u8::from(!good))
}

/// Makes the checks on a pool and prints the verdicts.
fn check(pool: &PoolRef) -> bool {
    run(&Subject { transport: &Local, pool }, &mut |name, verdict| match verdict {
        Verdict::Passed => println!("  ok    {name}"),
        Verdict::Skipped(reason) => println!("  skip  {name}: {reason}"),
        Verdict::Failed(message) => println!("  FAIL  {name}: {message}"),
    })
}

/// Creates a pool in which nothing is, and makes the checks on it.
fn check_new(name: &CStr, pool: &PoolRef) -> bool {
    if let Err(error) = create_local(name, SIZE, 0o600, &mut |_| true) {
        println!("  FAIL  create {}: {error}", name.to_string_lossy());
        return false;
    }
    check(pool)
}

fn by_name() -> bool {
    let name = CString::new(format!("contract-{}", std::process::id())).expect("no zero");
    let good = check_new(&name, &PoolRef::named(name.to_bytes()).expect("a good name"));
    remove_local(&name).expect("the pool was there");
    good
}

/// Makes the checks on a pool at a path in this directory.
fn by_path_in(directory: &str) -> bool {
    let path = format!("{directory}/vshmem-contract-{}", std::process::id());
    let name = CString::new(path.as_str()).expect("no zero");
    let good = check_new(&name, &PoolRef::at(name.to_bytes()).expect("a good path"));
    // By its path nothing is removed that does not begin as a pool does.
    std::fs::remove_file(path).expect("the pool was there");
    good
}

fn by_path_on_tmpfs() -> bool {
    by_path_in("/dev/shm")
}

fn by_path_on_disk() -> bool {
    by_path_in(env!("CARGO_TARGET_TMPDIR"))
}

/// A pool behind a head is found by how a pool begins.
fn behind_a_head() -> bool {
    let path = format!("/dev/shm/vshmem-head-{}", std::process::id());
    let pool = PoolRef::at(path.as_bytes()).expect("a good path");
    // SAFETY: inside the memory that is passed.
    let begin = &mut |mem: Mem| unsafe {
        mem.base().cast::<u64>().write(MAGIC);
        true
    };
    create_with_head(&pool, 0, SIZE, 0o600, begin).expect("a new pool");
    let good = check(&pool);
    std::fs::remove_file(path).expect("the pool was there");
    good
}

fn memory_file() -> bool {
    // SAFETY: a terminated string.
    let fd = unsafe { libc::memfd_create(c"contract".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: sets the length of the file above.
    assert_eq!(unsafe { libc::ftruncate(fd, SIZE as i64) }, 0);
    let path = format!("/proc/{}/fd/{fd}", std::process::id());
    let good = check(&PoolRef::at(path.as_bytes()).expect("a good path"));
    // SAFETY: opened above.
    unsafe { libc::close(fd) };
    good
}

/// Runs in a child, as it changes the mount namespace. The liveness locks are the pool's, under whatever path
/// it is seen: the parent holds one by the original path, and the child must see it by the other.
fn bind_mounted() -> bool {
    // SAFETY: a query.
    if unsafe { libc::geteuid() } != 0 {
        println!("  skip  needs root");
        return true;
    }
    let base = format!("{}/vshmem-bind-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let (original, seen) = (format!("{base}.pool"), format!("{base}.seen"));
    let name = CString::new(original.as_str()).expect("no zero");
    create_local(&name, SIZE, 0o600, &mut |_| true).expect("a new pool");
    std::fs::write(&seen, "").expect("a place to mount it on");
    let outside = vshmem_transport::open(&PoolRef::at(original.as_bytes()).expect("a path"));
    let outside = outside.expect("just created");
    let liveness = outside.claim_liveness(123).expect("nobody has it");
    // SAFETY: this process has one thread.
    let good = match unsafe { libc::fork() } {
        0 => {
            let good = mount_on(&original, &seen) && check_bound(&seen);
            std::process::exit(i32::from(!good))
        }
        child => {
            let mut status = 1;
            // SAFETY: waits for the child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            status == 0
        }
    };
    // SAFETY: claimed above; the handle is not used any more.
    unsafe {
        liveness.end();
        outside.close();
    }
    std::fs::remove_file(&original).expect("the pool was there");
    std::fs::remove_file(&seen).expect("the place was there");
    good
}

/// Mounts one file on another, for this process only.
fn mount_on(file: &str, place: &str) -> bool {
    let (file, place) = (CString::new(file).expect("no zero"), CString::new(place).expect("no zero"));
    let none = std::ptr::null();
    // SAFETY: terminated strings; concerns this process only.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
            && libc::mount(file.as_ptr(), place.as_ptr(), none, libc::MS_BIND, none.cast()) == 0
    }
}

/// Makes the checks on a bind-mounted pool.
fn check_bound(path: &str) -> bool {
    let pool = PoolRef::at(path.as_bytes()).expect("a good path");
    let handle = vshmem_transport::open(&pool).expect("mounted");
    let alive = (handle.alive(123), handle.alive(124));
    if alive != (Some(true), Some(false)) {
        println!("  FAIL  liveness locks across mount namespaces: {alive:?}");
        return false;
    }
    check(&pool)
}

/// A pool that is opened by a program which locks its memory stays sparse.
fn stays_sparse() -> bool {
    let path = format!("/dev/shm/vshmem-locked-{}", std::process::id());
    let name = CString::new(path.as_str()).expect("no zero");
    create_local(&name, SIZE, 0o600, &mut |_| true).expect("a new pool");
    // SAFETY: this process has one thread, and ends soon.
    let good = if unsafe { libc::mlockall(libc::MCL_FUTURE) } == 0 {
        let pool = PoolRef::at(path.as_bytes()).expect("a path");
        let handle = vshmem_transport::open(&pool).expect("just created");
        let used = std::fs::metadata(&path).expect("there").blocks() * 512;
        println!("  {used} of {SIZE} bytes are in use");
        // One page is: the first, where futexes were tried.
        used <= handle.page_size()
    } else {
        println!("  skip  memory may not be locked here");
        true
    };
    std::fs::remove_file(path).expect("the pool was there");
    good
}
