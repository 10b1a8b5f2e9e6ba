//! The software of machines: a kernel, its modules, the driver among them, and the first root file system; or
//! an image of their own, and its seed.

pub mod driver;
pub mod image;
pub mod initramfs;
pub mod initramfs_files;
pub mod kernel;
pub mod modules;
pub mod seed;
mod slim;
pub mod software;
pub mod vmlinux;
