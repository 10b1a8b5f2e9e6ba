//! QEMU: machines are its processes, in sandboxes.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher` | a launcher's interface |
//! | `spec`, `options`, `arguments`, `program` | a machine's parts, QEMU's options for them, and starting it |
//! | `disks`, `netdev` | the disks of a machine that boots a system of its own, its links to others |
//! | `placed`, `prealloc` | a machine's cores and memory, and waiting until the latter is taken |
//! | `template`, `migration` | machines that others thaw from, and how their state is saved and loaded |
//! | `accel`, `probe`, `tsc` | KVM or TCG |

pub mod accel;
mod arguments;
pub mod disks;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod launcher;
mod migration;
pub mod netdev;
pub mod options;
pub mod placed;
pub mod prealloc;
mod probe;
pub mod program;
mod spec;
mod template;
mod tsc;
