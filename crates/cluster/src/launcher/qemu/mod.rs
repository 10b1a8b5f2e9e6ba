//! QEMU: its command line, and starting it.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher`, `guest` | what is asked of a launcher, on the host and in a machine |
//! | `options`, `program` | QEMU's options, and starting it |
//! | `accel`, `probe` | KVM or TCG |
//! | `sandbox` | what QEMU may have of this host, and no more |
//! | `logs` | what machines and QEMU print |
//! | `lent` | files that QEMU may open for a moment |
//! | `sockets`, `qmp` | a QEMU's sockets, and what is said to a running one |
//! | `ports` | where pools are plugged in |
//! | `wires` | the network between machines |
//! | `doorbell` | pools that the back end serves |
//! | `grant`, `plug`, `pci`, `target` | giving pools to machines that run, and taking them away |
//! | `attach`, `adopted`, `libvirt`, `permanent` | machines that Vshmem did not start |
//! | `health` | how machines are |

mod accel;
pub mod adopted;
pub mod attach;
pub mod doorbell;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod grant;
mod guest;
pub mod health;
pub mod launcher;
mod lent;
pub mod libvirt;
mod logs;
mod options;
pub mod pci;
pub mod permanent;
pub mod plug;
pub mod ports;
mod probe;
mod program;
pub mod qmp;
pub mod sandbox;
mod sockets;
pub mod target;
mod wires;
