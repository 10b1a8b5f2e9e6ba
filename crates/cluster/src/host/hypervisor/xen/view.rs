//! The file tree that a domain sees: dom0's, read-only, made in a mount namespace that `xl create` and what it starts for the domain have
//! for themselves. So nothing of it is left when they have ended.

use crate::error::{Explain, Result};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a domain has of its own, and must not see of dom0.
const HIDDEN: [&str; 4] = ["dev", "proc", "sys", "run"];

/// From linux/mount.h, which the libc crate lacks in part.
const AT_RECURSIVE: libc::c_long = 0x8000;
const MOUNT_ATTR_RDONLY: u64 = 1;

/// `struct mount_attr`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    namespace: u64,
}

/// The steps, prepared, so that a forked child has only system calls to make.
pub struct View {
    place: CString,
    hidden: Vec<CString>,
}

impl View {
    /// One that is seen at this directory.
    pub fn at(place: &Path) -> Result<View> {
        let text = |path: &Path| {
            CString::new(path.as_os_str().as_bytes())
                .map_err(io::Error::from)
                .explain(|| format!("naming {}", path.display()))
        };
        let hidden = HIDDEN.iter().map(|name| text(&place.join(name)));
        Ok(View {
            place: text(place)?,
            hidden: hidden.collect::<Result<_>>()?,
        })
    }

    /// Makes it, for this process and what it starts. Makes system calls only, so a forked child may call it.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: a plain value.
        check(i64::from(unsafe { libc::unshare(libc::CLONE_NEWNS) }))?;
        // What is mounted here must not show in dom0, nor what dom0 mounts later in here, where it could be written to.
        mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
        mount(c"/", &self.place, libc::MS_BIND | libc::MS_REC)?;
        self.protect()?;
        for hidden in &self.hidden {
            // SAFETY: a string that lives across the call. There need be nothing mounted there.
            while unsafe { libc::umount2(hidden.as_ptr(), libc::MNT_DETACH) } == 0 {}
        }
        Ok(())
    }

    /// Read-only, and all that is mounted below it.
    fn protect(&self) -> io::Result<()> {
        let attributes = Attributes {
            set: MOUNT_ATTR_RDONLY,
            clear: 0,
            propagation: 0,
            namespace: 0,
        };
        // SAFETY: the string and the structure of this size live across the call, which reads them.
        check(unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                libc::AT_FDCWD,
                self.place.as_ptr(),
                AT_RECURSIVE,
                &raw const attributes,
                size_of::<Attributes>(),
            )
        })
    }
}

fn mount(source: &std::ffi::CStr, target: &std::ffi::CStr, flags: libc::c_ulong) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: both strings live across the call; there is neither type nor data.
    let done = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), none, flags, none.cast()) };
    check(i64::from(done))
}

fn check(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// A child sees all files, and can't write to them there, but where they are.
    #[test]
    fn the_tree_is_all_there_and_read_only() {
        // SAFETY: takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let place = std::env::temp_dir().join(format!("vshmem-view-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a directory");
        std::fs::write(place.with_extension("file"), "seen").expect("a file");
        let view = View::at(&place).expect("a path");
        let script = "cat \"$0$0.file\" && test ! -e \"$0/proc/self\" && test ! -e \"$0/dev/null\" && true >\"$0.file\" && ! true >\"$0$0.file\"";
        let mut child = Command::new("sh");
        child.args(["-c", script]).arg(&place);
        // SAFETY: the closure makes system calls only.
        unsafe { child.pre_exec(move || view.enter()) };
        let out = child.output();
        let left = std::fs::read_dir(&place).expect("a directory").count();
        std::fs::remove_dir(&place).expect("an empty directory");
        std::fs::remove_file(place.with_extension("file")).expect("a file");
        let out = match out {
            // Containers may forbid mounts.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return,
            out => out.expect("a child"),
        };
        assert!(out.status.success(), "{out:?}");
        assert_eq!((out.stdout.as_slice(), left), (&b"seen"[..], 0));
    }
}
