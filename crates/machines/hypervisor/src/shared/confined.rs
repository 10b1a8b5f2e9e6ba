//! The sandbox's own processes: the one that becomes QEMU, and the one that stays beside it and writes its
//! logs.

use super::sandbox::{Descriptor, SandboxSpec, DESCRIPTORS, FIRST, SHARED, SOCKETS};
use super::set_id::{self, Modes};
use super::{file_tree, logs, passed};
use crate::shared::file_tree::StandIns;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{set_parent_process_death_signal, Signal};
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::user::{become_user, uid};

/// Devices that QEMU has, if the host has them.
const DEVICES: [&str; 3] = ["null", "urandom", "kvm"];

/// Pause before a process that was killed is started again, and the longest one.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A process that has lived for so long was killed by something else than what it does at its start.
const STEADY: Duration = Duration::from_secs(60);
/// How often a process is started that ends at once.
const MOST_STARTS: u32 = 10;

/// Runs as the process that [`super::sandbox::start`] executes. Ends after what it has started.
pub fn main() -> ! {
    let begun = read_spec().and_then(|spec| begin(&spec, None).map(|begun| (spec, begun)));
    let stands_for = |(spec, begun): &(SandboxSpec, Begun)| match spec.again {
        true => std::process::id() as i32,
        false => begun.pid,
    };
    let outcome = begun.as_ref().map(stands_for);
    let text = serde_json::to_string(&outcome).expect("an outcome is plain data");
    let _ = io::stdout().write_all(text.as_bytes());
    let _ = io::stdout().flush();
    let Ok((spec, mut begun)) = begun else { std::process::exit(1) };
    // A reader of the caller's output waits until all descriptors for it are closed.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for fd in 1..3 {
            // SAFETY: plain values; nothing here uses these numbers any more.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
    let (mut watched, mut pause, mut starts) = (true, PAUSE, 1);
    loop {
        let (since, lost) = (Instant::now(), Cell::new(false));
        let Begun { pid, mut logs, modes } = begun;
        watched = logs.run(watched.then(io::stdin).as_mut(), modes.as_ref(), &|| {
            lost.set(true);
            // SAFETY: plain values; it is our child, and not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        let mut status = 0;
        // SAFETY: there is room for the status; the process is our child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        let has_ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        if since.elapsed() >= STEADY {
            (pause, starts) = (PAUSE, 0);
        }
        if !spec.again || lost.get() || has_ended || starts >= MOST_STARTS {
            std::process::exit(0);
        }
        std::thread::sleep(pause);
        (pause, starts) = ((2 * pause).min(LONGEST_PAUSE), starts + 1);
        let Ok(again) = begin(&spec, Some(logs)) else { std::process::exit(1) };
        begun = again;
    }
}

/// The program and the resources that were asked for.
fn read_spec() -> Result<SandboxSpec> {
    let mut text = String::new();
    io::stdin().read_line(&mut text).explain(|| "reading what to start".into())?;
    let spec: SandboxSpec = serde_json::from_str(&text)
        .map_err(|e| error!("QEMU's sandbox got a request that can't be understood: {e}"))?;
    raise_limit().explain(|| "could not raise the limit of descriptors".into())?;
    passed::raise_memlock(spec.memlock).explain(|| "could not raise the limit of locked memory".into())?;
    Ok(spec)
}

/// A process that was started: its pid, the writer of its logs, and the server of its changes of mode.
struct Begun {
    pid: i32,
    logs: logs::LogWriter,
    modes: Option<Modes>,
}

/// Starts QEMU. What it replaces has written these logs.
fn begin(spec: &SandboxSpec, before: Option<logs::LogWriter>) -> Result<Begun> {
    let pair = || UnixStream::pair().explain(|| "could not make a pair of sockets".into());
    let (console, their_console) = pair()?;
    let (errors, their_errors) = pair()?;
    let (mut verdict, their_verdict) = pair()?;
    let (calls, their_calls) = pair()?;
    let logs = match before {
        None => logs::LogWriter::new(&spec.directory, &spec.log, console, errors)?,
        Some(mut logs) => {
            logs.follow(console, errors);
            logs
        }
    };
    let ids = (uid(), rustix::process::getegid().as_raw());
    let pid = fork()?;
    if pid == 0 {
        let ends = Streams { console: their_console.into(), errors: their_errors.into(), calls: their_calls };
        let error = match become_qemu(spec, ids, ends) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let _ = serde_json::to_writer(their_verdict, &error);
        // SAFETY: ends the process.
        unsafe { libc::_exit(1) }
    }
    drop((their_console, their_errors, their_verdict, their_calls));
    for fd in spec.descriptors.iter().filter_map(Descriptor::inherited).filter(|_| !spec.again) {
        // SAFETY: inherited by this process, where nothing else uses them.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let mut said = Vec::new();
    verdict.read_to_end(&mut said).explain(|| "waiting for QEMU".into())?;
    if said.is_empty() {
        let modes = listener(&calls).map(|it| Modes::new(it, pid, spec.user.unwrap_or(ids.0)));
        return Ok(Begun { pid, logs, modes });
    }
    // SAFETY: the status may be left out; the process is our child.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    Err(serde_json::from_slice(&said).unwrap_or_else(|_| Error::new("QEMU's process has ended")))
}

/// QEMU's output, and the socket by which it sends the listener of its changes of mode.
struct Streams {
    console: OwnedFd,
    errors: OwnedFd,
    calls: UnixStream,
}

/// The listener that QEMU's process has sent, if it has sent one.
fn listener(calls: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC);
    recvmsg(calls, &mut [IoSliceMut::new(&mut byte)], &mut with, flags).ok()?;
    let mut sent = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    sent.next()
}

/// Puts this process under the filter that keeps set-user-id bits off files, and sends the filter's listener.
fn keep_set_id_off(calls: &UnixStream) -> io::Result<()> {
    let Some(listener) = set_id::keep_off()? else { return Ok(()) };
    let (sent, mut space) = ([listener.as_fd()], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(&sent));
    sendmsg(calls, &[IoSlice::new(b"\0")], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Forks a child into new namespaces.
fn fork() -> Result<i32> {
    let mut flags = libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWUTS
        | libc::SIGCHLD;
    if uid() != 0 {
        flags |= libc::CLONE_NEWUSER;
    }
    // SAFETY: without a stack of its own, the child goes on as after fork; this process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    match pid {
        -1 => Err(no_namespaces(&io::Error::last_os_error())),
        pid => Ok(pid as i32),
    }
}

/// The error for a host that does not permit namespaces.
fn no_namespaces(why: &io::Error) -> Error {
    if in_chroot() {
        return error!("QEMU can't be confined in a chroot: its / is no mount ({why})")
            .hint(match uid() {
                0 => "Make the directory a mount before you enter it (mount --rbind DIR DIR), or enter it as a container's root (systemd-nspawn -D DIR).",
                _ => "Have root enter it as a container's root (systemd-nspawn -D DIR): in a chroot users have no namespaces.",
            });
    }
    let text = format!("QEMU can't be confined: the kernel does not permit namespaces ({why})");
    Error::new(text).hint(match uid() {
        0 => "In a container, start it with --privileged, or with --cap-add SYS_ADMIN and without its profiles of seccomp and AppArmor.",
        _ => "Unprivileged user namespaces may be turned off: see docs/sandbox.md for AppArmor on Ubuntu (as root: make install), for containers, and for user.max_user_namespaces. Or start machines as root.",
    })
}

/// Whether this process's root directory is no mount: Linux lists none there then, and lets nobody change how
/// mounts below it are shared, nor make namespaces for users.
fn in_chroot() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    !mounts.is_empty() && places.into_iter().all(|place| place != "/")
}

/// Becomes QEMU.
fn become_qemu(spec: &SandboxSpec, ids: (u32, u32), ends: Streams) -> Result<Infallible> {
    let root = &spec.directory;
    if spec.user.is_none() {
        map_user(ids).map_err(|why| no_namespaces(&why))?;
    }
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).map_err(|why| no_namespaces(&why.into()))?;
    let null = File::open("/dev/null").explain(|| "opening /dev/null".into())?;
    install_descriptors(spec, &ends.console)?;
    let failed = || "could not put QEMU's file tree together".to_string();
    rustix::mount::mount("tmpfs", root, "tmpfs", MountFlags::NOSUID, c"mode=0755")
        .map_err(|why| no_namespaces(&why.into()))?;
    let stand_ins = StandIns::make(&root.join("nothing")).explain(failed)?;
    spec.own.build(root, &stand_ins)?;
    let shared = root.join(SHARED.trim_start_matches('/'));
    fs::create_dir_all(&shared).explain(failed)?;
    spec.shared.build(&shared, &stand_ins)?;
    if let Some(sockets) = &spec.sockets {
        file_tree::show(sockets, &root.join(SOCKETS.trim_start_matches('/'))).explain(failed)?;
    }
    devices(root, spec.user)?;
    if !spec.devices.is_empty() {
        passed::build(root, &spec.devices, &|theirs, ours, number| device(theirs, ours, number, spec.user))?;
    }
    mount_descriptors(root).explain(failed)?;
    pivot_into(root).explain(failed)?;
    let refused = || "could not give up rights".to_string();
    if let Some(user) = spec.user {
        // One without rights on this host. All capabilities are lost.
        become_user(user, user, &[]).explain(refused)?;
    }
    if spec.again {
        // Not before the user is another one, with which it would be forgotten.
        set_parent_process_death_signal(Some(Signal::KILL)).explain(refused)?;
    }
    rustix::thread::set_no_new_privs(true).explain(refused)?;
    keep_set_id_off(&ends.calls).explain(|| "could not filter QEMU's system calls".into())?;
    if spec.small_pages {
        refuse_huge_pages().explain(|| "could not keep transparent huge pages off".into())?;
    }
    for (from, to) in [(null.as_raw_fd(), 0), (ends.errors.as_raw_fd(), 1), (ends.errors.as_raw_fd(), 2)] {
        // SAFETY: plain values; nothing here uses what was at these numbers.
        unsafe { libc::dup2(from, to) };
    }
    let mut command = Command::new(&spec.program);
    command.arg0(&spec.called).args(&spec.arguments).env_clear();
    for name in ["PATH", "LD_LIBRARY_PATH"] {
        command.envs(std::env::var_os(name).map(|value| (OsString::from(name), value)));
    }
    let why = command.exec();
    Err(error!("could not start {}: {why}", spec.program.display()))
}

