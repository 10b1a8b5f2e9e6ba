//! Setting the length of a file, beyond the process's limit on that if it may raise the limit: segments are
//! no files, so the limit is not meant for them.

use super::raw::{again, call, syscall, Errno, Outcome};

/// Sets the length of a file.
pub(crate) fn truncate(fd: i32, len: u64) -> Outcome<()> {
    // Beyond the limit, the kernel would not only refuse it, but end the process.
    if len > longest_file() {
        return beyond_the_limit(fd, len);
    }
    // SAFETY: no memory of the caller is passed.
    again(|| unsafe { call!(SYS_ftruncate, fd, len) }).map(|_| ())
}

/// A child does it, whose limit is its own: the process's other threads keep theirs, and it keeps its own if
/// it is killed meanwhile.
#[cold]
fn beyond_the_limit(fd: i32, len: u64) -> Outcome<()> {
    let (all, mut before, mut status) = (u64::MAX, 0u64, 0i32);
    // SAFETY: masks of eight bytes. The child makes system calls only, and ends; no handler of the program's
    // runs in it. It sends no signal at its end, and is waited for.
    unsafe {
        syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, 8);
        let child = call!(SYS_clone, 0, 0, 0, 0, 0);
        if child == Ok(0) {
            syscall!(libc::SYS_exit_group, u8::from(!is_set(fd, len)));
        }
        let ended = child.and_then(|pid| again(|| call!(SYS_wait4, pid, &raw mut status, libc::__WALL, 0)));
        syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, 0, 8);
        match ended {
            Ok(_) if status == 0 => Ok(()),
            _ => Err(Errno(libc::EFBIG)),
        }
    }
}

/// Sets the length in the child. Returns whether it was set.
fn is_set(fd: i32, len: u64) -> bool {
    let raise = |to: u64| {
        let limits = [to; 2];
        // SAFETY: the kernel reads two words.
        unsafe { call!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, limits.as_ptr(), 0) }
    };
    let _ = raise(u64::MAX).or_else(|_| raise(limits()[1]));
    // SAFETY: no memory is passed.
    len <= longest_file() && unsafe { call!(SYS_ftruncate, fd, len) }.is_ok()
}

/// The process's limit on the length of files, as it is.
pub(crate) fn longest_file() -> u64 {
    limits()[0]
}

/// The soft limit and the hard one.
fn limits() -> [u64; 2] {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel fills in two words.
    unsafe { syscall!(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, 0, limits.as_mut_ptr()) };
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_limit_is_set_if_the_limit_may_be_raised() {
        let fd = super::super::memory_file(c"vshmem-test").unwrap();
        // A process of its own, since the limit is the whole process's.
        let in_child = |hard: u64, test: &dyn Fn() -> bool| {
            // SAFETY: the child makes system calls only, and ends.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    let set = [4096, hard];
                    call!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, set.as_ptr(), 0).unwrap();
                    libc::_exit(i32::from(!test()));
                }
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                status == 0
            }
        };
        let set = |len| truncate(fd, len).is_ok();
        assert!(in_child(1 << 20, &|| set(4096) && set(1 << 20) && longest_file() == 4096));
        assert_eq!(super::super::fstat(fd).unwrap().st_size, 1 << 20);
        let refused = || {
            // SAFETY: a plain call, for those who are root.
            let _ = unsafe { call!(SYS_setresuid, 65534, 65534, 65534) };
            truncate(fd, 2 << 20) == Err(Errno(libc::EFBIG))
        };
        assert!(in_child(1 << 20, &refused));
        super::super::close(fd);
    }
}
