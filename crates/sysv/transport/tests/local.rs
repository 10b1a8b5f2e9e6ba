//! Creating, opening, listing and removing local pools; and what else may lie where a pool should be.

use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use vshmem_pool::layout::MAGIC;
use vshmem_pool::Mem;
use vshmem_transport::{
    create_local, create_with_head, list_local, open, remove_local, reserve_local, CreateError, OpenError,
    PoolRef, RemoveError,
};

const SIZE: u64 = 2 << 20;

/// Writes the number that a pool begins with.
fn begin(mem: Mem) -> bool {
    // SAFETY: inside the memory that was passed.
    unsafe { mem.base().cast::<u64>().write(MAGIC) };
    true
}

/// A path of its own for each test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = format!("/dev/shm/vshmem-test-{}-{number}", std::process::id());
        fs::create_dir(&directory).expect("/dev/shm is writable");
        Scratch(directory.into())
    }

    fn path(&self) -> PathBuf {
        self.0.join("pool")
    }

    fn c_path(&self) -> CString {
        c_string(&self.path())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("made by this test");
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in it")
}

fn at(path: &Path) -> PoolRef {
    PoolRef::at(path.as_os_str().as_bytes()).expect("a good path")
}

/// The error of opening a path that is no pool.
fn refusal(path: &Path) -> OpenError {
    open(&at(path)).expect_err("opened what is no pool")
}

/// A name that no other test uses.
fn unique(name: &str) -> CString {
    CString::new(format!("{name}-{}", std::process::id())).expect("no zero in it")
}

/// The file of a pool with this name.
fn file_of(name: &CStr) -> PathBuf {
    // SAFETY: a query.
    let user = unsafe { libc::geteuid() };
    let directory = PathBuf::from(format!("/dev/shm/vshmem.{user}"));
    // As the first pool's maker does it.
    let _ = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    directory.join(name.to_str().expect("ASCII"))
}

fn is_root() -> bool {
    // SAFETY: a query.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_new_pool_has_its_contents_size_and_mode() {
    let scratch = Scratch::new();
    for mode in [0o600, 0o666, 0o640] {
        create_local(&scratch.c_path(), SIZE - 5, mode, &mut |mem| {
            assert_eq!(mem.len() as u64, SIZE);
            assert!(begin(mem));
            // SAFETY: inside the memory that was passed.
            unsafe { mem.base().add(SIZE as usize / 2).write(42) };
            true
        })
        .expect("created");
        let status = fs::metadata(scratch.path()).expect("there");
        assert_eq!(status.len(), SIZE);
        assert_eq!(status.mode() & 0o7777, mode);
        assert_eq!(status.blocks() * 512, 2 * 4096, "more than the written pages take memory");
        let handle = open(&at(&scratch.path())).expect("a pool");
        // SAFETY: inside the pool.
        let byte = unsafe { handle.mem().base().add(SIZE as usize / 2).read() };
        assert_eq!(byte, 42);
        // SAFETY: not used any more.
        unsafe { handle.close() };
        remove_local(&scratch.c_path()).expect("removed");
    }
}

#[test]
fn nothing_is_left_when_init_refuses() {
    let scratch = Scratch::new();
    let outcome = create_local(&scratch.c_path(), SIZE, 0o600, &mut |_| false);
    assert_eq!(outcome, Err(CreateError::InitFailed));
    assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0);
}

