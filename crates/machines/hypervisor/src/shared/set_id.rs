//! The filter of set-user-id and set-group-id bits on files that QEMU makes for a machine: another account of
//! this host could run such a file as the user, outside of the sandbox.
//!
//! It refuses system calls that create a file with one of the bits. Changes of mode go to the
//! process beside QEMU, which makes them without the bits; a directory keeps that of its group, which only
//! says whose the files in it are. A filter alone could not tell directories from files.

use rustix::fs::{chmod, fstat, FileType, Mode};
use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// The bits.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
/// Flags of `open` by which a file is made, and so its mode counts. `O_TMPFILE` has that of directories, too.
const CREATES: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
/// The number of fchmodat2, on all architectures.
const FCHMODAT2: libc::c_long = 452;
/// The bit of call numbers of another kind (x32).
const OTHER_KIND: u32 = 0x4000_0000;
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// A call that gives a file a mode.
struct Giver {
    number: libc::c_long,
    /// The index of its argument that is the mode.
    mode: u32,
    /// The index of the flags that say whether there is one; `None`: there always is.
    flags: Option<u32>,
}

const fn giver(number: libc::c_long, mode: u32, flags: Option<u32>) -> Giver {
    Giver { number, mode, flags }
}

/// The calls that change the mode of a file.
const CHANGE: &[Giver] = &[
    #[cfg(target_arch = "x86_64")]
    giver(libc::SYS_chmod, 1, None),
    giver(libc::SYS_fchmod, 1, None),
    giver(libc::SYS_fchmodat, 2, None),
    giver(FCHMODAT2, 2, None),
];

/// The calls that make a file.
const MAKE: &[Giver] = &[
    #[cfg(target_arch = "x86_64")]
    giver(libc::SYS_open, 2, Some(1)),
    #[cfg(target_arch = "x86_64")]
    giver(libc::SYS_creat, 1, None),
    #[cfg(target_arch = "x86_64")]
    giver(libc::SYS_mknod, 1, None),
    giver(libc::SYS_openat, 3, Some(2)),
    giver(libc::SYS_mknodat, 2, None),
];

/// The calls whose modes a filter can't see. Programs do without, as on older kernels.
const UNSEEN: [libc::c_long; 2] = [libc::SYS_openat2, libc::SYS_io_uring_setup];

const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// The filter's program; it does `change` with changes of mode.
fn program(change: u32) -> Vec<libc::sock_filter> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = |how: u32| (libc::BPF_JMP | how | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let end = |k| step(libc::BPF_RET as u16, k, 0, 0);
    // The lower half of an argument, which is all of a mode.
    let argument = |number: u32| step(load, 16 + 8 * number, 0, 0);
    let mut out = vec![
        step(load, 4, 0, 0),
        step(jump(libc::BPF_JEQ), ARCH, 1, 0),
        end(refuse(libc::ENOSYS)),
        step(load, 0, 0, 0),
        step(jump(libc::BPF_JGE), OTHER_KIND, 0, 1),
        end(refuse(libc::ENOSYS)),
    ];
    for number in UNSEEN {
        out.extend([step(jump(libc::BPF_JEQ), number as u32, 0, 1), end(refuse(libc::ENOSYS))]);
    }
    let givers = CHANGE.iter().map(|giver| (giver, change));
    for (giver, verdict) in givers.chain(MAKE.iter().map(|giver| (giver, refuse(libc::EPERM)))) {
        let flags = giver.flags.map(|flags| [argument(flags), step(jump(libc::BPF_JSET), CREATES, 0, 3)]);
        let skip = if flags.is_some() { 6 } else { 4 };
        out.push(step(jump(libc::BPF_JEQ), giver.number as u32, 0, skip));
        out.extend(flags.into_iter().flatten());
        out.extend([argument(giver.mode), step(jump(libc::BPF_JSET), SET_ID, 0, 1)]);
        out.extend([end(verdict), end(libc::SECCOMP_RET_ALLOW)]);
    }
    out.push(end(libc::SECCOMP_RET_ALLOW));
    out
}

/// Puts this process, and the program that it executes, under the filter. Returns the listener for [`Modes`].
/// Where another process watches calls already, there is none, and changes of mode that would set a bit are
/// refused.
pub fn keep_off() -> io::Result<Option<OwnedFd>> {
    match install(libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER) {
        // SAFETY: the kernel has just made it, for us.
        Ok(listener) => Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) })),
        Err(_) => install(refuse(libc::EPERM), 0).map(|_| None),
    }
}

fn install(change: u32, flags: libc::c_ulong) -> io::Result<RawFd> {
    let mut steps = program(change);
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program has as many steps as it says, which live until the call has returned.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &program) } {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(fd as RawFd),
    }
}

