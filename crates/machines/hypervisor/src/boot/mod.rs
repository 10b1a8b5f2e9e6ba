//! What machines boot: a kernel, its modules, the driver among them, and the first root file system; or an
//! image of their own, and the seed that readies it.

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
