//! What machines boot: a kernel, its modules, the driver among them, and the first root file system.

pub mod driver;
pub mod initramfs;
pub mod kernel;
pub mod software;
pub mod vmlinux;