#[test]
fn one_of_many_creators_wins_and_all_see_a_whole_pool() {
    let scratch = Scratch::new();
    let (path, pool) = (scratch.c_path(), at(&scratch.path()));
    let winners = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 1..=8u8 {
            let (path, pool, winners) = (&path, &pool, &winners);
            scope.spawn(move || {
                let outcome = create_local(path, SIZE, 0o600, &mut |mem| {
                    for offset in (0..mem.len()).step_by(64 << 10) {
                        // SAFETY: inside the memory that was passed.
                        unsafe { mem.base().add(offset).write(number) };
                    }
                    true
                });
                match outcome {
                    Ok(()) => winners.fetch_add(1, Ordering::Relaxed),
                    Err(error) => {
                        assert_eq!(error, CreateError::Exists);
                        0
                    }
                };
                let handle = open(pool).expect("there, and whole");
                // SAFETY: inside the pool.
                let byte = |offset| unsafe { handle.mem().base().add(offset).read() };
                let winner = byte(0);
                assert!(winner != 0);
                assert!((0..SIZE as usize).step_by(64 << 10).all(|offset| byte(offset) == winner));
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
}

#[test]
fn what_exists_is_never_replaced() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "mine").expect("writable");
    let outcome = create_local(&scratch.c_path(), SIZE, 0o600, &mut |_| true);
    assert_eq!(outcome, Err(CreateError::Exists));
    assert_eq!(fs::read(scratch.path()).expect("there"), b"mine");
    fs::remove_file(scratch.path()).expect("there");
    symlink("/nowhere", scratch.path()).expect("writable");
    let outcome = create_local(&scratch.c_path(), SIZE, 0o600, &mut |_| true);
    assert_eq!(outcome, Err(CreateError::Exists));
}

#[test]
fn impossible_pools_are_refused() {
    let scratch = Scratch::new();
    let create = |path: &CStr, size| create_local(path, size, 0o600, &mut |_| true);
    assert_eq!(create(&scratch.c_path(), (1 << 20) - 1), Err(CreateError::TooSmall));
    assert_eq!(create(&scratch.c_path(), u64::MAX), Err(CreateError::TooLarge));
    assert_eq!(create(&scratch.c_path(), 1 << 60), Err(CreateError::TooLarge));
    assert_eq!(create(&scratch.c_path(), 1 << 59), Err(CreateError::NoMemory));
    assert_eq!(create(c"no such name", SIZE), Err(CreateError::BadName));
    assert_eq!(create(c"", SIZE), Err(CreateError::BadName));
    assert_eq!(create(c"/nonexistent/pool", SIZE), Err(CreateError::NoDirectory));
    assert_eq!(create(c"/proc/pool", SIZE), Err(CreateError::NoDirectory));
    assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0);
}

#[test]
fn what_is_no_pool_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path();
    assert_eq!(refusal(&path), OpenError::NotFound);
    assert_eq!(refusal(&scratch.0), OpenError::NotAFile);
    assert_eq!(refusal(Path::new("/dev/null")), OpenError::NotAFile);
    let file = File::create(&path).expect("writable");
    assert_eq!(refusal(&path), OpenError::TooSmall);
    file.set_len(SIZE + 1).expect("sparse");
    assert_eq!(refusal(&path), OpenError::Uneven);
    file.set_len(1 << 62).expect("sparse");
    assert_eq!(refusal(&path), OpenError::TooLarge);
    file.set_len(1 << 50).expect("sparse");
    assert_eq!(refusal(&path), OpenError::NoMemory);
    fs::remove_file(&path).expect("there");

    let c_path = scratch.c_path();
    // SAFETY: a terminated string.
    assert_eq!(unsafe { libc::mkfifo(c_path.as_ptr(), 0o600) }, 0);
    assert!(fs::metadata(&path).expect("there").file_type().is_fifo());
    assert_eq!(refusal(&path), OpenError::NotAFile);
    assert_eq!(remove_local(&c_path), Err(RemoveError::NotAFile));
}

#[test]
fn a_path_may_be_a_link_but_a_name_may_not() {
    let scratch = Scratch::new();
    create_local(&scratch.c_path(), SIZE, 0o600, &mut |_| true).expect("created");
    let link = scratch.0.join("link");
    symlink(scratch.path(), &link).expect("writable");
    assert!(open(&at(&link)).is_ok());

    let name = unique("trap");
    symlink(scratch.path(), file_of(&name)).expect("writable");
    let pool = PoolRef::named(name.to_bytes()).expect("a good name");
    let refused = open(&pool).expect_err("followed a link in /dev/shm");
    let removed = remove_local(&name);
    fs::remove_file(file_of(&name)).expect("made above");
    assert_eq!(refused, OpenError::SymbolicLink);
    assert_eq!(removed, Err(RemoveError::NotAFile));
}

#[test]
fn a_name_means_the_users_own_pool() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let name = unique("foreign");
    create_local(&name, SIZE, 0o666, &mut |_| true).expect("created");
    let file = file_of(&name);
    std::os::unix::fs::chown(&file, Some(65_534), None).expect("root may");
    let pool = PoolRef::named(name.to_bytes()).expect("a good name");
    let refused = open(&pool).expect_err("opened another user's pool");
    let removed = remove_local(&name);
    let by_path = open(&at(&file));
    fs::remove_file(&file).expect("made above");
    assert_eq!(refused, OpenError::ForeignOwner);
    assert_eq!(removed, Err(RemoveError::ForeignOwner));
    assert!(by_path.is_ok(), "a path is a sign of trust");
}

