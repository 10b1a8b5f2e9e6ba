//! System calls of a first process that the standard library lacks.

use rustix::process::setpriority_process;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `mount(2)`.
pub fn mount(source: &str, target: &Path, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let source = c_path(Path::new(source))?;
    let target = c_path(target)?;
    let kind = c_path(Path::new(kind))?;
    let data = c_path(Path::new(data))?;
    // SAFETY: all four are strings that end in NUL and live across the call; `data` is a string for every
    // file system that this program mounts.
    check(libc::c_long::from(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    }))
}

/// Bind-mounts `source` at `target`.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(&source.to_string_lossy(), target, "none", libc::MS_BIND, "")
}

/// Unmounts this and everything below, lazily.
pub fn unmount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: a string that lives across the call.
    check(libc::c_long::from(unsafe {
        libc::umount2(target.as_ptr(), libc::MNT_DETACH)
    }))
}

/// Makes `root` the root directory of this process.
pub fn change_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    mount(".", Path::new("/"), "none", libc::MS_MOVE, "")?;
    // SAFETY: the path is a literal that ends in NUL.
    check(libc::c_long::from(unsafe { libc::chroot(c".".as_ptr()) }))?;
    std::env::set_current_dir("/")
}

/// Sets a terminal's raw mode.
pub fn make_raw(terminal: RawFd) -> io::Result<()> {
    // SAFETY: all zeros is a valid value of this structure of integers, which tcgetattr fills before the
    // others read it.
    unsafe {
        let mut how: libc::termios = std::mem::zeroed();
        check(libc::c_long::from(libc::tcgetattr(terminal, &mut how)))?;
        libc::cfmakeraw(&mut how);
        (how.c_cc[libc::VMIN], how.c_cc[libc::VTIME]) = (1, 0);
        check(libc::c_long::from(libc::tcsetattr(
            terminal,
            libc::TCSANOW,
            &how,
        )))
    }
}

/// The highest priority, for this process and as long as this exists. If it had it all the time, others would
/// be switched out for it again and again.
pub struct HighPriority(());

impl HighPriority {
    /// Takes it, if permitted.
    pub fn raise() -> HighPriority {
        let _ = setpriority_process(None, -20);
        HighPriority(())
    }

    /// Makes a program start without it. The fork has it until then, which its parent waits for.
    pub fn reset_in(&self, command: &mut Command) {
        let give_up = || Ok(setpriority_process(None, 0)?);
        // SAFETY: the closure makes one system call; it takes no lock and allocates nothing.
        unsafe { command.pre_exec(give_up) };
    }
}

impl Drop for HighPriority {
    fn drop(&mut self) {
        let _ = setpriority_process(None, 0);
    }
}

/// Loads a kernel module.
pub fn load_module(bytes: &[u8]) -> io::Result<()> {
    // SAFETY: init_module reads `len` bytes from the slice and the empty string of parameters.
    check(unsafe {
        libc::syscall(
            libc::SYS_init_module,
            bytes.as_ptr(),
            bytes.len(),
            c"".as_ptr(),
        )
    })
}

/// Sets the host name.
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of one live string.
    check(libc::c_long::from(unsafe {
        libc::sethostname(name.as_ptr().cast(), name.len())
    }))
}

/// Turns the machine off.
pub fn power_off() -> ! {
    // SAFETY: neither call takes a pointer; reboot does not return for the first process of a machine.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        std::thread::park();
    }
}
