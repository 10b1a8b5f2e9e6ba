//! The host's side.

pub mod accel;
pub mod affinity;
pub mod channel;
pub mod cluster;
pub mod command;
pub mod doorbell;
pub mod driver;
pub mod initramfs;
pub mod interrupt;
pub mod kernel;
pub mod library;
pub mod output;
pub mod pool;
pub mod process;
pub mod qemu;
pub mod qmp;
pub mod run;
pub mod settings;
pub mod state;
pub mod task;
pub mod up;
pub mod vmlinux;
