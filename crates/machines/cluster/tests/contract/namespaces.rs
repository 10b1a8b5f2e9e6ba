//! The namespaces of a machine, in which this program is started as the first process: those of processes,
//! mounts and the host's name, and one of users where the caller may make no others.

use super::machine::block_signals;
use rustix::io::Errno;
use std::ffi::{c_char, CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;
use vshmem_base::process::Process;
use vshmem_base::user::Identity;

/// The path at which a machine sees its directory.
const DIRECTORY: &CStr = c"/mnt";

/// The namespaces that a machine needs.
const OWN: i32 = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWUTS;

/// The namespaces that the kernel lets this user make.
pub fn flags() -> io::Result<i32> {
    let tried = Program::new("vm", Path::new("/tmp"), &[], std::fs::File::open("/dev/null")?.into());
    for flags in [OWN, OWN | libc::CLONE_NEWUSER] {
        if let Ok(child) = tried.fork(flags, None) {
            let mut status = 1;
            // SAFETY: `status` is a live int that waitpid may write.
            unsafe { libc::waitpid(child, &mut status, 0) };
            if status == 0 {
                return Ok(flags);
            }
        }
    }
    Err(Errno::PERM.into())
}

/// A program that is to be started, with all that a forked child can't allocate.
pub struct Program {
    host: CString,
    directory: CString,
    words: Vec<CString>,
    /// Its standard input.
    input: OwnedFd,
    /// The files of /proc that say what the user is called inside: as here.
    users: [(CString, CString); 3],
}

impl Program {
    /// This program with these words, its name first, on a host of this name, with this directory.
    pub fn new(host: &str, directory: &Path, words: &[String], input: OwnedFd) -> Program {
        let text = |text: &[u8]| CString::new(text).expect("no zero");
        let file =
            |name: &str, says: String| (text(format!("/proc/self/{name}").as_bytes()), text(says.as_bytes()));
        let Identity { uid, gid, .. } = Identity::current();
        Program {
            host: text(host.as_bytes()),
            directory: text(directory.as_os_str().as_bytes()),
            words: words.iter().map(|word| text(word.as_bytes())).collect(),
            input,
            users: [
                file("setgroups", "deny".into()),
                file("uid_map", format!("{uid} {uid} 1")),
                file("gid_map", format!("{gid} {gid} 1")),
            ],
        }
    }

    /// Starts it; what it prints goes into the log.
    pub fn start(&self, log: &OwnedFd) -> io::Result<Process> {
        let child = self.fork(flags()?, Some(log))?;
        Process::find(child).ok_or(io::ErrorKind::UnexpectedEof.into())
    }

    /// The pid of a child in new namespaces, which becomes the program if it has a log, and else ends.
    fn fork(&self, flags: i32, log: Option<&OwnedFd>) -> io::Result<i32> {
        let mut words: Vec<*const c_char> = self.words.iter().map(|word| word.as_ptr()).collect();
        words.push(null());
        let (how, none) = (libc::c_long::from(flags | libc::SIGCHLD), 0_usize);
        // SAFETY: the child has a copy of this process's memory, as after fork, and makes nothing but system
        // calls on what was made before.
        match unsafe { libc::syscall(libc::SYS_clone, how, none, none, none, none) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is the child; the words end with a null, and are alive.
            0 => unsafe { self.enter(flags, log, &words) },
            child => Ok(child as i32),
        }
    }

    /// Makes the namespaces the machine's own, and becomes its program.
    ///
    /// # Safety
    /// This is a forked child. `words` ends with a null, and its strings are alive.
    unsafe fn enter(&self, flags: i32, log: Option<&OwnedFd>, words: &[*const c_char]) -> ! {
        // SAFETY: system calls on terminated strings and open descriptors that live until the program begins.
        unsafe {
            libc::setsid();
            block_signals();
            let named = flags & libc::CLONE_NEWUSER == 0
                || self.users.iter().all(|(file, says)| {
                    let fd = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                    let text = says.as_bytes();
                    libc::write(fd, text.as_ptr().cast(), text.len()) == text.len() as isize
                });
            let private = libc::MS_REC | libc::MS_PRIVATE;
            let own = named
                && libc::sethostname(self.host.as_ptr(), self.host.as_bytes().len()) == 0
                && libc::mount(null(), c"/".as_ptr(), null(), private, null()) == 0
                && libc::mount(self.directory.as_ptr(), DIRECTORY.as_ptr(), null(), libc::MS_BIND, null())
                    == 0;
            if let (true, Some(log)) = (own, log) {
                libc::dup2(self.input.as_raw_fd(), 0);
                libc::dup2(log.as_raw_fd(), 1);
                libc::dup2(log.as_raw_fd(), 2);
                libc::execv(c"/proc/self/exe".as_ptr(), words.as_ptr());
            }
            libc::_exit(i32::from(!own))
        }
    }
}
