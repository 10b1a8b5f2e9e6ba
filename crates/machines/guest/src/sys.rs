//! System calls of a first process, and loading modules.

use rustix::mount::{mount_move, MountFlags};
use rustix::process::{chroot, setpriority_process};
use rustix::system::{reboot, RebootCommand};
use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Mounts a file system of this kind with these options.
pub fn mount(source: &str, target: &Path, kind: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(source, target, kind, flags, &*options)?)
}

/// Makes `root` the root directory of this process.
pub fn change_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    mount_move(".", "/")?;
    chroot(".")?;
    std::env::set_current_dir("/")
}

/// Loads modules of the machine's kernel, with those that they need, as its system has them.
pub fn modprobe(names: &[&str]) -> io::Result<()> {
    let mut command = Command::new("modprobe");
    command.args(["-q", "-a"]).args(names).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("its kernel has no module {}", names.join(", ")))),
    }
}

/// The highest priority of this process, as long as the value lives. If the process had it all the time,
/// others would be switched out for it again and again.
pub struct HighPriority(());

impl HighPriority {
    /// Takes the priority, if permitted.
    pub fn raise() -> HighPriority {
        let _ = setpriority_process(None, -20);
        HighPriority(())
    }

    /// Has a command start without it. The fork has it until then, for its parent waits for it.
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

/// Turns the machine off.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}
