//! A program that is killed as it is about to change the world for the n-th time: at a system call that
//! makes, changes or removes a file, starts or signals a process, locks, or says something to somebody. So
//! each step is found without the program's help, and a new one is found as well.

use libc::{c_int, c_long, c_void, pid_t};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The end of a program that was watched.
#[derive(Debug)]
pub struct Ended {
    /// The number of times that it was about to change the world.
    pub steps: usize,
    /// The last of them, by the system call's number.
    pub last: c_long,
    /// Its exit code; `None`: it was killed.
    pub code: Option<i32>,
}

/// System calls that change the world whatever their arguments are.
const STEPS: [c_long; 35] = [
    libc::SYS_bind,
    libc::SYS_chmod,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_flock,
    libc::SYS_fork,
    libc::SYS_ftruncate,
    libc::SYS_kill,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mount,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pwrite64,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rmdir,
    libc::SYS_sched_setaffinity,
    libc::SYS_sendfile,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setxattr,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_umount2,
    libc::SYS_vfork,
];

/// Whether a system call changes the world.
fn is_step(number: c_long, args: [u64; 6]) -> bool {
    let creates = |flags: u64| flags as c_int & libc::O_CREAT != 0;
    match number {
        libc::SYS_open => creates(args[1]),
        libc::SYS_openat => creates(args[2]),
        // What it says to the user is no step.
        libc::SYS_write | libc::SYS_writev => args[0] > 2,
        number => STEPS.contains(&number),
    }
}

/// Runs a program until it ends, or until its step of this number, at which it is killed before that is done.
#[expect(clippy::zombie_processes, reason = "it is waited for with all that comes to this process")]
pub fn run(command: &mut Command, kill_at: Option<usize>) -> Ended {
    let trace_me = || match ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    let child = unsafe { command.pre_exec(trace_me) }.spawn().expect("a program that can be traced");
    let main = child.id() as pid_t;
    let mut ended = Ended { steps: 0, last: 0, code: None };
    let mut known = Vec::new();
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int.
        let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        assert!(thread > 0, "{}", io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            // Others are what earlier programs have left, which comes to this one.
            if thread == main {
                ended.code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
                return ended;
            }
            continue;
        }
        let is_new = !known.contains(&thread);
        if is_new {
            known.push(thread);
        }
        if is_new && thread == main {
            let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
            assert_eq!(ptrace(libc::PTRACE_SETOPTIONS, main, 0, options as usize), 0);
        }
        let mut signal = libc::WSTOPSIG(status);
        if signal == libc::SIGTRAP | 0x80 {
            signal = 0;
            if let Some(number) = entered(thread) {
                (ended.steps, ended.last) = (ended.steps + 1, number);
                if Some(ended.steps) == kill_at {
                    // SAFETY: plain values; it is our child, and not waited for.
                    unsafe { libc::kill(main, libc::SIGKILL) };
                    continue;
                }
            }
        } else if is_new || status >> 16 != 0 {
            // A thread begins, the program does, or it has made a thread.
            signal = 0;
        }
        // One that is being killed can't go on.
        ptrace(libc::PTRACE_SYSCALL, thread, 0, signal as usize);
    }
}

/// The system call that a thread is about to make, if it is a step.
fn entered(thread: pid_t) -> Option<c_long> {
    let mut info = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let len = size_of::<libc::ptrace_syscall_info>();
    let got = ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, len, info.as_mut_ptr() as usize);
    // SAFETY: all zeros is a valid value of these integers, and the kernel has filled in what there is.
    let info = unsafe { info.assume_init() };
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: at an entry, it is this part that the kernel has filled in.
    let entry = unsafe { info.u.entry };
    let number = entry.nr as c_long;
    is_step(number, entry.args).then_some(number)
}

fn ptrace(request: libc::c_uint, thread: pid_t, address: usize, data: usize) -> c_long {
    // SAFETY: what is written at `data`, if anything, is as long as the callers say.
    unsafe { libc::ptrace(request, thread, address as *mut c_void, data as *mut c_void) }
}
