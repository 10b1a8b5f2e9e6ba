//! QEMU: machines are its processes, in sandboxes.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher` | a launcher's interface |
//! | `options`, `arguments`, `program` | QEMU's options, and starting it |
//! | `disks`, `netdev` | the disks of a machine that boots a system of its own, its links to others |
//! | `placed`, `prealloc` | a machine's cores and memory, and waiting until the latter is taken |
//! | `accel`, `probe`, `tsc` | KVM or TCG |

pub mod accel;
mod arguments;
pub mod disks;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod launcher;
pub mod netdev;
pub mod options;
pub mod placed;
pub mod prealloc;
mod probe;
pub mod program;
mod tsc;