/// The errors of making, opening, listing and removing a named pool when `make` has put something at the
/// place of the user's directory of them, in a /dev/shm of this thread's own. Without an error the text is
/// empty.
fn with_own_directory(make: impl Fn(&Path)) -> Option<[String; 4]> {
    let _mounted = SmallFileSystem::on(Path::new("/dev/shm"))?;
    fs::set_permissions("/dev/shm", Permissions::from_mode(0o1777)).expect("own");
    // SAFETY: a query.
    let own = format!("/dev/shm/vshmem.{}", unsafe { libc::geteuid() });
    make(Path::new(&own));
    let pool = PoolRef::named(b"squatted").expect("a good name");
    let mut listed = 0;
    let said = [
        create_local(c"squatted", SIZE, 0o600, &mut begin).err().map(|e| e.to_string()),
        open(&pool).err().map(|e| e.to_string()),
        list_local(&mut |_| {
            listed += 1;
            true
        })
        .err()
        .map(|e| e.to_string()),
        remove_local(c"squatted").err().map(|e| e.to_string()),
    ];
    let said = said.map(|said| said.unwrap_or_default());
    assert_eq!(listed, usize::from(said[2].is_empty()));
    Some(said)
}

#[test]
fn only_a_directory_of_the_users_own_has_named_pools() {
    let make = |mode| {
        move |own: &Path| {
            fs::create_dir(own).expect("writable");
            fs::set_permissions(own, Permissions::from_mode(mode)).expect("own");
        }
    };
    let foreign = |own: &Path| {
        make(0o755)(own);
        std::os::unix::fs::chown(own, Some(65_534), None).expect("root may");
    };
    let link = |own: &Path| {
        make(0o700)(Path::new("/dev/shm/elsewhere"));
        symlink("/dev/shm/elsewhere", own).expect("writable");
    };
    let file = |own: &Path| fs::write(own, "").expect("writable");
    type Make<'m> = &'m (dyn Fn(&Path) + Sync);
    let traps: [(&str, Make); 5] = [
        ("another user's", &foreign),
        ("a link", &link),
        ("a file", &file),
        ("everybody's", &make(0o1777)),
        ("the group's", &make(0o770)),
    ];
    let none = |_: &Path| {};
    let fine: [Make; 3] = [&none, &make(0o700), &make(0o711)];
    std::thread::scope(|scope| {
        // A thread for each, since it has a mount namespace of its own from then on.
        for make in fine {
            let said = scope.spawn(move || with_own_directory(make)).join().expect("no panic");
            let Some(said) = said else {
                eprintln!("skipped: needs to mount a file system");
                return;
            };
            assert_eq!(said, [""; 4]);
        }
        for (what, make) in traps {
            let said = scope.spawn(move || with_own_directory(make)).join().expect("no panic");
            for said in said.expect("mounted before") {
                assert!(said.contains("have its owner or root remove it"), "{what}: {said}");
            }
        }
    });
}

#[test]
fn a_file_with_a_second_name_is_no_pool() {
    let name = unique("linked");
    create_local(&name, SIZE, 0o600, &mut begin).expect("created");
    let (file, pool) = (file_of(&name), PoolRef::named(name.to_bytes()).expect("a good name"));
    let other = file.with_extension("other");
    fs::hard_link(&file, &other).expect("on one file system");
    for pool in [&pool, &at(&file), &at(&other)] {
        assert_eq!(open(pool).expect_err("opened a trap"), OpenError::HardLinks);
    }
    assert_eq!(reserve_local(&name), Err(CreateError::HardLinks));
    remove_local(&name).expect("a name can go");
    let handle = open(&at(&other)).expect("one name is left");
    // SAFETY: nobody uses it.
    unsafe { handle.close() };
    // By its descriptor it is a pool without a name, too.
    let descriptor = File::options().read(true).write(true).open(&other).expect("there");
    fs::remove_file(&other).expect("there");
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor));
    let handle = open(&at(Path::new(&link))).expect("a pool");
    // SAFETY: nobody uses it.
    unsafe { handle.close() };
}

