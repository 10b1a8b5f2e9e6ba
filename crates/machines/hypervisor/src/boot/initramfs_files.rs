//! The initramfs files of a cluster, one for each kind of image.

use super::image::Image;
use super::initramfs::{build, write};
use super::slim;
use super::software::Software;
use std::fs;
use std::path::{Path, PathBuf};
use vshmem_base::directories::cluster_directory;
use vshmem_base::error::Result;

/// The initramfs files of a cluster, removed when they are dropped.
pub struct Initramfs {
    usual: PathBuf,
    slim: PathBuf,
}

impl Initramfs {
    /// Writes the files that machines with these images need; of those with the host's root, whether that is
    /// a disk. The caller has the cluster's lock.
    pub fn write<'a>(
        cluster: &str,
        software: &Software,
        mut images: impl Iterator<Item = &'a Image>,
        disk: bool,
    ) -> Result<Initramfs> {
        let directory = cluster_directory(cluster)?;
        let written =
            Initramfs { usual: directory.join("initramfs"), slim: directory.join("initramfs.slim") };
        let modules = &software.kernel.modules;
        let of_disk = software.kernel.disk.iter().flatten().filter(|_| disk);
        write(&written.usual, &build(modules.iter().chain(of_disk))?)?;
        if images.any(|image| *image == Image::Slim) {
            write(&written.slim, &slim::build(modules)?)?;
        }
        Ok(written)
    }

    /// The file of machines with this image.
    pub fn of(&self, image: &Image) -> &Path {
        match image {
            Image::Slim => &self.slim,
            Image::Host | Image::Own(_) => &self.usual,
        }
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        for file in [&self.usual, &self.slim] {
            let _ = fs::remove_file(file);
        }
    }
}
