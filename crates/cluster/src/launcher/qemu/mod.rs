//! QEMU.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher` | a launcher's interface |
//! | `options`, `arguments`, `program` | QEMU's options, and starting it |
//! | `disks`, `image` | the disks of a machine that boots a system of its own |
//! | `placed`, `prealloc` | a machine's cores and memory, and waiting until the latter is taken |
//! | `accel`, `probe` | KVM or TCG |
//! | `sandbox`, `confined`, `set_id`, `acl` | what QEMU may access on this host |
//! | `logs` | output of machines and of QEMU |
//! | `sockets`, `qmp`, `connection` | a QEMU's sockets, its monitor protocol, reaching it and the front end |
//! | `ports` | the ports that pools are plugged into |
//! | `passed` | devices of the host that a machine has for itself |
//! | `netdev`, `uplink` | the network between machines, and one outside |
//! | `doorbell` | pools that the back end serves |
//! | `grant`, `hotplug`, `plug`, `pci`, `target` | granting pools to machines that run, and revoking them |
//! | `attach`, `attached`, `persistent` | machines that Vshmem did not start |
//! | `libvirt`, `lent` | pools of libvirt's domains, and their files as it finds them |
//! | `health` | the health of machines |

pub mod accel;
pub mod acl;
mod arguments;
pub mod attach;
pub mod attached;
pub mod confined;
mod connection;
pub mod disks;
pub mod doorbell;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod grant;
pub mod health;
mod hotplug;
pub mod image;
pub mod launcher;
pub mod lent;
pub mod libvirt;
pub mod logs;
pub mod netdev;
mod options;
pub mod passed;
pub mod pci;
pub mod persistent;
pub mod placed;
pub mod plug;
pub mod ports;
pub mod prealloc;
mod probe;
pub mod program;
pub mod qmp;
pub mod sandbox;
mod set_id;
pub mod sockets;
pub mod target;
mod tsc;
pub mod uplink;