#[test]
fn only_pools_are_removed_by_path() {
    let scratch = Scratch::new();
    for contents in [&b""[..], b"short", &[0; 4096], b"a letter to my mother"] {
        fs::write(scratch.path(), contents).expect("writable");
        assert_eq!(remove_local(&scratch.c_path()), Err(RemoveError::NotAPool));
        assert_eq!(fs::read(scratch.path()).expect("there"), contents);
        fs::remove_file(scratch.path()).expect("there");
    }
    create_local(&scratch.c_path(), SIZE, 0o600, &mut begin).expect("created");
    remove_local(&scratch.c_path()).expect("a pool");
    // In the directory of named pools nothing else is.
    let name = unique("broken");
    fs::write(file_of(&name), "").expect("writable");
    remove_local(&name).expect("a broken pool");
}

#[test]
fn named_pools_are_listed_until_removed() {
    let name = unique("listed");
    create_local(&name, SIZE, 0o640, &mut |_| true).expect("created");
    let listed = || {
        let mut found = None;
        list_local(&mut |pool| {
            if pool.pool.name() == name.to_bytes() {
                found = Some(pool.clone());
            }
            true
        })
        .expect("readable");
        found
    };
    let pool = listed().expect("listed");
    assert_eq!((pool.size, pool.used, pool.mode), (SIZE, 0, 0o640));
    assert_eq!(pool.pool.path().to_bytes(), file_of(&name).as_os_str().as_bytes());
    let handle = open(&pool.pool).expect("a pool");
    assert!(handle.reserve(0, 8192));
    assert_eq!(listed().expect("listed").used, 8192);
    remove_local(&name).expect("removed");
    assert!(listed().is_none());
    assert_eq!(remove_local(&name), Err(RemoveError::NotFound));
    // Who has it open keeps it.
    assert!(handle.alive(1) == Some(false) && handle.claim_liveness(1).is_some());
}

#[test]
fn every_page_of_a_pool_can_be_given_back() {
    let name = unique("release");
    create_local(&name, 64 << 20, 0o600, &mut |_| true).expect("created");
    let handle = open(&PoolRef::named(name.to_bytes()).expect("a good name")).expect("a pool");
    let used = || fs::metadata(file_of(&name)).expect("there").blocks() * 512;
    let room = handle.free_memory();
    // Where the kernel can tell it at all.
    let backed = |offset, len, bytes| handle.backed(offset, len).is_none_or(|backed| backed == bytes);
    assert!(handle.reserve(8192, 4096));
    assert!(backed(0, 64 << 20, used()) && backed(8192, 4096, 4096) && backed(12288, 4096, 0));
    assert!(handle.reserve(0, 64 << 20));
    assert!(backed(4 << 20, 8 << 20, 8 << 20));
    assert_eq!(handle.backed(63 << 20, 2 << 20), None, "beyond the end");
    assert_eq!(used(), 64 << 20);
    if let (Some(before), Some(after)) = (room, handle.free_memory()) {
        assert!(after < before);
    }
    assert!(handle.release(0, 64 << 20));
    assert_eq!(used(), 0);
    remove_local(&name).expect("removed");
}

/// A file system of two megabytes that this thread alone sees.
struct SmallFileSystem(CString);

impl SmallFileSystem {
    /// Mounts it; `None` where that isn't allowed.
    fn on(place: &Path) -> Option<SmallFileSystem> {
        let place = c_string(place);
        let none = std::ptr::null();
        let (private, size) = (libc::MS_REC | libc::MS_PRIVATE, c"size=2m".as_ptr().cast());
        let (tmpfs, at) = (c"tmpfs".as_ptr(), place.as_ptr());
        // SAFETY: terminated strings; the mount namespace is this thread's own, and ends with it.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
                && libc::mount(tmpfs, at, tmpfs, 0, size) == 0
        };
        mounted.then_some(SmallFileSystem(place))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // SAFETY: a terminated string; the mount is this thread's own.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_file_system_is_an_error_and_no_signal() {
    let scratch = Scratch::new();
    let Some(_mounted) = SmallFileSystem::on(&scratch.0) else {
        eprintln!("skipped: needs to mount a file system");
        return;
    };
    let outcome = create_local(&scratch.c_path(), 16 << 20, 0o600, &mut |mem| {
        // SAFETY: inside the memory that was passed.
        unsafe { mem.base().write_bytes(1, 3 << 20) };
        true
    });
    assert_eq!(outcome, Err(CreateError::NoRoom));
    create_local(&scratch.c_path(), 16 << 20, 0o600, &mut |_| true).expect("sparse");
    let handle = open(&at(&scratch.path())).expect("a pool");
    assert!(!handle.reserve(0, 3 << 20), "reserved more than there is");
    assert!(handle.release(0, 16 << 20));
    assert_eq!(handle.free_memory(), Some(2 << 20));
    assert!(handle.reserve(0, 1 << 20));
    assert_eq!(handle.free_memory(), Some(1 << 20));
}

