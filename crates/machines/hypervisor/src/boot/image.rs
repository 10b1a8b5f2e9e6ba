//! The image of a machine: the root of this host, or a system of its own.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The image of a machine: the system that it boots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Image {
    /// The cluster's kernel, with the root of this host.
    #[default]
    Host,
    /// The cluster's kernel, and little more than Vshmem itself.
    Slim,
    /// A system of its own.
    Own(Box<System>),
}

/// A system of a machine's own: a disk, a kernel, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// The image of its disk.
    pub disk: Option<PathBuf>,
    /// The kernel that it boots; without one, what the disk's boot loader finds.
    pub kernel: Option<DirectKernel>,
    /// The image is not here yet: `disk` is what the user called it.
    #[serde(skip)]
    pub awaited: bool,
}

/// A kernel that is booted without a boot loader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectKernel {
    /// Its image.
    pub image: PathBuf,
    /// Its initramfs.
    pub initramfs: Option<PathBuf>,
    /// Its parameters, besides those that the accelerator takes.
    pub parameters: String,
}

impl Image {
    /// The system of its own, if it is one.
    pub fn system(&self) -> Option<&System> {
        match self {
            Image::Host | Image::Slim => None,
            Image::Own(system) => Some(system),
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Image::Host => f.write_str("this host's root"),
            Image::Slim => f.write_str("a slim system"),
            Image::Own(system) => write!(f, "{system}"),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.disk, &self.kernel) {
            (Some(disk), None) => write!(f, "{}", disk.display()),
            (Some(disk), Some(kernel)) => write!(f, "{} on {}", kernel.image.display(), disk.display()),
            (None, Some(kernel)) => write!(f, "{}", kernel.image.display()),
            (None, None) => f.write_str("nothing"),
        }
    }
}