/// Has this process, and the program that it executes, get no transparent huge pages.
fn refuse_huge_pages() -> io::Result<()> {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: plain values.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps this user, and no other, into the new user namespace.
fn map_user((uid, gid): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Opens QEMU's descriptors at their numbers. It gets no others.
fn install_descriptors(spec: &SandboxSpec, console: &OwnedFd) -> Result<()> {
    for (index, descriptor) in spec.descriptors.iter().enumerate() {
        let opened = descriptor.open(console)?;
        // SAFETY: plain values; nothing of ours is above FIRST.
        if unsafe { libc::dup2(opened.as_raw_fd(), FIRST + index as RawFd) } < 0 {
            return Err(io::Error::last_os_error()).explain(|| "placing QEMU's descriptors".into());
        }
        if let Descriptor::Inherited(_) = descriptor {
            // It is closed with the others.
            std::mem::forget(opened);
        }
    }
    for fd in 3..FIRST {
        // SAFETY: plain values; a number that is not open does no harm.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

impl Descriptor {
    fn open(&self, console: &OwnedFd) -> Result<OwnedFd> {
        let file = |path: &Path, writable| -> Result<OwnedFd> {
            let file = File::options().read(true).write(writable).open(path);
            Ok(file.explain(|| format!("could not open {}", path.display()))?.into())
        };
        match self {
            Descriptor::Listen(path) => UnixListener::bind(path)
                .map(OwnedFd::from)
                .explain(|| format!("could not listen at {}", path.display())),
            Descriptor::Connect(path) => UnixStream::connect(path)
                .map(OwnedFd::from)
                .explain(|| format!("could not connect to {}", path.display())),
            Descriptor::Read(path) => file(path, false),
            Descriptor::Write(path) => file(path, true),
            // SAFETY: the caller has passed it to this process, where nothing else uses it.
            Descriptor::Inherited(fd) => Ok(unsafe { OwnedFd::from_raw_fd(*fd) }),
            Descriptor::Console => console.try_clone().explain(|| "could not copy a descriptor".into()),
        }
    }
}

/// Makes the devices that QEMU uses. A process that gives up root's rights can't open the host's, and gets
/// nodes of its own.
fn devices(root: &Path, user: Option<u32>) -> Result<()> {
    let directory = root.join("dev");
    fs::create_dir(&directory).explain(|| format!("making {}", directory.display()))?;
    for name in DEVICES {
        let (theirs, ours) = (Path::new("/dev").join(name), directory.join(name));
        let Ok(meta) = fs::metadata(&theirs) else {
            continue;
        };
        device(&theirs, &ours, meta.rdev(), user)
            .explain(|| format!("could not give QEMU {}", theirs.display()))?;
    }
    Ok(())
}

fn device(theirs: &Path, ours: &Path, number: u64, user: Option<u32>) -> io::Result<()> {
    if let Some(user) = user {
        let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o600));
        match rustix::fs::mknodat(rustix::fs::CWD, ours, kind, mode, number) {
            Ok(()) => return std::os::unix::fs::chown(ours, Some(user), Some(user)),
            // Containers may forbid it.
            Err(rustix::io::Errno::PERM) => (),
            Err(why) => return Err(why.into()),
        }
    }
    File::create(ours)?;
    Ok(rustix::mount::mount_bind(theirs, ours)?)
}

/// Mounts the part of /proc that QEMU sees: its own descriptors.
fn mount_descriptors(root: &Path) -> io::Result<()> {
    let directory = root.join(DESCRIPTORS.trim_start_matches('/'));
    fs::create_dir_all(&directory)?;
    Ok(rustix::mount::mount_bind(DESCRIPTORS, &directory)?)
}

/// Makes a mount point the root directory, and detaches all other mounts.
fn pivot_into(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    Ok(rustix::mount::mount_remount("/", flags, "")?)
}

/// Raises the limit of open files to its maximum: QEMU keeps descriptors of each machine that ever shared a
/// pool with this one.
fn raise_limit() -> io::Result<()> {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: maximum, maximum };
    Ok(setrlimit(Resource::Nofile, limit)?)
}
