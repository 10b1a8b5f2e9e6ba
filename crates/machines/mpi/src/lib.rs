//! MPI and OpenSHMEM over a pool: which MPI a program uses, where its ranks run, the settings that they need,
//! and the command lines of MPI's own launchers. Nothing here starts a rank.
//!
//! | module | subject |
//! | --- | --- |
//! | `files` | the programs and libraries of this host, or of a container |
//! | `versions` | versions, and which were tested |
//! | `implementation` | which MPI and which UCX a program uses, and what launches it |
//! | `environment` | variables that would mislead launchers |
//! | `hosts` | hosts, their slots, and how many ranks each gets |
//! | `processors` | the processors of hosts, and who is bound to which where hosts share a kernel |
//! | `settings` | what is set, and why |
//! | `line`, `launch`, `hydra`, `openmpi` | the launchers' command lines, and what they may have started in other hosts |
//! | `verify` | the transports that ranks have taken, by UCX's log |

pub mod environment;
pub mod files;
pub mod hosts;
mod hydra;
pub mod implementation;
mod launch;
mod line;
mod openmpi;
pub mod processors;
pub mod settings;
pub mod verify;
pub mod versions;

pub use implementation::{Kind, Mpi};
pub use line::Line;
pub use settings::Situation;
pub use versions::Version;
