//! The file tree that a domain sees, in a mount namespace of `xl create` and the processes that it starts. It
//! goes with them.

use crate::shared::file_tree::{FileTree, StandIns};
use rustix::mount::{MountFlags, MountPropagationFlags};
use std::io;
use std::path::{Path, PathBuf};
use vshmem_base::error::Result;
use vshmem_session::share::Share;

/// A mount namespace that is ready to be entered.
pub struct MountNamespace {
    root: PathBuf,
    tree: FileTree,
}

impl MountNamespace {
    /// A namespace with the tree at this directory, which is empty.
    pub fn at(root: &Path, shares: &[Share]) -> Result<MountNamespace> {
        Ok(MountNamespace { root: root.into(), tree: FileTree::of(shares)? })
    }

    /// Makes the namespace, for this process and its children.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: a plain value.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Mounts must neither appear in dom0 nor come from there later.
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        rustix::mount::mount_change("/", private)?;
        rustix::mount::mount("tmpfs", &self.root, "tmpfs", MountFlags::NOSUID, c"mode=0755")?;
        let stand_ins = StandIns::make(&self.root.join(".nothing"))?;
        let built = self.tree.build(&self.root, &stand_ins);
        built.map_err(|error| io::Error::other(error.to_string()))?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        Ok(rustix::mount::mount_remount(&self.root, flags, "")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// A child sees what is shared, and nothing else, and can't write to it there.
    #[test]
    fn the_tree_is_read_only_and_has_shared_files_only() {
        // SAFETY: takes empty.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let home = std::env::temp_dir().join(format!("vshmem-view-{}", std::process::id()));
        let (root, shared) = (home.join("root"), home.join("shared"));
        for directory in [&root, &shared] {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        std::fs::write(shared.join("file"), "seen").expect("a file");
        std::fs::write(home.join("secret"), "hidden").expect("a file");
        let share = Share { path: shared.clone(), writable: false };
        let namespace = MountNamespace::at(&root, &[share]).expect("a path");
        let script = "p=$0/root; cat \"$p$0/shared/file\" && test ! -e \"$p$0/secret\" && test ! -s $p/etc/shadow && test -s $p/etc/passwd \
            && test ! -e \"$p/proc/self\" && test ! -e \"$p/dev/null\" && true >\"$0/shared/file\" && ! true >\"$p$0/shared/file\" && ! mkdir $p/x";
        let mut child = Command::new("sh");
        child.args(["-c", script]).arg(&home);
        // SAFETY: glibc's malloc is whole in a forked child, and the closure takes no other lock.
        unsafe { child.pre_exec(move || namespace.enter()) };
        let out = child.output();
        let left = std::fs::read_dir(&root).expect("a directory").count();
        std::fs::remove_dir_all(&home).expect("nothing is mounted there");
        let out = match out {
            // Containers may forbid mounts.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return,
            out => out.expect("a child"),
        };
        assert!(out.status.success(), "{out:?}");
        assert_eq!((out.stdout.as_slice(), left), (&b"seen"[..], 0));
    }
}