/// The server of a QEMU's changes of mode.
pub struct Modes {
    listener: OwnedFd,
    pid: i32,
    owner: u32,
}

impl Modes {
    /// The server of changes to files of `owner` by the process `pid`, whose listener this is.
    pub fn new(listener: OwnedFd, pid: i32, owner: u32) -> Modes {
        Modes { listener, pid, owner }
    }

    /// Serves one call. False if there will be none any more.
    pub fn serve(&self) -> bool {
        // SAFETY: all its fields are numbers.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes what the request says, which `asked` has room for.
        if unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut asked) } < 0 {
            // The caller may have died.
            let why = io::Error::last_os_error().raw_os_error();
            return matches!(why, Some(libc::ENOENT | libc::EINTR));
        }
        let error = match self.change(&asked.data) {
            Ok(()) => 0,
            Err(why) => -why.raw_os_error().unwrap_or(libc::EPERM),
        };
        let mut answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags: 0 };
        // SAFETY: the kernel reads what the request says, which `answer` is. It fails if the caller has died.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) };
        true
    }

    /// Changes the mode of what the call means, if QEMU itself could, without the bits.
    fn change(&self, call: &libc::seccomp_data) -> io::Result<()> {
        let [first, second, third, ..] = call.args;
        let (fd, mode) = match libc::c_long::from(call.nr) {
            libc::SYS_fchmod => (first as RawFd, second),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (self.descriptor_at(first)?, second),
            _ => (self.descriptor_at(second)?, third),
        };
        let pid = Pid::from_raw(self.pid).ok_or(io::ErrorKind::NotFound)?;
        // From here on it is our own descriptor that counts, and not QEMU's.
        let file = pidfd_getfd(pidfd_open(pid, PidfdFlags::empty())?, fd, PidfdGetfdFlags::empty())?;
        let found = fstat(&file)?;
        if found.st_uid != self.owner {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let kept = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => 0o7777 & !libc::S_ISUID,
            _ => 0o7777 & !SET_ID,
        };
        // It may be one that only names the file.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(chmod(path, Mode::from_raw_mode(mode as u32 & kept))?)
    }

    /// The descriptor that QEMU names by a path in its memory, as it does for all that machines make.
    fn descriptor_at(&self, address: u64) -> io::Result<RawFd> {
        let mut bytes = [0; 32];
        let len = File::open(format!("/proc/{}/mem", self.pid))?.read_at(&mut bytes, address)?;
        let path = bytes[..len].split(|byte| *byte == 0).next().and_then(|it| std::str::from_utf8(it).ok());
        let number = path.and_then(|path| path.strip_prefix("/proc/self/fd/")?.parse().ok());
        number.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }
}

impl AsRawFd for Modes {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;

    /// Python's answer to this in a process under the filter that has no helper.
    fn said(directory: &Path, script: &str) -> String {
        let mut command = Command::new("python3");
        command.current_dir(directory).args(["-c", &format!("import os\n{script}")]);
        let confine = || {
            rustix::thread::set_no_new_privs(true)?;
            install(refuse(libc::EPERM), 0).map(drop)
        };
        // SAFETY: the closure makes system calls, and allocates in a child of which no other thread is alive;
        // glibc keeps its allocator usable there.
        unsafe { command.pre_exec(confine) };
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_string()
    }

    #[test]
    fn no_call_gives_a_file_one_of_the_bits() {
        let directory = std::env::temp_dir().join(format!("vshmem-set-id-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        for mode in ["0o4755", "0o2755", "0o6777"] {
            for call in [
                "os.chmod('file', MODE)",
                "os.fchmod(os.open('file', os.O_RDONLY), MODE)",
                "os.chmod('file', MODE, dir_fd=os.open('.', os.O_RDONLY))",
                "os.open('new', os.O_CREAT | os.O_WRONLY, MODE)",
                "os.open('.', os.O_TMPFILE | os.O_WRONLY, MODE)",
                "os.mknod('new', MODE)",
            ] {
                let said = said(&directory, &call.replace("MODE", mode));
                assert!(said.contains("PermissionError"), "{call} {mode}: {said}");
            }
        }
        assert!(!directory.join("new").exists());
        // What has none of them is as ever, also where an unused argument looks like one.
        let plain = "os.chmod('file', 0o1751); os.open('new', os.O_CREAT, 0o640); \
                     os.open('file', os.O_RDONLY, 0o6755); os.mkdir('in', 0o700)";
        assert_eq!(said(&directory, plain), "");
        let mode = |name| fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("file"), mode("new") & 0o7700), (0o1751, 0o600));
        let unseen = "import ctypes; print(ctypes.CDLL(None).syscall(437, -100, b'file', b'\\0' * 24, 24))";
        assert_eq!(said(&directory, unseen), "-1");
        fs::remove_dir_all(&directory).unwrap();
    }
}
