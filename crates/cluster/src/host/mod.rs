//! The host's side.

pub mod adopted;
pub mod affinity;
pub mod attach;
pub mod boot;
pub mod channel;
pub mod cluster;
pub mod command;
pub mod doorbell;
pub mod driver;
pub mod farewell;
pub mod frontend;
pub mod grant;
pub mod health;
pub mod hypervisor;
pub mod initramfs;
pub mod interrupt;
pub mod kernel;
pub mod library;
pub mod libvirt;
pub mod machine;
pub mod output;
pub mod pci;
pub mod permanent;
pub mod plug;
pub mod pool;
pub mod process;
pub mod restart;
pub mod run;
pub mod settings;
pub mod source;
pub mod state;
pub mod task;
pub mod up;
pub mod vmlinux;

pub use hypervisor::qemu;
pub use hypervisor::qemu::{accel, ports, qmp, wires};