#[test]
fn a_read_only_pool_is_refused() {
    let scratch = Scratch::new();
    create_local(&scratch.c_path(), SIZE, 0o400, &mut |_| true).expect("created");
    if is_root() {
        eprintln!("skipped: permissions don't hold root back");
        return;
    }
    assert_eq!(refusal(&scratch.path()), OpenError::Denied);
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o600)).expect("own");
    assert!(open(&at(&scratch.path())).is_ok());
}

#[test]
fn a_reserved_pool_keeps_all_of_its_memory_and_what_it_holds() {
    let name = unique("reserved");
    create_local(&name, 4 << 20, 0o640, &mut |mem| {
        // SAFETY: inside the memory that was passed.
        unsafe { mem.base().add(3 << 20).write(7) };
        true
    })
    .expect("created");
    let file = file_of(&name);
    // Open before it is reserved, as a program may have it that uses it already.
    let handle = open(&at(&file)).expect("a pool");
    assert!(!handle.is_reserved());
    assert!(handle.release(0, 1 << 20), "a sparse pool gives memory back");
    reserve_local(&name).expect("room");
    assert!(handle.is_reserved());
    let used = || fs::metadata(&file).expect("it is there").blocks() * 512;
    assert_eq!(used(), 4 << 20);
    assert!(!handle.release(0, 4 << 20), "said to be given back");
    assert_eq!(used(), 4 << 20);
    // SAFETY: inside the pool.
    assert_eq!(unsafe { handle.mem().base().add(3 << 20).read() }, 7);
    let mut listed = None;
    list_local(&mut |found| {
        if found.pool.name() == name.to_bytes() {
            listed = Some((found.mode, found.reserved));
        }
        true
    })
    .expect("listed");
    assert_eq!(listed, Some((0o640, true)));
    reserve_local(&name).expect("once more changes nothing");
    // SAFETY: nobody uses it any more.
    unsafe { handle.close() };
    remove_local(&name).expect("removed");
    assert!(reserve_local(&name).is_err(), "reserved what is not there");
}

#[test]
fn what_there_is_no_room_for_is_not_reserved_and_takes_none() {
    let scratch = Scratch::new();
    let Some(_mounted) = SmallFileSystem::on(&scratch.0) else {
        eprintln!("skipped: needs to mount a file system");
        return;
    };
    create_local(&scratch.c_path(), 4 << 20, 0o600, &mut begin).expect("sparse");
    assert_eq!(reserve_local(&scratch.c_path()), Err(CreateError::NoRoom));
    let handle = open(&at(&scratch.path())).expect("a pool");
    assert!(!handle.is_reserved());
    // Opening it has touched its first page.
    assert!(handle.free_memory() >= Some((2 << 20) - (64 << 10)), "some was taken");
    // SAFETY: nobody uses it.
    unsafe { handle.close() };
    remove_local(&scratch.c_path()).expect("removed");
    create_local(&scratch.c_path(), 2 << 20, 0o600, &mut |_| true).expect("sparse");
    reserve_local(&scratch.c_path()).expect("all that there is");
    let handle = open(&at(&scratch.path())).expect("a pool");
    assert_eq!(handle.free_memory(), Some(0));
    assert!(handle.reserve(0, 2 << 20), "it has it on a full file system, too");
}

#[test]
fn a_pool_behind_a_head_is_opened_and_removed_as_others_are() {
    const HEAD: u64 = vshmem_transport::head::HEAD;
    let scratch = Scratch::new();
    let pool = at(&scratch.path());
    create_with_head(&pool, 0, SIZE + 1, 0o600, &mut begin).expect("room");
    let meta = fs::metadata(scratch.path()).expect("there");
    assert_eq!(meta.len(), HEAD + 2 * SIZE, "in whole blocks");
    let handle = open(&pool).expect("a pool");
    assert_eq!(handle.mem().len() as u64, 2 * SIZE);
    assert!(handle.reserve(SIZE, SIZE) && handle.release(SIZE, 4096));
    let page = handle.map(0, 4096, None, libc::PROT_READ).expect("mapped");
    // SAFETY: mapped above, and nobody else uses it.
    unsafe {
        assert_eq!(page.cast::<u64>().read(), MAGIC);
        handle.unmap(page, 4096);
        handle.close();
    }
    remove_local(&scratch.c_path()).expect("it begins as a pool");
}
