//! QEMU: its command line, and starting it.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher`, `guest` | what is asked of a launcher, on the host and in a machine |
//! | `options`, `program` | QEMU's options, and starting it |
//! | `accel`, `probe` | KVM or TCG |
//! | `sandbox` | what QEMU may have of this host, and no more |
//! | `logs` | what machines and QEMU print |
//! | `acl` | files that QEMU may open for a moment |
//! | `sockets`, `qmp` | a QEMU's sockets, and what is said to a running one |
//! | `ports` | where pools are plugged in |
//! | `netdev` | the network between machines |
//! | `doorbell` | pools that the back end serves |
//! | `grant`, `plug`, `pci`, `target` | giving pools to machines that run, and taking them away |
//! | `attach`, `attached`, `libvirt`, `persistent` | machines that Vshmem did not start |
//! | `health` | how machines are |

mod accel;
mod acl;
pub mod attach;
pub mod attached;
pub mod doorbell;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod grant;
mod guest;
pub mod health;
pub mod launcher;
pub mod libvirt;
mod logs;
mod netdev;
mod options;
pub mod pci;
pub mod persistent;
pub mod plug;
pub mod ports;
mod probe;
mod program;
pub mod qmp;
pub mod sandbox;
mod sockets;
pub mod target;
