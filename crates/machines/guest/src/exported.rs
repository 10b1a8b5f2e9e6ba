//! The root of a machine that sees the host by file systems of their own: each is mounted at its place, below
//! a private layer.

use super::copies::Layer;
use super::files::{mount_9p, SEEN_BY_OTHERS};
use super::skeleton::{make_directory, skeleton};
use super::sys;
use crate::settings::exported::{share_tag, system_tag, Exported};
use crate::settings::Settings;
use rustix::mount::{mount_bind, MountFlags};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use vshmem_base::error::{Explain, Result};
use vshmem_session::share::Share;

/// The directory in which the file systems are mounted.
const LOWER: &str = "/lower";
/// The directory of the private layers.
const MEMORY: &str = "/memory";

/// Builds the root, which is memory but for these mounts. Returns the private layers over the host's
/// directories.
pub fn build_root(
    settings: &Settings,
    exported: &Exported,
    transport: &str,
) -> Result<(PathBuf, Vec<Layer>)> {
    let root = PathBuf::from("/root");
    for directory in [Path::new(MEMORY), &root] {
        make_directory(directory)?;
        sys::mount("memory", directory, "tmpfs", MountFlags::empty(), "mode=0755")
            .explain(|| "could not mount the private layer".into())?;
    }
    skeleton(&root).explain(|| "could not make the machine's own directories".into())?;
    for (path, target) in &exported.links {
        symlink(target, at(&root, path)).explain(|| format!("linking {}", path.display()))?;
    }
    let mut layers = Layers { root: &root, transport, settings, mounted: Vec::new() };
    for (number, tree) in exported.trees.iter().enumerate() {
        layers.mount(&system_tag(number), tree)?;
    }
    let mut shares: Vec<(usize, &Share)> = settings.shares.iter().enumerate().collect();
    // Each directory before those in it.
    shares.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
    for (number, share) in shares {
        let (tag, place) = (share_tag(number), exported.place(number, share));
        match (share.writable, place == Path::new("")) {
            (true, _) => layers.open(&tag, &share.path)?,
            (false, true) => layers.mount(&tag, &share.path)?,
            (false, false) => layers.file(&tag, place, &share.path)?,
        }
    }
    let mounted = layers.mounted;
    Ok((root, mounted))
}

/// The mounts of a machine's root so far.
struct Layers<'a> {
    root: &'a Path,
    transport: &'a str,
    settings: &'a Settings,
    /// The private layers.
    mounted: Vec<Layer>,
}

impl Layers<'_> {
    /// Mounts a directory of the host, read-only, below a private layer.
    fn mount(&mut self, tag: &str, path: &Path) -> Result<()> {
        let failed = || format!("could not mount the host's {}", path.display());
        let lower = self.lower(tag, path)?;
        let layer = Path::new(MEMORY).join(tag);
        let (upper, work, target) = (layer.join("upper"), layer.join("work"), at(self.root, path));
        [&upper, &work, &target].into_iter().try_for_each(|directory| make_directory(directory))?;
        self.mounted.push(Layer::new(&[&lower], &upper, path.into()).explain(failed)?);
        // The private layer has the mode of the host's directory.
        let mode = fs::metadata(&lower).explain(failed)?.permissions();
        fs::set_permissions(&upper, mode).explain(failed)?;
        let [lower, upper, work] = [&lower, &upper, &work].map(|path| path.display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let flags = match self.settings.uid {
            0 => MountFlags::empty(),
            _ => MountFlags::NOSUID,
        };
        sys::mount("host", &target, "overlay", flags, &options).explain(failed)
    }

    /// Mounts a directory of the host that the machine can write to.
    fn open(&self, tag: &str, path: &Path) -> Result<()> {
        let target = at(self.root, path);
        make_directory(&target)?;
        mount_9p(tag, &target, MountFlags::NOSUID | MountFlags::NODEV, (self.transport, SEEN_BY_OTHERS))
            .explain(|| format!("could not mount {}", path.display()))
    }

    /// Makes a file of the host, which is in a file system of its own, visible.
    fn file(&self, tag: &str, place: &Path, path: &Path) -> Result<()> {
        let (from, target) = (self.lower(tag, path)?.join(place), at(self.root, path));
        make_directory(target.parent().unwrap_or(self.root))?;
        fs::write(&target, "")
            .and_then(|()| Ok(mount_bind(from, &target)?))
            .explain(|| format!("could not mount {}", path.display()))
    }

    fn lower(&self, tag: &str, path: &Path) -> Result<PathBuf> {
        let lower = Path::new(LOWER).join(tag);
        make_directory(&lower)?;
        mount_9p(tag, &lower, MountFlags::RDONLY, (self.transport, "loose"))
            .explain(|| format!("could not mount the host's {}", path.display()))?;
        Ok(lower)
    }
}

/// A path of the host as a path below the machine's new root.
fn at(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
