//! Commands on this kernel and in machines.
//!
//! | module | subject |
//! | --- | --- |
//! | `job`, `outcome` | a command to run, and how it ended |
//! | `channel`, `hang_up` | the host's end of a channel to a machine |
//! | `local`, `task`, `group` | a command on this kernel, a command anywhere, all commands of a run |
//! | `output`, `terminal` | their output, and the user's terminal |
//! | `run` | running them together |

pub mod channel;
pub mod group;
pub mod hang_up;
pub mod job;
pub mod local;
pub mod outcome;
pub mod output;
pub mod run;
pub mod task;
pub mod terminal;
