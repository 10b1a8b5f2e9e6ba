//! Commands on this kernel and in machines: their input, output, signals and ends.
//!
//! | module | subject |
//! | --- | --- |
//! | `job`, `outcome` | a command to run, and what became of it |
//! | `channel`, `hang_up` | the host's end of a channel to a machine |
//! | `local`, `task`, `group` | one command here, one command anywhere, all of them |
//! | `output`, `terminal` | where what they print goes |
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
