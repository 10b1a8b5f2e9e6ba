//! Commands on this kernel and in machines.
//!
//! | module | subject |
//! | --- | --- |
//! | `location`, `job`, `outcome` | the location of a command, the command, and its outcome |
//! | `channel`, `hang_up` | the host's end of a channel to a machine |
//! | `local`, `descendants` | commands on this kernel, and their background processes |
//! | `reached`, `channel_command` | commands where a command prefix reaches, as in containers |
//! | `task`, `tasks` | one command of a run, all of them |
//! | `output`, `writers`, `terminal` | their output, its writers, and the user's terminal |
//! | `event_loop` | input, output, signals and ends while they run |
//! | `run` | running them together |
//! | `launch` | an MPI's launcher, and its commands in other hosts |

pub mod channel;
mod channel_command;
mod descendants;
mod event_loop;
pub mod hang_up;
pub mod job;
pub mod launch;
pub mod local;
pub mod location;
pub mod outcome;
pub mod output;
mod reached;
pub mod run;
pub mod task;
pub mod tasks;
pub mod terminal;
mod writers;
