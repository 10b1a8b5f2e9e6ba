//! The files of this host that a domain sees, and those that its QEMU opens.
//!
//! libvirt's QEMU is in no sandbox of ours, in which a file tree could be put together. So each part of the
//! host that machines see is a file system of its own (9p), and no machine can ask for the rest.

use super::uri::RunsAs;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use vshmem_base::directories::{cluster_directory, open_directory, runtime_directory};
use vshmem_base::error::{error, Explain, Result};
use vshmem_guest::settings::exported::{share_tag, system_tag, Exported};
use vshmem_session::share::Share;

/// The directory of files that QEMU opens as another user.
const PUBLIC: &str = "/run/vshmem-libvirt";

/// The mode of directories in [`PUBLIC`].
const SEEN: u32 = 0o755;

/// A directory of this host that a domain sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The tag of its file system.
    pub tag: String,
    /// The directory.
    pub directory: PathBuf,
    /// The machine can write to it.
    pub writable: bool,
}

/// Files of a cluster that QEMU opens.
pub struct Files {
    /// Their directory, if they are not where they come from: QEMU's user can't get there.
    copies: Option<PathBuf>,
    /// The directory of shared files, which are in directories of their own.
    shared: PathBuf,
}

impl Files {
    /// The files of a cluster whose QEMU runs as this user.
    pub fn of(cluster: &str, runs_as: RunsAs) -> Result<Files> {
        let own = cluster_directory(cluster)?;
        let copies = match runs_as {
            RunsAs::Starter => None,
            RunsAs::Other(_) | RunsAs::Explicit(..) => {
                let directory = public(cluster);
                open_directory(Path::new(PUBLIC), SEEN)?;
                open_directory(&directory, SEEN)?;
                Some(directory)
            }
        };
        let shared = copies.as_ref().unwrap_or(&own).join("files");
        Ok(Files { copies, shared })
    }

    /// A file that QEMU can open: this one, or a copy, which is made once.
    pub fn readable(&self, file: &Path) -> Result<PathBuf> {
        let Some(copies) = &self.copies else {
            return Ok(file.into());
        };
        let name = file.file_name().unwrap_or_default();
        let (copy, mode) = (copies.join(name), Permissions::from_mode(0o444));
        copy_once(file, &copy)
            .and_then(|()| fs::set_permissions(&copy, mode))
            .explain(|| format!("could not copy {}", file.display()))?;
        Ok(copy)
    }

    /// The directories that a domain sees, for these shares. Files are copied, each into a directory of its
    /// own.
    pub fn exports(&self, exported: &Exported, shares: &[Share]) -> Result<Vec<Export>> {
        let trees = exported.trees.iter().enumerate();
        let trees = trees.map(|(number, tree)| Export {
            tag: system_tag(number),
            directory: tree.clone(),
            writable: false,
        });
        let mut all: Vec<Export> = trees.collect();
        for (number, share) in shares.iter().enumerate() {
            let directory = match exported.files.contains(&number) {
                false => share.path.clone(),
                true => self.alone(number, &share.path)?,
            };
            // Another user can't enter that directory anyway.
            if self.copies.is_none() {
                check_hidden(&directory)?;
            }
            all.push(Export { tag: share_tag(number), directory, writable: share.writable });
        }
        Ok(all)
    }

    /// A directory with a copy of one file.
    fn alone(&self, number: usize, file: &Path) -> Result<PathBuf> {
        open_directory(&self.shared, SEEN)?;
        let directory = self.shared.join(share_tag(number));
        open_directory(&directory, SEEN)?;
        let copy = directory.join(file.file_name().unwrap_or_default());
        copy_once(file, &copy).explain(|| format!("could not copy {}", file.display()))?;
        Ok(directory)
    }
}

/// Removes the files of a cluster outside of its own directory.
pub fn remove(cluster: &str) -> Result<()> {
    let directory = public(cluster);
    match fs::remove_dir_all(&directory) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            return Err(why).explain(|| format!("could not remove {}", directory.display()))
        }
        _ => (),
    }
    // The last one leaves nothing behind.
    let _ = fs::remove_dir(PUBLIC);
    Ok(())
}

fn public(cluster: &str) -> PathBuf {
    Path::new(PUBLIC).join(cluster)
}

/// Copies a file unless that was done; a copy is there as a whole or not at all.
fn copy_once(from: &Path, to: &Path) -> std::io::Result<()> {
    let (old, new) = (fs::metadata(to), fs::metadata(from)?);
    if old.is_ok_and(|old| old.len() == new.len() && old.modified().ok() >= new.modified().ok()) {
        return Ok(());
    }
    let partial = to.with_extension("partial");
    fs::copy(from, &partial)?;
    fs::rename(&partial, to)
}

/// An error if machines would see the sockets by which they are controlled, which can't be masked.
fn check_hidden(directory: &Path) -> Result<()> {
    let runtime = runtime_directory()?;
    match runtime.starts_with(directory) {
        true => Err(error!(
            "{} can't be shared by way of libvirt: machines are controlled by what lies in {}",
            directory.display(),
            runtime.display()
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_alone_in_their_directories() {
        let home = std::env::temp_dir().join(format!("vshmem-exports-{}", std::process::id()));
        fs::create_dir_all(home.join("d")).unwrap();
        fs::write(home.join("file"), "1").unwrap();
        let share = |name: &str, writable| Share { path: home.join(name), writable };
        let shares = [share("d", true), share("file", false)];
        let exported = Exported { trees: vec!["/usr".into()], ..Exported::of(&shares, false) };
        let files = Files { copies: Some(home.clone()), shared: home.join("files") };
        let all = files.exports(&exported, &shares).unwrap();
        let told: Vec<_> =
            all.iter().map(|it| (it.tag.as_str(), it.directory.clone(), it.writable)).collect();
        let alone = home.join("files/share1");
        assert_eq!(
            told,
            [
                ("system0", "/usr".into(), false),
                ("share0", home.join("d"), true),
                ("share1", alone.clone(), false)
            ]
        );
        assert_eq!(fs::read_dir(&alone).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(alone.join("file")).unwrap(), "1");
        // What has changed is copied again.
        fs::write(home.join("file"), "changed").unwrap();
        files.exports(&exported, &shares).unwrap();
        assert_eq!(fs::read_to_string(alone.join("file")).unwrap(), "changed");
        let files = Files { copies: None, ..files };
        let broad = [Share { path: "/".into(), writable: false }];
        let why = files.exports(&Exported::default(), &broad).unwrap_err().to_string();
        assert!(why.contains("can't be shared by way of libvirt"), "{why}");
        fs::remove_dir_all(&home).unwrap();
    }
}
