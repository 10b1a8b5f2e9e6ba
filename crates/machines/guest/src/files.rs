//! The shares of the host in a machine that does not have the whole file tree as its root, at the same paths.

use super::sys;
use crate::settings::exported::share_tag;
use crate::settings::Settings;
use rustix::mount::{mount_bind, MountFlags};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};
use vshmem_base::error::{Explain, Result};
use vshmem_session::share::{Share, ROOT_TAG, WRITABLE_TAG};

/// The directory in which the file trees are mounted; shares are bind mounts of their parts.
const TREES: &str = "/run/vshmem";

/// The cache of writable trees: other machines read what one has written, also in a file that they have open.
/// Without `directio` Linux 6.4 and newer keep pages; older ones keep none by themselves, and ignore the
/// word.
pub const SEEN_BY_OTHERS: &str = "mmap,directio";

/// Mounts a file tree of the host's, with this kind of cache.
pub fn mount_9p(
    tag: &str,
    target: &Path,
    flags: MountFlags,
    (transport, cache): (&str, &str),
) -> io::Result<()> {
    let options = format!("trans={transport},version=9p2000.L,msize=512000,cache={cache},access=any");
    sys::mount(tag, target, "9p", flags, &options)
}

/// Makes shares visible at their paths, where they hide the machine's own files.
pub fn share(transport: &str, settings: &Settings) -> Result<()> {
    let mut all: Vec<(usize, &Share)> = settings.shares.iter().enumerate().collect();
    // Each directory before those in it.
    all.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
    for (number, share) in all {
        let (tag, flags, cache) = match share.writable {
            false => (ROOT_TAG, MountFlags::RDONLY, "loose"),
            true => (WRITABLE_TAG, MountFlags::empty(), SEEN_BY_OTHERS),
        };
        let (tag, place) = match &settings.exported {
            None => (tag.to_string(), share.path.strip_prefix("/").unwrap_or(&share.path)),
            Some(exported) => (share_tag(number), exported.place(number, share)),
        };
        let tree = Path::new(TREES).join(&tag);
        let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
        if !is_mounted(&tree) {
            fs::create_dir_all(&tree)
                .and_then(|()| mount_9p(&tag, &tree, flags, (transport, cache)))
                .explain(|| "could not mount the host's file tree".into())?;
        }
        bind(&tree.join(place), &share.path)
            .explain(|| format!("could not mount {}", share.path.display()))?;
    }
    Ok(())
}

/// Whether another file system than its directory's is there, as after a restart of the agent.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    path.exists() && device(path) != path.parent().and_then(device)
}

/// Binds a directory or a file to a path, unless it is there already.
fn bind(theirs: &Path, path: &Path) -> io::Result<()> {
    let meta = fs::metadata(theirs)?;
    match fs::metadata(path) {
        Ok(found) if (found.dev(), found.ino()) == (meta.dev(), meta.ino()) => return Ok(()),
        Ok(_) => (),
        Err(_) if meta.is_dir() => fs::create_dir_all(path)?,
        Err(_) => {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(path, "")?;
        }
    }
    Ok(mount_bind(theirs, path)?)
}
