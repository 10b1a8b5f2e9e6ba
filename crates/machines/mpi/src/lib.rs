//! MPI and OpenSHMEM over a pool: the MPI that a program uses, the hosts of its ranks, the settings that they
//! need, and the command lines of MPI's own launchers. Nothing here starts a rank.
//!
//! | module | subject |
//! | --- | --- |
//! | `files` | the programs and libraries of this host, or of a container |
//! | `versions` | versions, and which were tested |
//! | `launcher` | a launcher, and its task |
//! | `implementation` | everything in which implementations of MPI differ |
//! | `implementations` | a file for each, and the table of all |
//! | `installation` | the MPI and the UCX that a program uses, and their launcher |
//! | `environment` | variables that would mislead launchers |
//! | `hosts` | hosts, their slots, and the number of ranks that each gets |
//! | `processors` | the processors of hosts, and those that ranks are bound to where hosts share a kernel |
//! | `settings` | the variables that are set, and why |
//! | `launch` | the launchers' command lines, and the daemons that they may start in other hosts |
//! | `verify` | the transports that ranks have taken, by UCX's log |

pub mod environment;
pub mod files;
pub mod hosts;
mod implementation;
pub mod implementations;
pub mod installation;
mod launch;
mod launcher;
pub mod processors;
pub mod settings;
pub mod verify;
pub mod versions;

pub use implementation::Implementation;
pub use installation::Mpi;
pub use launcher::Line;
pub use settings::Situation;
pub use versions::Version;
