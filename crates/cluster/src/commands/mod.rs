//! Commands on this kernel and in machines.
//!
//! | module | subject |
//! | --- | --- |
//! | `job`, `outcome` | a command to run, and how it ended |
//! | `channel`, `hang_up` | the host's end of a channel to a machine |
//! | `local` | commands on this kernel |
//! | `task`, `group` | one command of a run, all of them |
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
